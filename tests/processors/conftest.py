"""Scripted model servers for the tests of this directory. They stop when the test ends."""

import pytest

from foldlog.local.messages_api import ScriptedServer


@pytest.fixture
def serve():
    """A factory of servers. All of them stop when the test ends."""
    servers = []

    def start(script, **more):
        servers.append(ScriptedServer(script, **more).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
