"""A worker behaves the same with Confluent framing as with Avro's single-object encoding."""

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text, tool_use
from foldlog.log import MemoryLog
from foldlog.log.framing import FramedLog
from foldlog.log.registry import Registry
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tool import tool
from foldlog.testing import engine
from foldlog.tests.engine.driven import Driven
from foldlog.tests.log.mock_registry import MockRegistry


@tool(effect="pure")
def read(ctx, pages: int = 1) -> str:
    """Reads that many pages."""
    return "All work and no play. " * pages


AGENT = Agent(name="helper", model="claude-opus-5-5", tools=(read,))


def play_session(directory):
    """Plays a session with a tool call. Returns its stored records and its views."""
    call = Reply([tool_use("read", {"pages": 2})])
    with ScriptedServer([Rule(reply=call, tool_results=0), Reply([text("done")])]) as server:
        session = Driven(AGENT, server, directory)
        try:
            session.say("read").run()
            views = session.views
            session.restart()
            assert session.run().views == views
        finally:
            session.close()
        return session.records(), views


@pytest.fixture
def framed(tmp_path, monkeypatch):
    with MockRegistry().serving() as mock:
        registry = Registry(mock.url, tmp_path / "registry")

        def framed_log(*args, **more):
            return FramedLog(MemoryLog(*args, **more), registry, confluent=True, prefix="")

        with monkeypatch.context() as patched:
            patched.setattr(engine, "MemoryLog", framed_log)
            yield play_session(tmp_path / "framed")


def test_a_worker_does_the_same_in_either_framing(framed, tmp_path):
    records, views = framed
    heads = [record.value[0] for record in records]
    assert heads.count(0) > 5 and heads.count(0xC3) > 1  # the test wrote some, unframed
    plain, plain_views = play_session(tmp_path / "plain")
    assert [r.headers for r in records] == [r.headers for r in plain]
    assert views.state == plain_views.state and views.turn == plain_views.turn
    assert views.context == plain_views.context and views.transcript == plain_views.transcript
