"""Turns: how a turn opens, takes messages, closes and ends.

Each test is one rule of the design on a handwritten history: given, when, then.
"""

import pytest

from foldlog.schemas import events as ev
from foldlog.tests.kit.agents import LIMITS
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, opened, with_calls
from foldlog.tests.processors.fold.histories import streaming

LOOK, POST = Use("look", "{}", "a"), Use("post", "{}", "b")
COMPLETE = Use("complete", "{}", "d")
RESTARTED = "w1/2"


def offset_of(s: History, kind: type) -> int:
    return next(step.entry.offset for step in reversed(s.steps) if type(step.entry.event) is kind)


# -- turns own messages ----------------------------------------------------------------------------


def test_a_turn_owns_every_message_until_its_first_step():
    s = opened()
    s.say("one", "m1")
    s.say("two", "m2", when_busy="steer")
    s.say("three", "m3", when_busy="interrupt")
    assert s.turn.owned == ("m1", "m2", "m3") and s.turn.closing is None
    s.answer("yes")
    assert s.turn.number == 1 and s.rows() == []
    assert [s.end_reason(m) for m in ("m1", "m2", "m3")] == ["end_turn"] * 3


def test_a_turn_that_ends_before_its_first_step_consumes_its_messages():
    s = opened()
    s.say("one", "m1")
    s.cancel()
    s.work()
    assert s.end_reason("m1") == "cancelled" and not s.turn.open
    s.say("two", "m2")
    s.work()
    assert s.messages() == [("user", ["one", "two"])], "sent to the model, though never answered"


def test_a_turn_end_with_queued_messages_opens_the_next_turn_at_its_own_offset():
    s = streaming()
    s.say("two", "m2")
    s.say("three", "m3")
    assert s.complete("one is done").accepted
    s.work(before=("N3",))
    assert (s.turn.number, s.turn.open, s.turn.owned) == (2, True, ("m2", "m3"))
    assert s.turn.opened_offset == offset_of(s, ev.TurnEnded)
    s.answer("and two and three")
    assert s.end_reason("m2") == s.end_reason("m3") == "end_turn"
    assert s.messages()[-1] == ("user", ["two", "three"]), "one message, blocks in offset order"


def test_a_terminated_turn_consumes_the_queue_and_nothing_opens_after_it():
    s = streaming()
    s.say("two", "m2")
    s.terminate()
    s.stopped()
    s.work()
    assert not s.turn.open and s.turn.queue == ()
    assert s.end_reason("m1") == s.end_reason("m2") == "terminated"
    assert s.rows() == []


def test_cancel_keeps_the_queue():
    s = streaming()
    s.say("two", "m2")
    s.cancel()
    s.stopped()
    s.work()
    assert s.end_reason("m1") == "cancelled"
    assert s.turn.number == 2 and s.end_reason("m2") == ""


# -- queue, steer, interrupt -----------------------------------------------------------------------


def test_a_steer_joins_the_running_turn_after_the_next_tool_results():
    s = with_calls(LOOK)
    s.say("turn left", "m9", when_busy="steer")
    s.result("1.1.0", "a fork")
    s.work()
    assert s.turn.number == 1 and s.turn.step == 2
    assert s.messages()[-1] == ("user", ["result: a fork", "turn left"])


def test_a_steer_without_tool_results_adds_a_step_to_the_turn():
    s = streaming()
    s.say("and more", "m2", when_busy="steer")
    s.complete("so far")
    s.work()
    assert (s.turn.number, s.turn.step) == (1, 2)
    assert s.messages() == [("user", ["go"]), ("assistant", ["so far"]), ("user", ["and more"])]


def test_a_steer_is_queued_if_the_turn_ends_first():
    s = streaming()
    s.say("too late", "m2", when_busy="steer")
    s.cancel()
    s.stopped()
    s.work()
    assert s.turn.number == 2 and s.end_reason("m1") == "cancelled" and s.end_reason("m2") == ""


def test_an_interrupt_ends_the_turn_and_starts_the_next():
    s = streaming()
    s.say("stop, do this", "m2", when_busy="interrupt")
    assert s.turn.closing.reason == "interrupted" and "A1" in s.rows()
    s.stopped("half a sent")
    s.work()
    assert s.end_reason("m1") == "interrupted" and s.turn.number == 2
    assert s.messages() == [
        ("user", ["go"]),
        ("assistant", ["half a sent"]),
        ("user", ["stop, do this"]),
    ]


def test_a_queued_message_waits_for_the_end_of_the_turn():
    s = with_calls(LOOK)
    s.say("later", "m9")
    s.result("1.1.0")
    s.work()
    assert s.messages()[-1] == ("user", ["result: ok"])
    s.answer("done")
    assert s.turn.number == 2 and s.messages()[-1] == ("user", ["later"])


