"""Compaction end to end: a worker, a cheap model and a strict server, without a broker."""

import json

import pytest

from foldlog.client.context_view import Change, changes, short_forms
from foldlog.client.outcomes import Patience
from foldlog.client.session_fold import SessionFold
from foldlog.client.waiting import what_it_waits_for
from foldlog.local.messages_api import (
    Reply,
    Rule,
    compaction,
    text,
    thinking,
    tool_use,
)
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.limits import Limits
from foldlog.processors.request.build import request_bytes
from foldlog.processors.request.summary import FRAME
from foldlog.processors.tools.builtin import read_result
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven
from foldlog.tests.kit.manual_worker import SESSION

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
SMALL = Limits(soft_tokens=4_000, hard_tokens=12_000, resume_tokens=20_000, short_tokens=600)
PAGE = "All work and no play makes a dull log. "
RECORD = "A record of what was said, page by page."


@tool(effect="pure")
def read(ctx, pages: int = 1) -> str:
    """Reads that many pages."""
    return PAGE * 60 * pages


@tool(effect="pure", compactor=lambda whole: whole[:100])
def leaf(ctx, pages: int = 1) -> str:
    """Reads pages, has a compactor."""
    return PAGE * 60 * pages


def agent(**more) -> Agent:
    fields = {"limits": SMALL, "compaction": Compaction(model=CHEAP), "tools": (read, leaf), **more}
    return Agent(name="helper", model=MODEL, system="Be brief.", **fields)


def answers(request):
    """Replies as the model: calls the tool as often as the message states, then answers."""
    message = request.last_user_text
    for name in ("read", "leaf"):
        if f"{name} " in message and len(request.turn_results) < int(
            message.split(f"{name} ")[1][:2]
        ):
            return Reply([thinking("hm"), tool_use(name, {"pages": 1})])
    return Reply([thinking("well"), text(f"Answer {len(request.messages)}. " + PAGE * 5)])


def cheap(*blocks, **more) -> Rule:
    return Rule(reply=Reply(list(blocks), **more), when=lambda request: request.model == CHEAP)


@pytest.fixture
def drive(start_session):
    def start(*rules, **more) -> Driven:
        rules = rules or (cheap(text(RECORD)),)
        return start_session(agent(**more), *rules, Rule(reply=answers))

    return start


def talk(session: Driven, times: int, more: str = PAGE * 12) -> Driven:
    for number in range(times):
        session.say(f"Question {number}. {more}").run()
        session.check()
    return session


def request(session: Driven) -> dict:
    return json.loads(request_bytes(session.views, session.read_blob))


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def test_S3_6_over_the_soft_budget_a_summary_is_written_and_adopted(drive):
    session = talk(drive(), 24)
    called = session.events(ev.LlmCalled)
    assert session.events(ev.ContextCompacted) and reasons(session) == ["end_turn"] * 24
    assert all(done.ok for done in session.events(ev.BackgroundDone))
    assert called[0].checkpoint is None and called[-1].checkpoint is not None
    assert max(c.prompt_tokens for c in called) < 2 * SMALL.soft_tokens
    first = request(session)["messages"][0]
    assert FRAME in first["content"][0]["text"] and RECORD in first["content"][0]["text"]
    assert len(request(session)["messages"]) >= 12
    assert "Question 23." in json.dumps(request(session))


def test_S3_4_a_second_summary_is_based_on_the_first_one(drive):
    session = talk(drive(), 40)
    made = session.events(ev.ContextCompacted)
    assert len(made) >= 2
    assert made[1].kept_from > made[0].kept_from
    requests = [body for body in bodies(session) if body["model"] == CHEAP]
    assert RECORD in requests[1]["messages"][0]["content"][0]["text"]


def bodies(session: Driven) -> list[dict]:
    count = session.server.calls()
    return [json.loads(session.server.body(n)) for n in range(1, count + 1)]


def test_constraint_3_an_abort_stops_a_running_summary(drive):
    session = drive()
    session.hold = {"context"}
    talk(session, 20)
    (begin,) = session.held
    session.say("one more")
    session.read()
    stop = ev.CancelRequested(cancel_id="c1", mode="now", reason="enough", by_user="u")
    session.put("producer", stop)
    session.run()
    assert reasons(session)[-1] == "cancelled" and begin.claim.offset in session.stopped
    session.release().run()
    assert session.views.compaction.candidate is None, "a summary after the abort is ignored"


