"""Rulings on the events of workers: an event that does not fit the views is ignored, never
refused."""

from dataclasses import replace as changed

import pytest

from foldlog.processors.fold.views import Frozen
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode
from foldlog.schemas.value import replace
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use, complete, thinking
from foldlog.tests.kit.history import History, opened, with_calls
from foldlog.tests.processors.fold.histories import code

LOOK, POST = Use("look", "{}", "a"), Use("post", "{}", "b")
MINUTE = 60_000


def newest(s: History, kind: type):
    """The newest event of a kind in the history."""
    return next(step.entry.event for step in reversed(s.steps) if type(step.entry.event) is kind)


def called() -> History:
    """A session whose first step is decided but not claimed."""
    s = opened()
    s.say()
    return s.work(before=("S1",))


# -- writers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["producer", "tools", "sessions", "consumers", "", "unknown"])
def test_bad_input_an_event_of_another_writer_is_ignored(writer):
    s = called()
    s.work()
    event = complete(s.place, [answers.text("forged")], "end_turn", s.blobs)
    before = s.views
    assert code(s.append(event, writer)) == "writer"
    assert s.views == before
    assert s.append(event, "models").accepted


def test_a_chunk_of_another_writer_is_ignored():
    s = called().work()
    turn, step, attempt = s.place
    chunk = ev.GenChunk(
        turn=turn, step=step, attempt=attempt, seq=0, block=0, kind="text", delta="x"
    )
    assert code(s.append(chunk, "producer")) == "writer"
    assert s.append(chunk, "models").accepted


def test_events_of_workers_for_an_unknown_session_are_ignored():
    s = History().take()
    s.say()
    empty = s.views
    reminder = ev.ReminderAdded(reminder_id="r", text="x")
    prefix = ev.ContextSet(system=ev.Body(inline=b"[]"), tools=ev.Body(inline=b"[]"), sha256="x")
    sent = ev.GenSent(turn=1, step=1, channel="sse")
    paid = complete((1, 1, 1), [], "end_turn", s.blobs)
    events = ((reminder, "sessions"), (prefix, "sessions"), (sent, "consumers"), (paid, "models"))
    for event, writer in events:
        assert code(s.append(event, writer)) == "unknown_session"
        assert s.views == empty
    s.work()
    assert s.rows() == []


# -- law 13 ----------------------------------------------------------------------------------------


def freeze(s: History) -> int:
    """Append a record that is unreadable and must be understood, which freezes the session. Returns
    the record's offset."""
    offset = s.offset
    s.append_raw(b"\xc3\x01newer!!!", (("t", b"NEW_EVENT"), ("w", b"sessions"), ("m", b"1")))
    return offset


def test_law_13_an_unreadable_record_that_must_be_understood_freezes_its_session():
    s = opened()
    offset = freeze(s)
    assert s.views.frozen is not None and s.views.frozen.offset == offset
    before = s.views
    assert code(s.say()) == "frozen" and code(s.cancel()) == "frozen"
    freeze(s)
    assert s.views == before, "the first reason stays"
    assert s.rows() == []


def test_law_13_an_unreadable_record_of_a_known_type_freezes_its_session():
    s = opened()
    s.append_raw(b"\xc3\x01garbage!", (("t", b"MESSAGE_RECEIVED"), ("w", b"producer")))
    assert s.views.frozen is not None


def test_law_13_other_unreadable_records_are_skipped():
    s = opened()
    before = s.views
    assert code(s.append_raw(b"\xc3\x01newer!!!", (("t", b"NEW_HINT"),))) == "unreadable"
    assert code(s.append_raw(None, ())) == "unreadable"
    assert s.views == before


def test_row_G_a_frozen_session_still_answers_refusals_and_reports_doubts():
    s = with_calls(POST)
    s.say(by="bob")
    s.uncertain("1.1.0")
    offset = freeze(s)
    assert sorted(s.rows()) == ["R", "T7"]
    s.work()
    assert s.rows() == []
    assert s.views.frozen is not None and s.views.frozen.offset == offset


