"""The fixtures of the protocols' tests. The tests of a file share a gateway; each test has its own
session."""

import zlib

import pytest

from foldlog.tests.web.gateway.fixtures import ana, bob, gateway, log, settings
from foldlog.tests.web.protocols.ai_sdk_chats import CLIENT, Chat

__all__ = ["ana", "bob", "gateway", "log", "settings"]


@pytest.fixture
def session(request):
    """The name of the session that belongs to this test."""
    return f"s{zlib.crc32(request.node.name.encode()):x}"


@pytest.fixture(scope="module")
def node_chats(talk):
    """Chats of the AI SDK."""
    return talk(CLIENT)


@pytest.fixture
def chat(node_chats, gateway, session):
    """A chat of the session that belongs to this test."""
    return Chat(node_chats, gateway, session)
