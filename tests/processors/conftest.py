"""Servers that tests of this room start, stopped when the test ends."""

import pytest

from foldlog.local.messages_api import ScriptedServer


@pytest.fixture
def serve():
    """A factory of servers that are stopped at the end."""
    servers = []

    def start(script, **more):
        servers.append(ScriptedServer(script, **more).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