# -- what closes a turn ----------------------------------------------------------------------------


def test_a_stronger_reason_replaces_a_weaker_one_and_the_grace_runs_from_the_first():
    s = streaming()
    s.say("x", when_busy="interrupt")
    since = s.turn.closing.since
    s.later(1_000).cancel()
    assert (s.turn.closing.reason, s.turn.closing.since) == ("cancelled", since)
    s.later(1_000).terminate()
    assert (s.turn.closing.reason, s.turn.closing.since) == ("terminated", since)
    s.say("y", when_busy="interrupt")
    assert s.turn.closing.reason == "terminated"


def test_constraint_3_an_abort_stops_every_effect_and_ends_the_turn_after_the_grace():
    s = with_calls(LOOK, POST)
    s.cancel()
    assert sorted(s.rows()) == ["A1t", "A1t", "C1"]
    s.later(LIMITS.grace_ms)
    assert sorted(s.rows()) == ["A1t", "A1t", "C2"], "the turn waits no longer"
    s.work()
    assert not s.turn.open


def test_constraint_3_a_claim_that_has_not_begun_is_reported_stopped_at_once():
    s = streaming()
    s.cancel()
    (stopped,) = s.discharge("A1").reported
    assert isinstance(stopped, ev.GenStopped) and s.rows() == ["C2"]


def test_a_cancelled_turn_of_a_dead_worker_ends_at_once():
    s = with_calls(LOOK)
    s.take(RESTARTED)
    s.cancel()
    assert s.rows() == ["C2"]


def test_S2_9_the_chunks_of_a_lost_attempt_are_recovered_before_the_turn_ends():
    s = streaming()
    s.chunk("half a")
    s.take(RESTARTED)
    s.cancel()
    assert sorted(s.rows()) == ["A2", "C1"]
    (begun,) = s.discharge("A2").begun
    assert begun[0] == "recover_chunks"
    s.stopped("half a")
    assert s.rows() == ["C2"]
    s.work()
    assert s.lines("partial")[0].body.inline == b'[{"type":"text","text":"half a"}]'


def test_S1_F_should_stop_ends_the_turn_after_the_step():
    s = with_calls(LOOK)
    s.cancel(mode="after_step")
    s.result("1.1.0")
    assert s.rows() == ["N1s"]
    s.work()
    assert s.end_reason() == "should_stop" and s.state.cancel_token is None


def test_S1_F_a_complete_tool_ends_the_turn_only_if_it_succeeds():
    s = with_calls(COMPLETE)
    s.result("1.1.0", "no", "error")
    s.work()
    assert s.turn.step == 2
    s.complete(COMPLETE)
    s.work()
    s.result("1.2.0", "42")
    s.work()
    assert s.end_reason() == "stop_tool"


def test_S1_F_a_turn_ends_at_the_maximum_of_steps():
    s = opened()
    s.say("go", "m1")
    for step in range(1, LIMITS.steps + 1):
        s.answer(LOOK)
        s.result(f"1.{step}.0")
    s.work()
    assert s.end_reason("m1") == "max_steps"
    ended = s.steps[-1].entry.event
    assert (ended.limit, ended.used) == (LIMITS.steps, LIMITS.steps)
    assert s.views.transcript.lines[-1].text == "4 steps, 4 are allowed"


def test_a_request_over_the_hard_cap_ends_the_turn_and_not_the_session():
    s = opened()
    s.say("long " * 4_000, "m1")
    s.work()
    assert s.end_reason("m1") == "budget_exceeded"
    (ended,) = (e.entry.event for e in s.steps if isinstance(e.entry.event, ev.TurnEnded))
    assert ended.limit == LIMITS.hard_tokens < ended.used
    text = s.views.transcript.lines[-1].text
    assert text == f"{ended.used:,} tokens, {ended.limit:,} are allowed"
    assert s.say("short", "m2").accepted and s.turn.number == 2


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "budget_exceeded"),
        ("something_new", "end_turn"),
    ],
)
def test_every_stop_reason_has_a_reason_for_the_end_of_the_turn(stop, reason):
    s = streaming()
    s.complete("words", stop=stop)
    s.work()
    assert s.end_reason("m1") == reason


def test_a_paused_answer_is_continued_by_another_step():
    s = streaming()
    s.complete("searching", '{"type":"server_tool_use","id":"s","name":"web","input":{}}',
               stop="pause_turn")
    s.work()
    assert (s.turn.step, s.turn.open) == (2, True)
    assert [role for role, _ in s.messages()] == ["user", "assistant"]
