"""Scripted model servers for the tests of this directory, stopped when a test ends."""

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
