"""What tests that speak a protocol share: a log, a gateway over it, Ana's client, a session's name.

All of one file use one gateway, and each test a session of its own.
"""

import zlib

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import memory_log, settings_in
from foldlog.tests.consumers.protocols.ai_sdk_chats import CLIENT, Chat
from foldlog.tests.consumers.protocols.spoken import SECRET


@pytest.fixture(scope="module")
def log():
    return memory_log(threaded=True)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return settings_in(tmp_path_factory.mktemp("protocol"))


@pytest.fixture(scope="module")
def gateway(log, settings):
    with served(log, settings, settings.home / "gateway", secret=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def ana(gateway):
    with gateway.http(token_for("ana", SECRET)) as http:
        yield http


@pytest.fixture
def session(request):
    """The name of a session of the test's own."""
    return f"s{zlib.crc32(request.node.name.encode()):x}"


@pytest.fixture(scope="module")
def node_chats(talk):
    """Chats of the AI SDK."""
    return talk(CLIENT)


@pytest.fixture
def chat(node_chats, gateway, session):
    """A chat of the test's own session."""
    return Chat(node_chats, gateway, session)
