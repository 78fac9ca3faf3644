"""A session whose request is over the hard cap, for any reason, can continue."""

import json
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, Rule, text, tool_use
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
    """Reads ten pages at once if the message requests it, otherwise answers."""
    if "read all" in request.last_user_text and not request.turn_results:
        return Reply([tool_use("read", {"page": n}) for n in range(10)])
    return Reply([text("Yes. " + PAGE * 2)])


@pytest.fixture
def drive(start_session):
    def start(**more) -> Driven:
        cheap = Rule(reply=Reply([text("In short.")]), when=lambda request: request.model == CHEAP)
        fields = {"limits": CAP, "compaction": Compaction(model=CHEAP), **more}
        agent = Agent(name="helper", model=MODEL, system="Be brief.", tools=(read,), **fields)
        return start_session(agent, cheap, Rule(reply=answers))

    return start


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def test_S3_6_a_result_with_a_short_form_counts_as_the_short_form(drive):
    session = drive()
    session.say("read all").run()
    assert len(session.events(ev.ResultCompacted)) == 10
    assert reasons(session) == ["end_turn"], "ten short forms fit"
    body = session.server.body(session.server.calls())
    assert len(body) < 10 * len(PAGE) * 60


def test_S3_6_a_message_that_fits_into_no_request_does_not_block_the_session(drive):
    session = drive()
    session.say("Hello.").run()
    session.say(PAGE * 600).run()
    session.say("And now?").run()
    assert reasons(session) == ["end_turn", "budget_exceeded", "end_turn"]
    assert "And now?" in session.server.body(session.server.calls()).decode()


def test_S3_6_messages_over_the_cap_are_summarized_even_if_they_are_few(drive):
    session = drive()
    for number in range(8):
        session.say(f"Question {number}. " + PAGE * 60).run()
        session.ms += 60_000
        session.check()
    assert reasons(session)[-1] == "end_turn" and reasons(session).count("end_turn") >= 6


@pytest.mark.parametrize("strategy", ["sliding_window_4", "sliding_window_40"])
def test_S3_6_a_sliding_window_over_the_cap_moves_further(drive, strategy):
    session = drive(strategy=strategy)
    for number in range(12):
        session.say(f"Question {number}. " + PAGE * 140).run()
        session.check()
    assert set(reasons(session)) == {"end_turn"}


def test_the_estimate_for_another_strategy_counts_what_it_would_send(drive):
    session = drive(strategy="sliding_window_4")
    for number in range(12):
        session.say(f"Question {number}. " + PAGE * 40).run()
    rules = rules_of(session.agent)
    narrow = plan(session.views, rules).tokens
    assert plan(session.views, rules._replace(strategy="full")).tokens > 2 * narrow


@pytest.mark.parametrize("params", [{}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}])
def test_S3_6_results_over_the_cap_end_the_turn_but_not_the_session(drive, params):
    """No result is shortened, and with a fixed thinking budget the context cannot change during the
    turn."""
    limits = replace(CAP, short_tokens=10**6, result_tokens=10**6)
    session = drive(limits=limits, params=params)
    session.say("read all").run()
    session.ms += CAP.candidate_wait_ms
    session.run()
    assert reasons(session) == ["budget_exceeded"]
    for message in ("And now?", "And now at last?", "Still there?"):
        session.say(message).run()
        session.ms += CAP.candidate_wait_ms
        session.run()
    assert reasons(session)[-1] == "end_turn"
    session.check()


def test_an_estimate_is_never_below_the_tokens_of_the_prefix(drive):
    session = drive()
    session.say("Hello.").run()
    view = session.views.context
    prefix = ev.ContextSet(
        system=ev.Body(inline=b"[]"), tools=ev.Body(inline=b"[]"), sha256="another", tokens=40
    )
    large = replaced(view, prefixes=view.prefixes.append(replaced(view.prefixes[-1], new=10**6)))
    entry = Entry("s", 0, 10**6, 0, "sessions", prefix)
    views = replaced(session.views, context=large)
    after, ruling = fold(views, entry)
    assert ruling.accepted and estimated_tokens(after.context) >= 40


def test_a_message_with_a_negative_token_count_is_counted_again(drive):
    session = drive()
    content = json.dumps([{"type": "text", "text": PAGE * 600}]).encode()
    session.put(
        "producer",
        ev.MessageReceived(
            message_id="m1", role="user", content=ev.Body(inline=content),
            tokens=-(10**9),
            channel="test", when_busy="queue", by_user="u",
        ),
    )
    session.run()
    assert reasons(session) == ["budget_exceeded"]


def test_a_summary_is_adopted_only_if_it_saves_enough_of_the_request(drive):
    """The messages that must stay already exceed the soft budget; still, the prefix must not change
    in each turn."""
    limits = Limits(soft_tokens=3_000, hard_tokens=60_000, resume_tokens=10**6)
    session = drive(limits=limits)
    for number in range(40):
        session.say(f"Question {number}. " + PAGE * 200).run()
    adopted = [c.checkpoint for c in session.events(ev.LlmCalled)]
    moves = sum(1 for one, other in zip(adopted, adopted[1:], strict=False) if one != other)
    assert reasons(session) == ["end_turn"] * 40
    assert 2 <= moves <= 14 and len(session.events(ev.ContextCompacted)) <= 20