def test_constraint_3_terminating_a_session_stops_its_resume_summary(drive):
    session = drive(limits=Limits(soft_tokens=10_000, hard_tokens=12_000, resume_tokens=2_000))
    session.hold = {"resume"}
    while not session.held:
        talk(session, 1)
    (begin,) = session.held
    session.put("producer", ev.SessionTerminated(reason="done", by_user="u"))
    session.run()
    assert begin.claim.offset in session.stopped


def test_S1_E_a_large_result_gets_a_short_form_that_a_later_request_uses(drive):
    session = drive(cheap(text("The page says little.")))
    session.say("read 1 ").run()
    (short,) = session.events(ev.ResultCompacted)
    assert short.call == "1.1.0" and short.short.ref is not None
    assert session.blobs.get(short.short.ref.sha256).decode() == PAGE * 60
    talk(session, 20)
    adopted = [c for c in session.events(ev.LlmCalled) if c.compacted_upto >= 0]
    assert adopted or session.events(ev.ContextCompacted)


def test_S1_E_a_tool_with_a_compactor_needs_no_model(drive):
    session = drive()
    session.say("leaf 1 ").run()
    (short,) = session.events(ev.ResultCompacted)
    assert short.short.inline.decode().startswith((PAGE * 60)[:100])
    # The result is large for this agent, but below the default limit.
    assert short_forms(session.views)[0] == 1
    assert not [body for body in bodies(session) if body["model"] == CHEAP]


def diff(session: Driven) -> list[Change]:
    with SessionFold(session.log, SESSION) as folded:
        return list(changes(folded, folded.end(), session.read_blob))


def test_S1_E_a_short_form_that_was_ready_in_time_is_listed_as_left_out(drive):
    """The first request with the result already contains the short form, so the prefix did not
    change."""
    both = Reply([tool_use("leaf", {}), tool_use("read", {})])
    session = drive(Rule(reply=both, contains="both", times=1))
    session.hold = {"tool"}
    session.say("both").run()
    leaf_call, _ = session.held
    session.release(leaf_call).run().release().run()
    (short, late), (_, called) = session.views.compaction.shorts, session.events(ev.LlmCalled)
    assert short.early and not late.early
    assert json.dumps(request(session)).count(PAGE * 60) == 1
    (change,) = diff(session)
    assert (change.kind, change.step) == ("short forms", "1.2")
    assert change.why == "they were ready before the full results were sent"
    assert change.before == called.prompt_tokens == change.after + short.saved
    (piece,) = change.left_out
    assert piece.name == short.call and piece.tokens > 500 and piece.words.startswith(PAGE)


@pytest.mark.parametrize("readable", [True, False])
def test_S1_E_a_short_form_mentions_read_result_only_if_the_agent_has_it(drive, readable):
    """The defect: short forms asked agents without the tool `read_result` to call it."""
    session = drive(tools=(read, leaf, *([read_result] if readable else [])))
    session.say("leaf 1 ").run()
    (short,) = session.events(ev.ResultCompacted)
    assert ("read_result" in short.short.inline.decode()) is readable


def test_S3_6_over_the_hard_cap_a_step_waits_for_the_summary_and_uses_it(drive):
    session = drive(limits=Limits(soft_tokens=3_000, hard_tokens=5_000, resume_tokens=10**6))
    session.hold = {"context"}
    talk(session, 1)
    while not session.views.turn.open:
        talk(session, 1)
    assert len(session.held) == 1
    waiting, reports = session.views.turn.number, []
    holders = session.worker.owned[0].partition
    Patience(reports.append, patience_s=-1.0).report_if_due(session.views, holders)
    assert reports == ["the conversation is being summarized, so that the next request has room"]
    session.release().run()
    assert what_it_waits_for(session.views).text == ""
    assert reasons(session) == ["end_turn"] * waiting
    assert session.events(ev.LlmCalled)[-1].checkpoint is not None


