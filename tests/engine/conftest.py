"""The fixture that starts driven sessions."""

from contextlib import ExitStack

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.tests.engine.driven import Driven


@pytest.fixture
def start_session(tmp_path):
    """Starts a driven session with an agent on a scripted server; closes both after the test."""
    with ExitStack() as stack:

        def start(agent, *rules, kind=Driven):
            server = stack.enter_context(ScriptedServer(list(rules)))
            session = kind(agent, server, tmp_path)
            stack.callback(session.close)
            return session

        yield start
