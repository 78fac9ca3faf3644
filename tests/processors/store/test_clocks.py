"""On a machine with a stepped clock, deadlines and expiries follow the time of the brokers."""

import pytest

from foldlog.cli.commands import doctor
from foldlog.cli.worker_info import WorkerInfo
from foldlog.processors.agent import Agent
from foldlog.processors.store.clocks import Anchor, ClockWatch, anchor_of
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.schemas import events as ev
from foldlog.schemas.record import Record
from foldlog.tests.kit.manual_worker import ROLES, ManualWorker, answered, call, message, opened

DAY_MS = 24 * 3600 * 1000


@tool(effect="pure", approval="ask")
def pay() -> str:
    """Pays."""
    return "paid"


@tool(effect="pure")
def look() -> str:
    """Reads."""
    return "seen"


AGENT = Agent(name="a", model="m", tools=(pay, look))


class SteppedWorker(ManualWorker):
    """A worker whose wall clock is `step` ms ahead of the brokers' time."""

    step = 0

    def now_ms(self) -> int:
        return self.ms + self.step


def with_call(name: str) -> SteppedWorker:
    """A worker whose model has called a tool."""
    rig = SteppedWorker(AGENT)
    rig.assign()
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.settle()
    rig.write("models", answered(call(name)))
    rig.settle()
    return rig


@pytest.mark.parametrize("step", [2 * DAY_MS, -2 * DAY_MS])
def test_an_approval_expires_by_the_brokers_time_not_by_a_stepped_wall_clock(step):
    """The defect: a step of two days expired every approval that was requested today,
    permanently."""
    rig = with_call("pay")
    rig.step = step
    rig.worker.tick()
    rig.settle()
    assert rig.events(ev.ApprovalExpired) == []
    assert rig.worker.skew_ms() == step
    rig.ms += DAY_MS
    rig.worker.tick()
    assert len(rig.events(ev.ApprovalExpired)) == 1


def test_deadlines_of_claims_follow_the_brokers_time_not_a_stepped_wall_clock():
    rig = with_call("look")
    (first,) = rig.events(ev.ToolStarted)
    other = ManualWorker(AGENT, "1", log=rig.log)
    for role in ROLES:
        rig.write(role, ev.PartitionTaken(role=role, owner="other/1"), key="#partition")
    del other
    rig.step = 2 * DAY_MS
    rig.settle()
    rig.ms += SESSION_TIMEOUT_MS
    rig.worker.tick()  # takes again, and reads that back
    rig.settle()
    assert rig.events(ev.ToolStarted) == [first], "its deadline has not passed"
    rig.ms += 3 * 60_000
    rig.worker.tick()
    rig.settle()
    _, again = rig.events(ev.ToolStarted)
    assert rig.ms < again.deadline < rig.ms + DAY_MS


def test_a_stepped_broker_clock_is_adopted_with_its_next_record():
    """Only a new record shows which of the two clocks is wrong, so the worker writes a record."""
    rig = with_call("pay")
    ahead = 0
    rig.log.clock_ms = lambda: rig.ms + ahead
    ahead = rig.step = 60_000  # both clocks are a minute later
    assert rig.worker.skew_ms() == 60_000, "its last record has the old time"
    rig.ms += 5 * 60_000
    rig.worker.tick()
    rig.settle()
    assert rig.worker.skew_ms() == 0


def test_time_continues_after_a_broker_was_ahead_temporarily():
    """The defect: after one record with a time in the future, the worker's time stood still until
    the brokers' clocks had caught up."""
    rig = with_call("pay")
    ahead = DAY_MS
    rig.log.clock_ms = lambda: rig.ms + ahead
    rig.write("producer", message("m2"))
    ahead = 0
    rig.write("producer", message("m3"))
    rig.settle()
    assert rig.worker.now(rig.worker.owned[0]) == rig.ms


def test_takes_lost_during_an_outage_do_not_break_the_clock():
    """The defect: the clock matched every later take with a lost take of the outage."""
    rig, lost = SteppedWorker(AGENT), []
    write = rig.worker.actions._append
    rig.worker.actions._append = lambda *record: lost.append(record[-1])  # fails for an hour
    rig.assign()
    rig.ms += 3_600_000
    rig.worker.actions._append = write
    for failed in lost:
        failed("no broker answered")
    rig.worker.tick()  # takes again, and reads that back
    rig.settle()
    assert rig.worker.holds(0)
    rig.step = 1_800_000
    assert rig.worker.skew_ms() == 1_800_000


def taken_twice(fate: str) -> SteppedWorker:
    """A worker whose first PARTITION_TAKENs met a fault, and that took the partition again long
    afterwards."""
    rig = SteppedWorker(AGENT)
    produce = rig.worker.actions._append

    def append(*record):
        produce(*record)
        if fate == "doubled":
            produce(*record)
        elif fate == "reported lost":
            record[-1]("no broker answered")

    rig.worker.actions._append = append
    rig.assign()
    rig.worker.actions._append = produce
    for _ in range(3):
        rig.ms += 60_000
        rig.worker.tick()  # takes again, before it has read anything
    return rig


@pytest.mark.parametrize("fate", ["delivered", "doubled", "reported lost"])
@pytest.mark.parametrize("step", [0, 1_800_000, -1_800_000])
def test_a_take_is_paired_with_its_own_time_whatever_was_reported_of_it(fate, step):
    """The defect: takes were paired by their order, so after one that was reported as lost and is
    in the log, or is there twice, the clock was wrong by the time between two takes."""
    rig = taken_twice(fate)
    rig.step = step
    read = -1
    while read != (read := rig.worker.owned[0].next_offset):  # one record at a time
        rig.read(1)
        low, high = sorted((0, step))
        assert low <= rig.worker.skew_ms() <= high, "it is certain"
    assert rig.worker.holds(0)
    assert rig.worker.skew_ms() == step
    assert rig.worker.now(rig.worker.owned[0]) == rig.ms


@pytest.mark.parametrize("value", [b"", b"-1", b"1e3", b"9" * 400, b"99999999999999", b"\xff"])
def test_bad_input_a_time_that_this_process_has_not_reached_gives_no_anchor(value):
    headers = () if not value else (("p", value),)
    record = Record("session-events", 0, 0, 5, b"#partition", b"", headers)
    assert anchor_of(record, 1_000) is None
    assert anchor_of(record._replace(headers=(("p", b"990"),)), 1_000) == Anchor(990, 1_000, 5)


def test_a_skew_and_its_end_are_reported_once():
    rig = with_call("pay")
    output = []
    rig.worker._clock_watch = ClockWatch(output.append)
    for rig.step in (0, 60_000, 60_000, 0, 0):
        rig.worker.tick()
    assert len(output) == 2
    assert "60 s ahead" in output[0] and "agrees" in output[1]


def test_doctor_reports_a_clock_that_is_off_and_the_remedy():
    (_, finding) = doctor._worker(WorkerInfo(1, {"owner": "w/1", "clock_skew_ms": -12_000}))
    assert (finding.level, finding.do) == ("problem", "Set the clock (NTP)")
    assert "12 s behind the brokers'" in finding.text
    assert len(list(doctor._worker(WorkerInfo(1, {"owner": "w/1", "clock_skew_ms": 9_000})))) == 1