def test_law_13_a_fold_that_raises_freezes_only_its_session():
    s = with_calls(LOOK)
    broken = replace(s.views, turn=replace(s.turn, queue=None))
    s.views = broken
    s.say()
    assert isinstance(s.views.frozen, Frozen)
    assert replace(s.views, frozen=None) == broken


def test_law_13_a_frozen_session_stays_frozen_at_its_first_offset():
    s = opened()
    offset = freeze(s)
    s.views = replace(s.views, turn=replace(s.turn, calls=None))
    s.append(ev.HumanNeeded(call="1.1.0", why="x"), "sessions")
    assert s.views.frozen.offset == offset


# -- decisions -------------------------------------------------------------------------------------


def test_law_8_a_decision_on_an_older_basis_is_stale_and_decided_again():
    s = opened()
    s.say("one")
    decided = [(e, r) for e, r in written(s, "N3")]
    s.say("two")
    assert [code(s.append(event, role)) for event, role in decided] == ["accepted", "stale"]
    assert s.rows() == ["N3"]
    s.work()
    assert s.messages() == [("user", ["one", "two"])]


def written(s: History, row: str):
    """The events that the holder would write for a row, each with its role."""
    records, views, steps, offset, at = len(s.records), s.views, len(s.steps), s.offset, s.at
    discharged = s.discharge(row)
    del s.records[records:], s.steps[steps:]
    s.views, s.offset, s.at = views, offset, at
    return discharged.written


def test_law_8_a_tool_decision_on_an_older_basis_is_stale():
    s = opened()
    s.say("go")
    s.work()
    s.complete(LOOK)
    decided = written(s, "T1")
    s.say("more")
    assert [code(s.append(event, role)) for event, role in decided] == ["stale"]
    assert s.rows() == ["T1"]


def test_law_8_a_claim_of_another_decision_is_stale():
    s = called()
    assert code(s.append(newest(s, ev.LlmCalled), "sessions")) == "duplicate"
    start = written(s, "S1")[0][0]
    other = ev.GenStart(**{**fields(start), "called": b"another."})
    assert code(s.append(other, "models")) == "stale"
    assert s.append(start, "models").accepted
    assert code(s.append(start, "models")) == "duplicate"


def fields(event) -> dict:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def test_a_decision_is_void_while_its_turn_closes_and_late_afterwards():
    s = called()
    decided, claimed = newest(s, ev.LlmCalled), written(s, "S1")[0][0]
    s.cancel()
    step_2 = ev.LlmCalled(**{**fields(decided), "step": 2})
    assert code(s.append(step_2, "sessions")) == "void"
    assert code(s.append(claimed, "models")) == "void"
    s.work()
    assert code(s.append(decided, "sessions")) == "late"
    assert code(s.append(claimed, "models")) == "late"


def test_a_turn_end_with_a_reason_that_does_not_hold_is_stale():
    s = called()
    place = {"turn": 1, "basis": s.turn.basis, "views_sha": b""}
    for reason in ("end_turn", "failed", "cancelled", "max_steps", "terminated", "budget_exceeded"):
        event = ev.TurnEnded(reason=reason, **place)
        assert code(s.append(event, "sessions")) == "stale", reason
    s.cancel()
    place["basis"] = s.turn.basis
    assert code(s.append(ev.TurnEnded(reason="end_turn", **place), "sessions")) == "stale"
    assert s.append(ev.TurnEnded(reason="cancelled", **place), "sessions").accepted


# -- outcomes --------------------------------------------------------------------------------------


def test_only_the_newest_attempt_of_a_model_call_counts_but_all_usage_does():
    s = called().work()
    first = s.place
    s.take("w2/1").later(3 * MINUTE).work()
    assert s.place == (1, 1, 2)
    late_answer = complete(first, [answers.text("from the dead worker")], "end_turn", s.blobs)
    assert code(s.append(late_answer, "models")) == "superseded"
    assert [row.key for row in s.views.ledger.spent] == [(1, 1, 1)]
    assert s.complete("from the new one").accepted
    assert len(s.views.ledger.spent) == 2 and len(s.lines("answer")) == 1


