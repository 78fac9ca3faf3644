"""Rulings on what workers write: what does not fit the views is ignored and never refused."""

from dataclasses import replace as changed

import pytest

from foldlog.processors.fold.views import Frozen
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode
from foldlog.schemas.value import replace
from foldlog.tests.laws import answers
from foldlog.tests.laws.answers import Use, complete, thinking
from foldlog.tests.laws.history import History, opened, with_calls

LOOK, POST = Use("look", "{}", "a"), Use("post", "{}", "b")
MINUTE = 60_000


def word(ruling) -> str:
    return ruling.code or ruling.verdict


def newest(s: History, kind: type):
    """The newest event of a kind in the history."""
    return next(step.entry.event for step in reversed(s.steps) if type(step.entry.event) is kind)


def called() -> History:
    """A session whose first step was decided, not claimed."""
    s = opened()
    s.say()
    return s.work(before=("S1",))


# -- writers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["producer", "tools", "sessions", "consumers", "", "nobody"])
def test_bad_input_an_event_of_a_writer_that_is_not_named_for_it_is_ignored(writer):
    s = called()
    s.work()
    event = complete(s.place, [answers.text("forged")], "end_turn", s.blobs)
    before = s.views
    assert word(s.append(event, writer)) == "writer"
    assert s.views == before
    assert s.append(event, "models").accepted


def test_a_chunk_counts_from_the_models_role_only():
    s = called().work()
    turn, step, attempt = s.place
    chunk = ev.GenChunk(
        turn=turn, step=step, attempt=attempt, seq=0, block=0, kind="text", delta="x"
    )
    assert word(s.append(chunk, "producer")) == "writer"
    assert s.append(chunk, "models").accepted


def test_an_unknown_session_takes_no_work_but_the_answers_it_owes():
    s = History().take()
    s.say()
    empty = s.views
    reminder = ev.ReminderAdded(reminder_id="r", text="x")
    prefix = ev.ContextSet(system=ev.Body(inline=b"[]"), tools=ev.Body(inline=b"[]"), sha256="x")
    sent = ev.GenSent(turn=1, step=1, channel="sse")
    paid = complete((1, 1, 1), [], "end_turn", s.blobs)
    works = ((reminder, "sessions"), (prefix, "sessions"), (sent, "consumers"), (paid, "models"))
    for event, writer in works:
        assert word(s.append(event, writer)) == "unknown_session"
        assert s.views == empty
    s.work()
    assert s.rows() == []


# -- law 13 ----------------------------------------------------------------------------------------


def freeze(s: History) -> int:
    """A record that must be understood and can not be read; its offset."""
    place = s.offset
    s.append_raw(b"\xc3\x01newer!!!", (("t", b"NEW_EVENT"), ("w", b"sessions"), ("m", b"1")))
    return place


def test_law_13_what_must_be_understood_freezes_its_session_where_it_lies():
    s = opened()
    place = freeze(s)
    assert s.views.frozen is not None and s.views.frozen.offset == place
    before = s.views
    assert word(s.say()) == "frozen" and word(s.cancel()) == "frozen"
    freeze(s)
    assert s.views == before, "the first reason stays"
    assert s.rows() == []


def test_law_13_a_known_type_that_can_not_be_read_freezes_whatever_its_header_says():
    s = opened()
    s.append_raw(b"\xc3\x01garbage!", (("t", b"MESSAGE_RECEIVED"), ("w", b"producer")))
    assert s.views.frozen is not None


def test_law_13_other_unknown_events_pass():
    s = opened()
    before = s.views
    assert word(s.append_raw(b"\xc3\x01newer!!!", (("t", b"NEW_HINT"),))) == "unreadable"
    assert word(s.append_raw(None, ())) == "unreadable"
    assert s.views == before


def test_row_G_a_frozen_session_still_answers_what_it_owed_and_tells_of_its_doubts():
    s = with_calls(POST)
    s.say(by="bob")
    s.uncertain("1.1.0")
    place = freeze(s)
    assert sorted(s.rows()) == ["R", "T7"]
    s.work()
    assert s.rows() == []
    assert s.views.frozen is not None and s.views.frozen.offset == place


