"""A machine whose clock was stepped: what is ruled by time is ruled by the brokers' time."""

import pytest

from foldlog.cli import doctor
from foldlog.cli.worker_info import WorkerInfo
from foldlog.processors.agent import Agent
from foldlog.processors.store.clocks import ClockWatch
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.schemas import events as ev
from foldlog.tests.laws.manual_worker import ROLES, ManualWorker, answered, call, message, opened

DAY_MS = 24 * 3600 * 1000


@tool(effect="pure", approval="ask")
def pay() -> str:
    """Asks first."""
    return "paid"


@tool(effect="pure")
def look() -> str:
    """Reads."""
    return "seen"


AGENT = Agent(name="a", model="m", tools=(pay, look))


class SteppedRig(ManualWorker):
    """Its wall clock is `step` ms ahead of the brokers'."""

    step = 0

    def now_ms(self) -> int:
        return self.ms + self.step


def asked(name: str) -> SteppedRig:
    """A worker whose model has asked for a tool."""
    rig = SteppedRig(AGENT)
    rig.assign()
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.settle()
    rig.write("models", answered(call(name)))
    rig.settle()
    return rig


@pytest.mark.parametrize("step", [2 * DAY_MS, -2 * DAY_MS])
def test_an_approval_expires_by_the_brokers_time_whatever_the_wall_clock_says(step):
    """A step of two days expired every approval that was asked for today, for good."""
    rig = asked("pay")
    rig.step = step
    rig.worker.tick()
    rig.settle()
    assert rig.events(ev.ApprovalExpired) == []
    assert rig.worker.skew_ms() == step
    rig.ms += DAY_MS
    rig.worker.tick()
    assert len(rig.events(ev.ApprovalExpired)) == 1


def test_a_claim_is_not_gone_by_a_stepped_clock_and_a_new_one_has_a_deadline_of_the_brokers_time():
    rig = asked("look")
    (begun,) = rig.events(ev.ToolStarted)
    other = ManualWorker(AGENT, "1", log=rig.log)
    for role in ROLES:
        rig.write(role, ev.PartitionTaken(role=role, owner="other/1"), key="#partition")
    del other
    rig.step = 2 * DAY_MS
    rig.settle()
    rig.ms += SESSION_TIMEOUT_MS
    rig.worker.tick()  # takes again, and reads that
    rig.settle()
    assert rig.events(ev.ToolStarted) == [begun], "its deadline has not passed"
    rig.ms += 3 * 60_000
    rig.worker.tick()
    rig.settle()
    _, again = rig.events(ev.ToolStarted)
    assert rig.ms < again.deadline < rig.ms + DAY_MS


def test_the_broker_that_was_stepped_is_believed_once_a_record_says_so():
    """Which of two clocks is wrong only a new record tells: the worker writes one."""
    rig = asked("pay")
    ahead = 0
    rig.log.clock_ms = lambda: rig.ms + ahead
    ahead = rig.step = 60_000  # both were right by a minute more
    assert rig.worker.skew_ms() == 60_000, "its last record was of the time before"
    rig.ms += 5 * 60_000
    rig.worker.tick()
    rig.settle()
    assert rig.worker.skew_ms() == 0


def test_time_goes_on_after_a_broker_was_ahead_for_a_while():
    """One record from then held the partition's time still, until all the others were as late."""
    rig = asked("pay")
    ahead = DAY_MS
    rig.log.clock_ms = lambda: rig.ms + ahead
    rig.write("producer", message("m2"))
    ahead = 0
    rig.write("producer", message("m3"))
    rig.settle()
    assert rig.worker.now(rig.worker.owned[0]) == rig.ms


def test_takes_that_were_lost_while_no_broker_answered_do_not_blind_the_clock():
    """Each take that came later was matched with one from the outage, for good."""
    rig, lost = SteppedRig(AGENT), []
    write = rig.worker.actions._append
    rig.worker.actions._append = lambda *record: lost.append(record[-1])  # for an hour
    rig.assign()
    rig.ms += 3_600_000
    rig.worker.actions._append = write
    for failed in lost:
        failed("no broker answered")
    rig.worker.tick()  # takes again, and reads that
    rig.settle()
    assert rig.worker.holds(0)
    rig.step = 1_800_000
    assert rig.worker.skew_ms() == 1_800_000


def test_a_skew_is_said_once_and_so_is_its_end():
    rig = asked("pay")
    said_of = []
    rig.worker._clock_watch = ClockWatch(said_of.append)
    for rig.step in (0, 60_000, 60_000, 0, 0):
        rig.worker.tick()
    assert len(said_of) == 2
    assert "60 s ahead" in said_of[0] and "agrees" in said_of[1]


def test_doctor_says_that_the_clock_is_off_and_what_to_do():
    (_, found) = doctor._worker(WorkerInfo(1, {"owner": "w/1", "clock_skew_ms": -12_000}))
    assert (found.level, found.do) == ("problem", "Set the clock (NTP)")
    assert "12 s behind the brokers'" in found.text
    assert len(list(doctor._worker(WorkerInfo(1, {"owner": "w/1", "clock_skew_ms": 9_000})))) == 1