def test_the_first_outcome_of_any_attempt_of_a_tool_call_counts():
    s = with_calls(LOOK)
    s.take("w2/1").later(3 * MINUTE).work()
    assert s.call("1.1.0").attempt == 2
    assert s.result("1.1.0", "from the first", attempt=1).accepted
    assert code(s.result("1.1.0", "from the second", attempt=2)) == "duplicate"


def test_an_outcome_of_an_unclaimed_attempt_is_an_unknown_call():
    s = with_calls(LOOK)
    assert code(s.result("1.1.0", attempt=2)) == "unknown_call"
    assert code(s.append(answers.result((7, 1, 0), 1, "x"), "tools")) == "unknown_call"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [("ok", "duplicate"), ("cancelled", "duplicate"), ("not_run", "accepted")],
)
def test_an_allowed_call_may_end_without_a_claim_only_as_not_run(outcome, expected):
    s = called().work()
    s.complete(LOOK)
    s.work(before=("T3",))
    assert code(s.result("1.1.0", outcome=outcome, attempt=1)) == "unknown_call"
    assert code(s.result("1.1.0", outcome=outcome, attempt=0)) == expected
    assert s.rows() == (["N3"] if expected == "accepted" else ["T3"])


def test_calls_of_a_truncated_answer_are_dropped():
    s = called().work()
    whole = complete(s.place, [LOOK], "tool_use", s.blobs)
    cut = ev.GenComplete(**{**fields(whole), "stop_reason": "max_tokens"})
    assert s.append(cut, "models").accepted
    assert s.turn.calls == ()
    s.work().say("again")
    s.work()
    assert s.messages() == [("user", ["hi", "again"])], "the cut call is in no request"


def test_calls_of_an_answer_to_a_closing_turn_are_not_run():
    s = called().work()
    s.cancel()
    assert s.complete(thinking("hm"), "so", LOOK, POST).accepted
    assert [call.outcome for call in s.turn.calls] == ["not_run", "not_run"]
    s.work().say("on")
    s.work()
    assert [role for role, _ in s.messages()] == ["user", "assistant", "user"]
    assert s.messages()[2][1][0].startswith("error: Not run")


def test_equal_events_have_equal_records():
    s = called().work()
    start = newest(s, ev.GenStart)
    assert encode(start) == encode(ev.GenStart(**fields(start)))


# -- takeovers -------------------------------------------------------------------------------------

# The epoch of the forged event relative to the claim's, and the ruling.
EPOCHS = [(-1, "superseded"), (0, "superseded"), (1, "accepted")]


@pytest.mark.parametrize(("newer", "expected"), EPOCHS)
def test_law_6_a_model_call_is_taken_over_under_a_newer_epoch_only(newer, expected):
    """The test forges the GEN_RESUMED, because a worker takes over only under its own, newer
    epoch."""
    s = called().work()
    start = newest(s, ev.GenStart)
    forged = fields(start) | {"owner": "w2/1", "attempt": 2, "epoch": start.epoch + newer}
    resumed = ev.GenResumed(**forged, strategy="replace", prior_seq=-1)
    assert code(s.append(resumed, "models")) == expected
    owner = s.turn.generation.claim.owner
    assert (owner == "w2/1") == (expected == "accepted")


@pytest.mark.parametrize(("newer", "expected"), EPOCHS)
@pytest.mark.parametrize("use", [LOOK, POST], ids=["pure", "once"])
def test_law_6_a_tool_call_is_taken_over_under_a_newer_epoch_only(use, newer, expected):
    """The test forges the TOOL_STARTED. If the fold accepted it, a `once` tool would run a second
    time."""
    s = with_calls(use)
    start = newest(s, ev.ToolStarted)
    forged = changed(start, owner="w2/1", attempt=2, epoch=start.epoch + newer)
    assert code(s.append(forged, "tools")) == expected
    assert (s.call("1.1.0").claim.owner == "w2/1") == (expected == "accepted")
