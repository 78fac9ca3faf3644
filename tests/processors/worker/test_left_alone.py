"""A session whose work raises: people can still cancel, terminate and fork it, and others go on."""

import pytest

from foldlog.processors.agent import Agent
from foldlog.schemas import events as ev
from foldlog.tests.kit.manual_worker import SESSION, ManualWorker, answered, call, message, opened
from foldlog.tests.processors.worker.raising import PLACES, fails_for_session

AGENT = Agent(name="a", model="m")
NEIGHBOUR = "neighbour"


@pytest.fixture(params=PLACES, ids=lambda place: place[1])
def rig(request, monkeypatch):
    """A worker with two sessions. The work on one of them raises from the second step on."""
    rig = ManualWorker(AGENT)
    for name in (SESSION, NEIGHBOUR):
        rig.write("producer", opened("a"), key=name)
        rig.write("producer", message(), key=name)
    rig.assign()
    rig.settle()
    rig.active = fails_for_session(monkeypatch, *request.param)
    rig.write("models", answered(call("look")))
    rig.settle()
    rig.write("models", answered(), key=NEIGHBOUR)
    rig.settle()
    assert not rig.worker.owned[0].views(NEIGHBOUR).turn.open, "the neighbour goes on"
    assert turn(rig).open
    return rig


def turn(rig):
    return rig.worker.owned[0].views(SESSION).turn


def cancel(rig, name: str = "c1"):
    event = ev.CancelRequested(
        cancel_id=name, mode="now", turn=None, seen_phase=None, reason="enough", by_user="u"
    )
    rig.write("producer", event)
    rig.settle()


def ended(rig) -> list[str]:
    keys = [entry.event for entry in rig.entries(ev.TurnEnded) if entry.session_id == SESSION]
    return [event.reason for event in keys]


def test_S1_a_session_whose_work_raises_can_be_cancelled_and_its_next_turn_is_tried(rig):
    cancel(rig)
    assert ended(rig) == ["cancelled"] and not turn(rig).open
    rig.write("producer", message("m2"))
    rig.settle()
    cancel(rig, "c2")
    assert ended(rig) == ["cancelled"] * 2, "it raises again, and can be cancelled again"
    rig.active.clear()
    rig.write("producer", message("m3"))
    rig.settle()
    rig.write("models", answered(turn=3))
    rig.settle()
    assert ended(rig) == ["cancelled", "cancelled", "end_turn"]
    assert rig.worker.owned[0].stuck == {}


def test_S1_a_session_whose_work_raises_can_be_terminated(rig):
    rig.write("producer", ev.SessionTerminated(reason="done", by_user="u"))
    rig.settle()
    assert ended(rig) == ["terminated"]


def test_S1_a_cancel_works_also_after_a_restart(rig):
    rig.revoke()
    rig._start("2")
    rig.assign()
    rig.settle()
    assert turn(rig).open and not ended(rig)
    cancel(rig)
    assert ended(rig) == ["cancelled"]


def test_S1_a_new_message_that_interrupts_ends_the_turn_too(rig):
    rig.write("producer", message("m2", when_busy="interrupt"))
    rig.settle()
    assert ended(rig) == ["interrupted"] and turn(rig).number == 2