def test_S3_6_over_the_hard_cap_without_a_summary_the_turn_ends_as_budget_exceeded(drive):
    limits = Limits(soft_tokens=3_000, hard_tokens=5_000, resume_tokens=10**6)
    session = drive(cheap(text("")), limits=limits)
    talk(session, 30)
    session.ms += limits.candidate_wait_ms
    session.run()
    assert reasons(session)[-1] == "budget_exceeded"
    assert set(reasons(session)[:-1]) <= {"end_turn", "budget_exceeded"}


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (cheap(text("  ")), "empty"),
        (cheap(text(PAGE * 900)), "tokens"),
        (cheap(text("no"), stop_reason="refusal"), "refused"),
        (cheap(text("x"), fault="bad_request"), "failed"),
    ],
)
def test_an_unusable_summary_does_not_affect_the_session_and_is_retried_later(drive, rule, why):
    session = talk(drive(rule), 24)
    ends = session.events(ev.BackgroundDone)
    assert ends and not any(end.ok for end in ends) and all(why in end.why for end in ends)
    assert session.events(ev.ContextCompacted) == []
    assert set(reasons(session)) == {"end_turn"}
    assert 1 < len(ends) < 10, "retried after more messages, not at every step"


def test_a_resume_summary_is_written_while_idle_and_adopted_when_the_cache_is_cold(drive):
    limits = Limits(soft_tokens=12_000, hard_tokens=90_000, resume_tokens=2_000)
    session = talk(drive(limits=limits), 20)
    kinds = {each.kind for each in session.events(ev.BackgroundStarted)}
    assert kinds == {"resume"}
    assert session.events(ev.LlmCalled)[-1].checkpoint is None, "the cache is warm"
    session.ms += 10 * 60_000
    calls = session.server.calls()
    session.say("I am back.").run()
    assert session.events(ev.LlmCalled)[-1].checkpoint is not None
    assert bodies(session)[calls]["model"] == MODEL, "resuming needs no other model call"


def test_a_request_that_the_provider_rejects_as_too_long_is_shortened_and_sent_again(drive):
    too_long = Reply([], fault={"name": "bad_request", "message": "prompt is too long: 1"})
    session = talk(drive(limits=Limits()), 10)
    session.server.add(Rule(reply=too_long, contains="now it is too much", times=1))
    session.say("now it is too much").run()
    assert reasons(session)[-1] == "end_turn"
    assert session.events(ev.LlmCalled)[-1].checkpoint is not None


def test_a_candidate_that_covers_too_little_does_not_block_a_newer_one(drive):
    """The defect: the first candidate covered only one message, and blocked all later
    candidates."""
    limits = Limits(soft_tokens=8_000, hard_tokens=30_000, resume_tokens=2_000)
    session = talk(drive(limits=limits), 60)
    made = session.events(ev.ContextCompacted)
    assert len(made) >= 2 and reasons(session) == ["end_turn"] * 60
    assert max(c.prompt_tokens for c in session.events(ev.LlmCalled)) < 10_000


def test_a_signed_summary_of_the_provider_is_sent_back_unchanged(drive):
    session = drive(compaction=Compaction(model=CHEAP, provider=True))
    session.server.add(
        Rule(reply=Reply([compaction("Signed.")]), when=lambda r: bool(r.body.get("compaction")))
    )
    talk(session, 26)
    assert reasons(session) == ["end_turn"] * 26
    assert session.events(ev.ContextCompacted)
    first = request(session)["messages"][0]
    assert first["role"] == "assistant" and first["content"][0]["content"] == "Signed."


def test_S2_5_a_sliding_window_keeps_the_newest_messages_and_mentions_the_omitted_ones(drive):
    session = talk(drive(strategy="sliding_window_8"), 20)
    messages = request(session)["messages"]
    assert reasons(session) == ["end_turn"] * 20 and len(messages) <= 9
    assert "left out" in messages[0]["content"][0]["text"]
    assert "Question 19." in json.dumps(messages)


def test_S2_9_a_restarted_worker_repeats_a_summary_that_was_lost(drive):
    session = drive()
    session.hold = {"context"}
    talk(session, 20)
    assert session.held
    session.restart()
    session.hold = set()
    session.run()
    started = session.events(ev.BackgroundStarted)
    assert started[-1].attempt == 2 and session.events(ev.ContextCompacted)
