"""Two workers: the second joins, or the first is stopped past its session timeout and resumes as a
zombie.

Takeovers between workers wait for a claim's deadline and the margin (law 6), so the agent of these
scenes has short deadlines. The fold must ignore the events that the zombie still writes.
"""

import signal

import pytest

from foldlog.processors.store.views_codec import view_parts
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.rounds import Play
from foldlog.tests.crash.zombies import STOPS, are_done, hasty, shared, stopped_behind
from foldlog.tests.kit import stopped_process

pytestmark = [pytest.mark.broker, pytest.mark.crash]

CLAIMS = (ev.GenStart, ev.GenResumed, ev.ToolStarted)


def _claims_of(play: Play, worker: str) -> list:
    return [
        event
        for person in play.people
        for kind in CLAIMS
        for event in person.watched.counted(kind)
        if event.owner.startswith(f"{worker}.")
    ]


def _without_ledger(play: Play) -> dict[str, dict[str, bytes]]:
    """Every view of every session except the usage ledger, which counts the cost of late
    answers."""
    parts = {p.session_id: dict(view_parts(p.watched.views)) for p in play.people}
    return {name: held for name, held in parts.items() if held.pop("ledger")}


def _with_ignored_results(play: Play) -> set[str]:
    """The sessions in which the outcome of a tool was ignored."""
    return {
        person.session_id
        for person in play.people
        for ruled in person.watched.events
        if isinstance(ruled.entry.event, ev.ToolResult) and ruled.verdict == "ignored"
    }


def test_law_7_a_second_worker_joins_in_the_middle_of_everything(stage):
    first, second = stage.handle("w1"), stage.handle("w2")
    first.start()
    play = hasty(Play(stage, first, cast=("tools", "slow", "talk", "steer", "cancel", "begun")))
    play.await_taken("")
    play.begin()
    slow, gated = play.people[1], play.people[-1]
    play.until("a tool runs", lambda: stage.ledger.lines("slow_charge"))
    second.start()
    play.until("each holds its share", lambda: shared(stage, 2))
    stage.ledger.release(slow.session_id)
    stage.server.open(gated.session_id)
    play.until("everybody is done", lambda: are_done(play))
    assert witnesses.violations(stage, play.people) == []
    again = hasty(Play(stage, first, cast=("tools", "talk", "approve", "twice")))
    again.begin()
    again.until("everybody is done", lambda: are_done(again))
    assert witnesses.violations(stage, again.people) == []
    assert first.stuck() == second.stuck() == {}


def _outcomes(person) -> list:
    """The outcomes of the first turn's effects, including the ignored ones."""
    ends = (ev.GenStopped, ev.ToolResult)
    return [h for h in person.watched.events if isinstance(h.entry.event, ends)]


def test_constraint_3_a_cancel_reaches_effects_of_the_partitions_old_owner(stage):
    """The defect: the old owner was not notified, so its tools ran for another 25 s, and a stream
    that nobody needed was billed."""
    first, second = stage.handle("w1"), stage.handle("w2")
    first.start()
    play = Play(stage, first, cast=("held", "begun") * 6)
    play.await_taken("")
    play.begin()
    journal = stage.server.journal
    play.until("the tools run", lambda: len(stage.ledger.lines("hold")) == 6)
    play.until("the model waits", lambda: journal.count("waiting") == 6)
    second.start()
    play.until("each holds its share", lambda: shared(stage, 2))
    moved = [
        person
        for person in play.people
        if stage.holders[person.watched.partition].holder("tools").owner.startswith("w2.")
    ]
    assert {person.scene.model for person in moved} == {"hold", "begun"}, "both kinds have moved"
    for person in play.people:
        stage.sessions.cancel(person.session_id, turn=1, cancel_id=person.session_id)
    play.until("every effect has ended", lambda: all(map(_outcomes, play.people)))
    play.until("the provider's streams were closed", lambda: journal.count("client_gone") == 6)
    play.until("everybody is done", lambda: are_done(play))
    ends = [event for p in play.people for event in p.watched.counted(ev.TurnEnded)]
    assert {event.reason for event in ends} == {"cancelled"}
    assert first.stuck() == second.stuck() == {}


