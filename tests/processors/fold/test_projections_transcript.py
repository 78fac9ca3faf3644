"""The views `messages`, `transcript` and `ledger`, and whole sessions, on handwritten histories."""

import pytest

from foldlog.processors.fold.projections.turn_view import REFUSALS_MAX
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.kit.agents import LIMITS
from foldlog.tests.kit.answers import Use, complete
from foldlog.tests.kit.history import History, opened, with_calls

LOOK, POST, CHARGE = Use("look", "{}", "a"), Use("post", "{}", "b"), Use("charge", '{"cents":3}')


def kinds(s: History) -> list[str]:
    """The lines of the transcript, each as kind or kind:name."""
    return [f"{line.kind}:{line.name}" if line.name else line.kind for line in _lines(s)]


def _lines(s: History):
    return list(s.views.transcript.lines)


# -- messages --------------------------------------------------------------------------------------


def test_S0_10_a_message_sent_twice_has_one_turn_and_one_answer():
    s = opened()
    s.say("hello", "m1")
    s.say("hello", "m1")
    s.answer("hi there")
    s.say("hello", "m1")
    rows = [row for row in s.views.messages.progress if row.message_id == "m1"]
    assert [(row.turn, row.reason) for row in rows] == [(1, ""), (1, "end_turn")]
    assert kinds(s) == ["message:m1", "answer:end_turn", "ended:end_turn"]


def test_a_refused_message_changes_only_the_refusals():
    s = opened()
    s.say("hello", "m1")
    s.say("other", "m1")
    s.say("hello", "m2", by="bob")
    assert len(s.views.messages.received) == 1 and kinds(s) == ["message:m1"]
    codes = [refusal.code for refusal in s.turn.refusals]
    assert codes == ["message_id_reused", "not_your_session"]


def test_the_newest_64_refusals_are_stored_and_older_ones_counted():
    s = opened()
    for _ in range(REFUSALS_MAX + 3):
        s.lock("not an id")
    assert len(s.turn.refusals) == REFUSALS_MAX and s.turn.refusals_dropped == 3
    assert s.turn.refusals[-1].offset == s.offset - 1


def test_a_refusal_is_answered_once_with_its_offset_code_and_detail():
    s = opened()
    s.lock("p1")
    offset = s.offset
    ruling = s.lock("p2")
    s.discharge("R")
    answer = s.steps[-1].entry.event
    assert (answer.offset, answer.code, answer.detail) == (offset, *ruling[1:])
    assert s.append(answer, "sessions").code == "duplicate" and s.rows() == []


# -- transcript ------------------------------------------------------------------------------------


def test_S2_9_the_transcript_has_takeovers_but_no_superseded_attempts():
    s = opened()
    s.say("go", "m1")
    s.work()
    first = s.place
    s.take("w1/2").work()
    s.append(complete(first, ["{}"], "end_turn", s.blobs), "models")
    s.fail()
    s.later(1).answer("whole")
    assert kinds(s) == [
        "message:m1", "attempt:resumed", "attempt:failed", "answer:end_turn", "ended:end_turn",
    ]


def test_the_transcript_has_every_event_of_a_call():
    s = with_calls(CHARGE, POST, LOOK)
    s.allow("1.1.0")
    s.work()
    s.result("1.1.0", "paid")
    s.uncertain("1.1.1")
    s.result("1.1.2", "seen")
    s.work()
    s.resolve("1.1.1", "happened", "I have it")
    lines = [(line.kind, line.call, line.text) for line in _lines(s) if line.call]
    assert lines == [
        ("asks", "1.1.0", ""),
        ("call", "1.1.1", ""),
        ("call", "1.1.2", ""),
        ("approval", "1.1.0", "allow"),
        ("result", "1.1.0", "ok"),
        ("doubt", "1.1.1", "the connection was lost"),
        ("result", "1.1.2", "ok"),
        ("doubt", "1.1.1", "find out whether post had its effect"),
        ("resolved", "1.1.1", "happened"),
    ]


def test_the_transcript_has_phases_projects_and_the_end_of_the_session():
    s = opened()
    s.trigger("start_build")
    s.lock("p1")
    s.terminate()
    assert kinds(s) == ["phase:start_build", "project:p1", "terminated"]