def test_law_13_a_fold_that_raises_freezes_only_its_session():
    s = with_calls(LOOK)
    broken = replace(s.views, turn=replace(s.turn, queue=None))
    s.views = broken
    s.say()
    assert isinstance(s.views.frozen, Frozen)
    assert replace(s.views, frozen=None) == broken


def test_law_13_the_place_where_a_session_froze_is_kept_whatever_comes_later():
    s = opened()
    place = freeze(s)
    s.views = replace(s.views, turn=replace(s.turn, calls=None))
    s.append(ev.HumanNeeded(call="1.1.0", why="x"), "sessions")
    assert s.views.frozen.offset == place


# -- decisions -------------------------------------------------------------------------------------


def test_law_8_a_decision_on_an_older_basis_is_stale_and_wake_decides_anew():
    s = opened()
    s.say("one")
    late = [(e, r) for e, r in written(s, "N3")]
    s.say("two")
    assert [word(s.append(event, role)) for event, role in late] == ["accepted", "stale"]
    assert s.rows() == ["N3"]
    s.work()
    assert s.messages() == [("user", ["one", "two"])]


def written(s: History, row: str):
    """What the holder would write for a row, without writing it."""
    records, views, steps, offset, at = len(s.records), s.views, len(s.steps), s.offset, s.at
    done = s.discharge(row)
    del s.records[records:], s.steps[steps:]
    s.views, s.offset, s.at = views, offset, at
    return done.written


def test_law_8_a_tool_decision_on_an_older_basis_is_stale():
    s = opened()
    s.say("go")
    s.work()
    s.complete(LOOK)
    late = written(s, "T1")
    s.say("more")
    assert [word(s.append(event, role)) for event, role in late] == ["stale"]
    assert s.rows() == ["T1"]


def test_law_8_a_claim_is_bound_to_the_decision_it_was_made_for():
    s = called()
    assert word(s.append(newest(s, ev.LlmCalled), "sessions")) == "duplicate"
    start = written(s, "S1")[0][0]
    other = ev.GenStart(**{**fields(start), "called": b"another."})
    assert word(s.append(other, "models")) == "stale"
    assert s.append(start, "models").accepted
    assert word(s.append(start, "models")) == "duplicate"


def fields(event) -> dict:
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def test_a_decision_for_a_turn_that_ended_is_late_and_one_for_a_closing_turn_is_void():
    s = called()
    decided, claimed = newest(s, ev.LlmCalled), written(s, "S1")[0][0]
    s.cancel()
    step_2 = ev.LlmCalled(**{**fields(decided), "step": 2})
    assert word(s.append(step_2, "sessions")) == "void"
    assert word(s.append(claimed, "models")) == "void"
    s.work()
    assert word(s.append(decided, "sessions")) == "late"
    assert word(s.append(claimed, "models")) == "late"


def test_a_turn_can_not_end_for_a_reason_that_is_not_true():
    s = called()
    place = {"turn": 1, "basis": s.turn.basis, "views_sha": b""}
    for reason in ("end_turn", "failed", "cancelled", "max_steps", "terminated", "budget_exceeded"):
        event = ev.TurnEnded(reason=reason, **place)
        assert word(s.append(event, "sessions")) == "stale", reason
    s.cancel()
    place["basis"] = s.turn.basis
    assert word(s.append(ev.TurnEnded(reason="end_turn", **place), "sessions")) == "stale"
    assert s.append(ev.TurnEnded(reason="cancelled", **place), "sessions").accepted


# -- outcomes --------------------------------------------------------------------------------------


def test_for_generations_only_the_newest_attempt_counts_but_every_attempt_is_paid_for():
    s = called().work()
    first = s.place
    s.take("w2/1").later(3 * MINUTE).work()
    assert s.place == (1, 1, 2)
    late = complete(first, [answers.text("of the dead")], "end_turn", s.blobs)
    assert word(s.append(late, "models")) == "superseded"
    assert [row.key for row in s.views.ledger.spent] == [(1, 1, 1)]
    assert s.complete("of the living").accepted
    assert len(s.views.ledger.spent) == 2 and len(s.lines("answer")) == 1