def test_law_6_a_killed_workers_call_is_in_doubt_long_before_its_deadline(stage):
    """The defect: the call was in doubt only after its timeout and the margin (130 s), although the
    lock of the dead owner was free."""
    first, second = stage.handle("w1"), stage.handle("w2")
    first.start()
    play = Play(stage, first, cast=("slow", "held"))
    once, _ = play.people
    play.await_taken("")
    play.begin()
    play.until("a tool runs", lambda: stage.ledger.lines("slow_charge"))
    play.until("another tool runs", lambda: stage.ledger.lines("hold"))
    play.until("its claim is read", lambda: once.watched.counted(ev.ToolStarted))
    deadline = once.watched.counted(ev.ToolStarted)[0].deadline
    first.kill()
    second.start()
    play.until("the other holds every partition", lambda: stage.owner().startswith("w2."))
    play.until("the call is in doubt", lambda: once.watched.counted(ev.ToolFailedUncertain))
    play.until("the pure tool runs again", lambda: len(stage.ledger.lines("hold")) == 2)
    assert stage.newest_ms < deadline, "neither waited for its owner's deadline"
    for person in play.people:
        stage.ledger.release(person.session_id)
    play.until("everybody is done", lambda: are_done(play))
    assert len(stage.ledger.lines("slow_charge")) == 1
    assert witnesses.violations(stage, play.people) == []


def test_F5_everything_that_a_zombie_writes_is_ignored(stage):
    zombie, heir = stage.handle("w1"), stage.handle("w2")
    zombie.start()
    play = hasty(Play(stage, zombie, cast=("begun", "middle", "slow", "held", "approve")))
    begun, middle, slow, held, _ = play.people
    play.await_taken("")
    play.begin()
    journal = stage.server.journal
    play.until("a tool runs", lambda: stage.ledger.lines("slow_charge"))
    play.until("another tool runs", lambda: stage.ledger.lines("hold"))
    play.until("the model waits", lambda: journal.count("waiting") == 2)
    stopped_process.stop(zombie.pid)
    heir.start()
    play.until("the other holds every partition", lambda: stage.owner().startswith("w2."))
    play.until("the stopped model calls are repeated", lambda: journal.count("waiting") == 4)
    stage.server.open(begun.session_id)
    stage.server.open(middle.session_id)
    stage.ledger.release(held.session_id)
    play.until("everybody is done", lambda: are_done(play))
    assert slow.answers == {"1.1.0": "happened"}, "a person read the ledger and answered"
    before, ended = _without_ledger(play), stage.newest_ms
    claims = _claims_of(play, "w1")

    stage.ledger.release(slow.session_id)
    zombie.signal(signal.SIGCONT)
    taken = len(stage.taken_at)
    late = {slow.session_id, held.session_id}
    play.until("its tools report", lambda: late <= _with_ignored_results(play))
    play.until("the zombie holds its share again", lambda: shared(stage, 2))
    assert len(stage.taken_at) == taken, "it is the same incarnation"
    events = [h for p in play.people for h in p.watched.events if h.entry.at > ended]
    assert {ruled.verdict for ruled in events} <= {"ignored"}
    assert _claims_of(play, "w1") == claims
    assert _without_ledger(play) == before
    assert witnesses.violations(stage, play.people) == []

    again = hasty(Play(stage, heir, cast=("tools", "talk", "approve", "twice")))
    again.begin()
    again.until("everybody is done", lambda: are_done(again))
    assert witnesses.violations(stage, again.people) == []


def test_F5_a_worker_stopped_after_its_claim_begins_nothing_late(stage):
    assert stopped_behind(stage, f"{STOPS[0]}:1") == []
