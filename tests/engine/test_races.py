"""Events arrive between a decision and its record: the request must remain the one that was
claimed."""

import json

import pytest

from foldlog.local.messages_api import Reply, Rule, text, tool_use
from foldlog.processors.agent import Agent
from foldlog.processors.fold.session import fold
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.decide import Sources, decide, no_layers, rules_of
from foldlog.processors.wake.facts import wake
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, entry_of
from foldlog.tests.engine.driven import Driven

PAGE = "All work and no play makes a dull log. "


@tool(effect="pure")
def read(ctx, pages: int = 1) -> str:
    """Reads that many pages."""
    return PAGE * 80 * pages


AGENT = Agent(
    name="helper", model="claude-opus-5-5", tools=(read,), limits=Limits(short_tokens=600)
)


@pytest.fixture
def session(start_session):
    both = Reply([tool_use("read", {"pages": 1}), tool_use("read", {"pages": 2})])
    return start_session(AGENT, Rule(reply=both, tool_results=0), Reply([text("done")]))


def test_law_8_a_short_form_written_before_a_decision_in_flight_makes_it_stale(session):
    session.hold = {"tool", "result"}
    session.say("read both").run()
    first, second = session.held
    session.release(first).run()
    session.release(second).run_effects()
    views, _ = fold(session.views, last(session))

    blobs = session.blobs
    sources = Sources(blobs.body, lambda ref: blobs.get(ref.sha256), no_layers)
    owed = wake(views, session.worker.owned[0].partition, session.ms, rules_of(AGENT))
    (due,) = (o for o in owed if o.owed == "LLM_CALLED")
    (decision,) = decide(due, views, AGENT, sources)

    short = ev.ResultCompacted(call="1.1.0", short=ev.Body(inline=b"short"), tokens=2)
    offset = last(session).offset + 1
    views, ruling = fold(views, Entry(views.session_id, 0, offset, 0, "background", short))
    assert ruling.accepted and views.compaction.shorts[-1].early
    _, ruling = fold(views, Entry(views.session_id, 0, offset + 1, 0, "sessions", decision))
    assert ruling.code == "stale", "its claim was made for the request without the short form"

    session.put("background", short)
    session.hold = set()
    session.run()
    claims = {c.request_sha256 for c in session.events(ev.GenStart)}
    assert len(claims) == 2
    last_body = json.loads(session.server.body(2))
    results = [b["content"] for b in last_body["messages"][-1]["content"]]
    assert results[0] == "short" and results[1].startswith(PAGE)


def last(session: Driven) -> Entry:
    return entry_of(session.records()[-1])