def test_for_tools_the_first_outcome_of_any_attempt_wins():
    s = with_calls(LOOK)
    s.take("w2/1").later(3 * MINUTE).work()
    assert s.call("1.1.0").attempt == 2
    assert s.result("1.1.0", "from the first", attempt=1).accepted
    assert word(s.result("1.1.0", "from the second", attempt=2)) == "duplicate"


def test_an_outcome_of_an_attempt_that_was_never_claimed_is_unknown():
    s = with_calls(LOOK)
    assert word(s.result("1.1.0", attempt=2)) == "unknown_call"
    assert word(s.append(answers.result((7, 1, 0), 1, "x"), "tools")) == "unknown_call"


def test_an_allowed_call_may_end_without_a_claim_but_only_as_not_run_or_error():
    for outcome, said in (("ok", "duplicate"), ("cancelled", "duplicate"), ("not_run", "accepted")):
        s = called().work()
        s.complete(LOOK)
        s.work(before=("T3",))
        assert word(s.result("1.1.0", outcome=outcome, attempt=1)) == "unknown_call"
        assert word(s.result("1.1.0", outcome=outcome, attempt=0)) == said
    assert s.call("1.1.0").outcome == "not_run" and s.rows() == ["N3"]


def test_calls_count_only_when_the_model_stopped_to_have_them_run():
    s = called().work()
    asked_for = complete(s.place, [LOOK], "tool_use", s.blobs)
    cut = ev.GenComplete(**{**fields(asked_for), "stop_reason": "max_tokens"})
    assert s.append(cut, "models").accepted
    assert s.turn.calls == ()
    s.work().say("again")
    s.work()
    assert s.messages() == [("user", ["hi", "again"])], "the cut call is in no request"


def test_an_answer_that_comes_while_the_turn_closes_leaves_its_calls_not_run():
    s = called().work()
    s.cancel()
    assert s.complete(thinking("hm"), "so", LOOK, POST).accepted
    assert [call.outcome for call in s.turn.calls] == ["not_run", "not_run"]
    s.work().say("on")
    s.work()
    assert [role for role, _ in s.messages()] == ["user", "assistant", "user"]
    assert s.messages()[2][1][0].startswith("error: Not run")


def test_the_record_of_an_event_is_what_the_fold_compares():
    s = called().work()
    start = newest(s, ev.GenStart)
    assert encode(start) == encode(ev.GenStart(**fields(start)))


# -- takeovers -------------------------------------------------------------------------------------

# By how much the forged epoch is newer than that of the claim it takes over.
EPOCHS = [(-1, "superseded"), (0, "superseded"), (1, "accepted")]


@pytest.mark.parametrize(("newer", "said"), EPOCHS)
def test_law_6_a_model_call_is_taken_over_under_a_newer_epoch_only(newer, said):
    """A foreign or forged GEN_RESUMED: honest workers take over under their own, newer epoch."""
    s = called().work()
    start = newest(s, ev.GenStart)
    forged = fields(start) | {"owner": "w2/1", "attempt": 2, "epoch": start.epoch + newer}
    resumed = ev.GenResumed(**forged, strategy="replace", prior_seq=-1)
    assert word(s.append(resumed, "models")) == said
    owner = s.turn.generation.claim.owner
    assert (owner == "w2/1") == (said == "accepted")


@pytest.mark.parametrize(("newer", "said"), EPOCHS)
@pytest.mark.parametrize("use", [LOOK, POST], ids=["pure", "once"])
def test_law_6_a_tool_call_is_taken_over_under_a_newer_epoch_only(use, newer, said):
    """A forged or foreign TOOL_STARTED: a second run of a `once` tool would be begun."""
    s = with_calls(use)
    start = newest(s, ev.ToolStarted)
    forged = changed(start, owner="w2/1", attempt=2, epoch=start.epoch + newer)
    assert word(s.append(forged, "tools")) == said
    assert (s.call("1.1.0").claim.owner == "w2/1") == (said == "accepted")