def test_S2_4_an_answer_and_its_delivery_are_two_facts():
    s = opened()
    s.say("go")
    s.answer("hi")
    assert len(s.lines("answer")) == 1 and len(s.views.transcript.sent) == 0
    sent = ev.GenSent(turn=1, step=1, channel="sse")
    assert s.append(sent, "consumers").accepted
    assert s.append(sent, "consumers").code == "duplicate"
    assert s.append(ev.GenSent(turn=1, step=1, channel="tty"), "consumers").accepted
    assert [row.channel for row in s.views.transcript.sent] == ["sse", "tty"]


# -- ledger ----------------------------------------------------------------------------------------


def test_S1_G_every_attempt_is_counted_once_even_failed_and_stopped_ones():
    s = opened()
    s.say("go")
    s.work()
    s.fail()
    s.later(1).work()
    s.stopped("half")
    s.later(1).work()
    s.complete("whole")
    s.again()
    rows = [(row.key, row.outcome, row.input_tokens) for row in s.views.ledger.spent]
    assert rows == [
        ((1, 1, 1), "failed", 7), ((1, 1, 2), "stopped", 5), ((1, 1, 3), "complete", 100),
    ]
    ledger = s.views.ledger
    assert ledger.input_tokens == 112 and ledger.output_tokens == 1 + 2 + 10
    assert ledger.cache_read_tokens == 3 and ledger.cache_write_tokens == 3 * (2 + 3)


def test_an_outcome_without_usage_costs_nothing():
    s = opened()
    s.say("go")
    s.work()
    s.cancel()
    s.discharge("A1")
    assert len(s.views.ledger.spent) == 0


# -- the whole session -----------------------------------------------------------------------------


def test_S1_G_constraint_4_one_event_changes_every_view_at_the_end_of_a_turn():
    s = opened()
    s.say("go", "m1")
    s.work()
    s.complete("hi")
    before = view_hashes(s.views)
    s.discharge("N1")
    after = view_hashes(s.views)
    assert isinstance(s.steps[-1].entry.event, ev.TurnEnded)
    assert {name for name in before if before[name] != after[name]} == {
        "turn", "transcript", "messages", "background",
    }
    assert s.end_reason("m1") == "end_turn" and not s.turn.open


def test_S2_2_only_the_order_of_the_log_counts_and_not_timestamps():
    s = with_calls(LOOK, POST)
    s.result("1.1.1")
    s.result("1.1.0")
    s.answer("done").say("more")
    views = initial("s1")
    for number, step in enumerate(s.steps):
        backwards = replace(step.entry, at=10_000 - number)
        views, ruling = fold(views, backwards)
        assert ruling == step.ruling
    assert views.turn.basis == s.turn.basis and views.context.fragments == s.views.context.fragments
    assert [x.message_id for x in views.messages.received] == [
        x.message_id for x in s.views.messages.received
    ]


def test_S0_5_two_sessions_of_one_user_share_nothing():
    one, other = opened("tab-a"), opened("tab-b")
    one.say("go")
    before = view_hashes(other.views)
    one.work().cancel()
    assert one.turn.closing and view_hashes(other.views) == before
    assert one.state.user_id == other.state.user_id


@pytest.mark.parametrize("reason", ["end_turn", "cancelled"])
def test_S0_9_a_turn_of_a_dead_worker_has_a_pending_tool_and_resumes_or_ends(reason):
    s = with_calls(LOOK)
    assert s.state.pending_tool.call == "1.1.0"
    s.take("w1/2")
    if reason == "cancelled":
        s.cancel()
        s.work()
    else:
        s.work()
        s.result("1.1.0")
        s.answer("all clear")
    assert not s.turn.open and s.end_reason() == reason and s.state.pending_tool is None


def test_S2_10_a_terminated_session_stays_readable_and_another_can_open():
    s = opened()
    s.say("go")
    s.answer("hi")
    s.terminate()
    assert len(s.lines("answer")) == 1 and s.rows() == []
    assert opened("s2").say("go").accepted


def test_limits_come_from_the_agent():
    assert LIMITS.steps == 4 and History().agent.limits is LIMITS
