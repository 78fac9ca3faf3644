"""A reconciler is asked as soon as its call's owner is proven dead, then a few times with growing
pauses, and for good once the deadline and the margin have passed."""

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.manual_worker import (
    ROLES,
    SESSION,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)


@tool(effect="once", timeout_s=120, reconciler=lambda ctx: None)
def pay() -> str:
    """Pays."""
    return "paid"


AGENT = Agent(name="a", model="m", tools=(pay,))
SECOND = 1_000


def asked_to_pay(*roles: str) -> ManualWorker:
    """A worker of these roles, whose model has asked for a call of the tool."""
    rig = ManualWorker(AGENT, roles=roles)
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    rig.write("models", answered(call("pay")))
    rig.settle()
    return rig


def claimed() -> ManualWorker:
    """A worker that runs a call of the tool."""
    rig = asked_to_pay(*ROLES)
    (start,) = rig.events(ev.ToolStarted)
    assert start.owner == "w/1"
    return rig


def restarted(before: ManualWorker, incarnation: str = "2") -> ManualWorker:
    """The next process of the same worker."""
    rig = ManualWorker(AGENT, incarnation, log=before.log)
    rig.ms = before.ms
    before.log.clock_ms = lambda: rig.ms
    rig.assign()
    rig.settle()
    return rig


def asked(rig: ManualWorker) -> list[bool]:
    """The questions so far, oldest first: whether each was early."""
    return [begin.early for what, begin in rig.begins if what == "reconcile"]


def over_time(rig: ManualWorker, seconds: int) -> list[tuple[int, bool]]:
    """Let this time pass. Returns the questions, each with the seconds since the beginning."""
    questions = [(0, early) for early in asked(rig)]
    for second in range(1, seconds):
        rig.ms += SECOND
        rig.worker.tick()
        rig.settle()
        questions += [(second, early) for early in asked(rig)[len(questions) :]]
    return questions


def test_T6_a_reconciler_is_asked_at_once_then_rarely_and_for_good_after_the_deadline():
    rig = restarted(claimed())
    (start,) = rig.events(ev.ToolStarted)
    ended_at = -(-(start.deadline + AGENT.limits.margin_ms - rig.ms) // SECOND)
    early = [(0, True), (5, True), (25, True), (85, True)]
    assert over_time(rig, 3_600) == [*early, (ended_at, False)]


def test_T6_records_of_the_session_do_not_cause_more_questions():
    rig = restarted(claimed())
    for n in range(2, 9):
        rig.write("producer", message(f"m{n}"))
        rig.settle()
    assert asked(rig) == [True]


def test_T6_each_process_asks_at_once():
    first = restarted(claimed())
    assert over_time(first, 4) == [(0, True)]
    assert over_time(restarted(first, "3"), 4) == [(0, True)]


@pytest.mark.parametrize("outcome", ["ok", "not_run"])
def test_T6_an_answer_ends_the_questions(outcome):
    rig = restarted(claimed())
    place = {"turn": 1, "step": 1, "index": 0, "attempt": 1}
    size = {"content": ev.Body(inline=b"x"), "bytes": 1, "tokens": 1, "left_out": 0}
    rig.write("tools", ev.ToolResult(**place, outcome=outcome, via="reconciler", **size))
    rig.settle()
    assert over_time(rig, 600) == [(0, True)]


CANCEL = ev.CancelRequested(
    cancel_id="x", mode="now", turn=1, seen_phase=None, reason="stop", by_user="u"
)
TERMINATE = ev.SessionTerminated(reason="stop", by_user="u")
UNCERTAIN = ev.ToolFailedUncertain(turn=1, step=1, index=0, attempt=1, reason="who knows")


@pytest.mark.parametrize("end", [CANCEL, TERMINATE], ids=["cancel", "terminate"])
def test_T8_the_questions_about_a_doubt_go_on_after_its_turn(end):
    """The defect: a call of a dead worker stayed in doubt if its turn had been cancelled."""
    rig = restarted(claimed())
    (start,) = rig.events(ev.ToolStarted)
    ended_at = -(-(start.deadline + AGENT.limits.margin_ms - rig.ms) // SECOND)
    rig.write("producer", end)
    rig.settle()
    assert len(rig.events(ev.TurnEnded)) == len(rig.events(ev.HumanNeeded)) == 1, "nobody waits"
    early = [(0, True), (5, True), (25, True), (85, True)]
    assert over_time(rig, 3_600) == [*early, (ended_at, False)]
    assert len(rig.events(ev.ToolStarted)) == 1, "nothing new is started"


@pytest.mark.parametrize("end", [CANCEL, TERMINATE], ids=["cancel", "terminate"])
def test_T8_a_doubt_whose_turn_ended_before_its_owner_was_proven_dead_is_asked_about(end):
    before = claimed()
    before.write("producer", end)
    rig = restarted(before)
    assert asked(rig) == [True] and rig.events(ev.TurnEnded)
    assert restarted(rig, "3").begins, "each process asks"


@pytest.mark.parametrize("outcome", ["ok", "not_run", "uncertain", "person"])
def test_T8_an_answer_about_a_doubt_of_an_ended_turn_ends_the_questions(outcome):
    rig = restarted(claimed())
    rig.write("producer", CANCEL)
    rig.settle()
    place = {"turn": 1, "step": 1, "index": 0, "attempt": 1}
    size = {"content": ev.Body(inline=b"x"), "bytes": 1, "tokens": 1, "left_out": 0}
    if outcome == "person":
        content = ev.Body(inline=b"x")
        rig.write("producer", ev.HumanResolved(
            call="1.1.0", outcome="happened", content=content, by_user="u"
        ))
    elif outcome == "uncertain":
        rig.write("tools", UNCERTAIN)
    else:
        rig.write("tools", ev.ToolResult(**place, outcome=outcome, via="reconciler", **size))
    rig.settle()
    assert over_time(rig, 600) == [(0, True)]
    doubts = [call.status for call in rig.worker.owned[0].views(SESSION).turn.doubts]
    assert ("doubt" in doubts) is (outcome == "uncertain")
    assert len(rig.events(ev.HumanNeeded)) == 1, "a person is asked once"


def claimed_by_another() -> ManualWorker:
    """The log of a worker whose call was claimed, in a later epoch, by another worker."""
    rig = asked_to_pay("sessions", "models")
    for role in ROLES:
        epoch = rig.write(role, ev.PartitionTaken(role=role, owner="other/1"), key=PARTITION_KEY)
    place = {"turn": 1, "step": 1, "index": 0, "attempt": 1}
    start = ev.ToolStarted(
        **place, owner="other/1", epoch=epoch, start_by=rig.ms + 9, deadline=rig.ms + 120_000
    )
    rig.write("tools", start)
    return rig


def test_T6_nobody_is_asked_before_the_deadline_about_an_owner_that_may_live():
    rig = restarted(claimed_by_another())
    assert over_time(rig, 3_600) == [(130, False)], "the deadline and the margin"


def test_T6_a_reconciler_is_asked_as_soon_as_the_log_says_that_the_owner_is_gone():
    rig = restarted(claimed_by_another())
    assert over_time(rig, 60) == []
    rig.write("sessions", ev.OwnerGone(owner="other/1"), key=PARTITION_KEY)
    rig.settle()
    assert asked(rig) == [True]
