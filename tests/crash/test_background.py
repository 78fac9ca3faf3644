"""Sessions that compact, on a real Kafka: which turns wait, which events end background work, and
what is paid twice."""

import signal

import pytest

from foldlog.schemas import events as ev
from foldlog.tests.crash.agents import CHEAP
from foldlog.tests.crash.rounds import Play
from foldlog.tests.crash.scenes import Person, waits
from foldlog.tests.crash.script import gate_of
from foldlog.tests.crash.witnesses_background import counted

pytestmark = [pytest.mark.broker, pytest.mark.crash]


def _offsets(person: Person, kind: type) -> list[int]:
    return [entry.offset for entry in counted(person, kind)]


def _checkpoints(person: Person, turn: int) -> list[int]:
    called = (event for event in person.watched.counted(ev.LlmCalled) if event.turn == turn)
    return list(dict.fromkeys(e.checkpoint for e in called if e.checkpoint is not None))


def test_lane_B_only_a_request_that_would_not_fit_waits_for_a_summary(rig):
    with rig.round() as (stage, handle):
        play = Play(stage, handle, cast=("haul", "shorts", "returns", "patient", "brim"))
        play.settle()
        play.begin()
        assert play.rest() == []
        haul, shorts, returns, patient, brim = play.people
        assert len(_checkpoints(haul, turn=1)) >= 2, "a summary of a summary, in one turn"
        kinds = {event.kind for event in shorts.watched.counted(ev.BackgroundStarted)}
        upto = [event.compacted_upto for event in shorts.watched.counted(ev.LlmCalled)]
        assert "result" in kinds and upto[0] == -1 < upto[-1]
        (made,) = _offsets(returns, ev.ContextCompacted)
        assert made < _offsets(returns, ev.MessageReceived)[1], "before a turn needs it"
        assert _checkpoints(returns, turn=2) == [made]
        # The cheap model's gate stays closed until the first turn is over.
        assert _offsets(patient, ev.BackgroundStarted)[0] < _offsets(patient, ev.TurnEnded)[0]
        assert _offsets(patient, ev.TurnEnded)[0] < _offsets(patient, ev.ContextCompacted)[0]
        # The gate stays closed until the second message, whose turn needs the summary (N2w).
        (made,) = _offsets(brim, ev.ContextCompacted)
        assert _offsets(brim, ev.MessageReceived)[1] < made
        assert _checkpoints(brim, turn=2) == [made]


def test_constraint_3_a_cancel_ends_a_hanging_summary(rig):
    with rig.round() as (stage, handle):
        play = Play(stage, handle, cast=("left",))
        (person,) = play.people
        play.settle()
        play.begin()
        facts = {"canary": person.session_id}
        waits = lambda: stage.server.journal.entries("waiting", **facts)  # noqa: E731
        play.until("the cheap model waits", waits)
        stage.sessions.cancel(person.session_id, turn=1, cancel_id="c1")
        play.until("the work is over", lambda: person.watched.counted(ev.BackgroundDone))
        (done,) = person.watched.counted(ev.BackgroundDone)
        assert (done.ok, done.why) == (False, "it was stopped")
        closed = lambda: stage.server.journal.count("client_gone", n=waits()[0]["n"])  # noqa: E731
        play.until("its call is over too", closed)
        stage.server.open(gate_of(person.session_id))
        assert play.rest() == []
        made = {event.upto for event in person.watched.counted(ev.ContextCompacted)}
        assert done.upto not in made, "only a later one, of the idle session, may exist"
        assert [turn.reason for turn in person.watched.counted(ev.TurnEnded)] == ["cancelled"]


def test_N2_a_worker_that_ends_cleanly_leaves_its_summary_to_the_next(rig):
    with rig.round() as (stage, handle):
        play = Play(stage, handle, cast=("full",))
        (person,) = play.people
        play.settle()
        play.begin()
        play.until("a turn waits for the summary", lambda: waits(person.watched))
        handle.signal(signal.SIGTERM)
        assert handle.await_end().code == 0
        handle.start()
        stage.server.open(gate_of(person.session_id))
        assert play.rest() == []
        assert [turn.reason for turn in person.watched.counted(ev.TurnEnded)] == ["end_turn"] * 2


@pytest.mark.parametrize(
    "at", ["kept:1", *(pytest.param(at, marks=pytest.mark.full) for at in ("made:1", "kept:2"))]
)
def test_S2_9_a_summary_on_disk_or_in_the_log_is_not_requested_again(at, rig):
    with rig.round() as (stage, handle):
        play = Play(stage, handle, f"background.{at}", ("returns",))
        assert play.run().wrong == []
        (person,) = play.people
        assert stage.server.journal.count("accepted", canary=person.session_id, model=CHEAP) == 1
        claims = person.watched.counted(ev.BackgroundStarted)
        assert len(claims) == (2 if at.endswith(":1") else 1)
