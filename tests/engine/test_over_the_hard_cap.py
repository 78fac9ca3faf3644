"""Over the hard cap: a session that is too long, whatever made it so, can go on again."""

import json
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.processors.fold.session import fold
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.budget import plan
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry
from foldlog.schemas.value import replace as replaced
from foldlog.tests.engine.driven import Driven

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
PAGE = "All work and no play makes a dull log. "
CAP = Limits(soft_tokens=3_000, hard_tokens=6_000, resume_tokens=10**6, short_tokens=600)


@tool(effect="pure")
def read(ctx, page: int = 1) -> str:
    """Reads a page."""
    return f"Page {page}. " + PAGE * 60


def answers(request):
    """Reads ten pages at once when it is asked to, else answers in a word."""
    if "read all" in request.last_user_text and not request.turn_results:
        return Reply([tool_use("read", {"page": n}) for n in range(10)])
    return Reply([text("Yes. " + PAGE * 2)])


@pytest.fixture
def drive(tmp_path):
    servers, driven = [], []

    def start(*rules, **more) -> Driven:
        rules = rules or (Rule(reply=Reply([text("In short.")]), when=is_cheap),)
        servers.append(ScriptedServer([*rules, Rule(reply=answers)]).start())
        fields = {"limits": CAP, "compaction": Compaction(model=CHEAP), **more}
        agent = Agent(name="helper", model=MODEL, system="Be brief.", tools=(read,), **fields)
        driven.append(Driven(agent, servers[-1], tmp_path))
        return driven[-1]

    yield start
    for session in driven:
        session.close()
    for server in servers:
        server.stop()


def is_cheap(request) -> bool:
    return request.model == CHEAP


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def test_S3_6_results_that_have_a_short_form_weigh_what_the_next_request_says_of_them(drive):
    session = drive()
    session.say("read all").run()
    assert len(session.events(ev.ResultCompacted)) == 10
    assert reasons(session) == ["end_turn"], "ten short forms are no reason to stop"
    body = session.server.body(session.server.calls())
    assert len(body) < 10 * len(PAGE) * 60


def test_S3_6_a_message_that_no_request_has_room_for_does_not_block_the_session(drive):
    session = drive()
    session.say("Hello.").run()
    session.say(PAGE * 600).run()
    session.say("And now?").run()
    assert reasons(session) == ["end_turn", "budget_exceeded", "end_turn"]
    assert "And now?" in session.server.body(session.server.calls()).decode()


def test_S3_6_a_few_messages_that_pass_the_cap_are_summarized_all_the_same(drive):
    session = drive()
    for number in range(8):
        session.say(f"Question {number}. " + PAGE * 60).run()
        session.ms += 60_000
        session.check()
    assert reasons(session)[-1] == "end_turn" and reasons(session).count("end_turn") >= 6


@pytest.mark.parametrize("strategy", ["sliding_window_4", "sliding_window_40"])
def test_S3_6_a_sliding_window_that_passes_the_cap_slides_on(drive, strategy):
    session = drive(strategy=strategy)
    for number in range(12):
        session.say(f"Question {number}. " + PAGE * 140).run()
        session.check()
    assert set(reasons(session)) == {"end_turn"}


def test_the_estimate_knows_what_another_strategy_would_say(drive):
    session = drive(strategy="sliding_window_4")
    for number in range(12):
        session.say(f"Question {number}. " + PAGE * 40).run()
    rules = rules_of(session.agent)
    narrow = plan(session.views, rules).tokens
    assert plan(session.views, rules._replace(strategy="full")).tokens > 2 * narrow


@pytest.mark.parametrize("params", [{}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}])
def test_S3_6_results_that_pass_the_cap_end_a_turn_and_not_the_session(drive, params):
    """No short form may come, and with a fixed thinking budget nothing moves while they answer."""
    limits = replace(CAP, short_tokens=10**6, result_tokens=10**6)
    session = drive(limits=limits, params=params)
    session.say("read all").run()
    session.ms += CAP.candidate_wait_ms
    session.run()
    assert reasons(session) == ["budget_exceeded"]
    for words in ("And now?", "And now at last?", "Still there?"):
        session.say(words).run()
        session.ms += CAP.candidate_wait_ms
        session.run()
    assert reasons(session)[-1] == "end_turn"
    session.check()


def test_an_estimate_is_never_below_what_the_prefix_alone_weighs(drive):
    session = drive()
    session.say("Hello.").run()
    view = session.views.context
    prefix = ev.ContextSet(
        system=ev.Body(inline=b"[]"), tools=ev.Body(inline=b"[]"), sha256="another", tokens=40
    )
    heavy = replaced(view, prefixes=view.prefixes.append(replaced(view.prefixes[-1], new=10**6)))
    entry = Entry("s", 0, 10**6, 0, "sessions", prefix)
    views = replaced(session.views, context=heavy)
    after, ruling = fold(views, entry)
    assert ruling.accepted and estimated_tokens(after.context) >= 40


def test_a_message_that_claims_less_than_nothing_weighs_what_it_is(drive):
    session = drive()
    said = json.dumps([{"type": "text", "text": PAGE * 600}]).encode()
    session.write(
        "producer",
        ev.MessageReceived(
            message_id="m1", role="user", content=ev.Body(inline=said), tokens=-(10**9),
            channel="test", when_busy="queue", by_user="u",
        ),
    )
    session.run()
    assert reasons(session) == ["budget_exceeded"]


def test_what_is_adopted_saves_a_fair_part_of_the_request(drive):
    """Over the soft budget with what must be kept: the prefix is not moved at every turn."""
    limits = Limits(soft_tokens=3_000, hard_tokens=60_000, resume_tokens=10**6)
    session = drive(limits=limits)
    for number in range(40):
        session.say(f"Question {number}. " + PAGE * 200).run()
    adopted = [c.checkpoint for c in session.events(ev.LlmCalled)]
    moves = sum(1 for one, other in zip(adopted, adopted[1:], strict=False) if one != other)
    assert reasons(session) == ["end_turn"] * 40
    assert 2 <= moves <= 14 and len(session.events(ev.ContextCompacted)) <= 20
