"""The fixtures of this folder. The tests of a file share a gateway; each has its own session."""

import zlib

import pytest

from foldlog.tests.consumers.gateway.fixtures import ana, bob, gateway, log, settings
from foldlog.tests.consumers.protocols.ai_sdk_chats import CLIENT, Chat

__all__ = ["ana", "bob", "gateway", "log", "settings"]


@pytest.fixture
def session(request):
    """The name of the test's own session."""
    return f"s{zlib.crc32(request.node.name.encode()):x}"


@pytest.fixture(scope="module")
def node_chats(talk):
    """Chats of the AI SDK."""
    return talk(CLIENT)


@pytest.fixture
def chat(node_chats, gateway, session):
    """A chat of the test's own session."""
    return Chat(node_chats, gateway, session)
