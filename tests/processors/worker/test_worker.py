"""The worker: takes, rejected decisions, claims ahead of decisions, slots, and a full disk."""

import pytest

from foldlog.log.blobs import BlobError, BlobStore
from foldlog.log.faults import LOST, Faults
from foldlog.processors.advice.prices import list_prices
from foldlog.processors.agent import Agent
from foldlog.processors.store import partition_cache as partition_cache_module
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker.meter import Meter
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import (
    ROLES,
    SESSION,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)


@tool(effect="pure")
def look() -> str:
    """Reads."""
    return "seen"


AGENT = Agent(name="a", model="m", tools=(look,))


def open_sessions(rig: ManualWorker, *names: str) -> None:
    """Open sessions with these names, each with one message."""
    for name in names:
        rig.write("producer", opened("a"), key=name)
        rig.write("producer", message(), key=name)


def result_of_look(step: int) -> ev.ToolResult:
    """The result of a call of the tool `look`."""
    return ev.ToolResult(
        turn=1,
        step=step,
        index=0,
        attempt=1,
        outcome="ok",
        via="tool",
        content=ev.Body(inline=b"seen"),
        bytes=4,
        tokens=1,
        left_out=0,
    )


# -- taking partitions ---------------------------------------------------------------------------


def test_law6_a_worker_that_reads_a_newer_take_waits_a_session_timeout():
    """The defect: a paused worker read that another worker holds the partition, and took it back at
    once."""
    rig = ManualWorker(AGENT)
    rig.assign()
    rig.settle()
    rig.ms += 10 * SESSION_TIMEOUT_MS
    for role in ROLES:
        rig.write(role, ev.PartitionTaken(role=role, owner="other/1"), key="#partition")
    takes = len(rig.events(ev.PartitionTaken))
    rig.read()
    rig.worker.tick()
    assert len(rig.events(ev.PartitionTaken)) == takes
    rig.ms += SESSION_TIMEOUT_MS - 1
    rig.worker.tick()
    assert len(rig.events(ev.PartitionTaken)) == takes
    rig.ms += 1
    rig.worker.tick()
    assert len(rig.events(ev.PartitionTaken)) == takes + len(ROLES)


def test_law6_a_worker_that_is_catching_up_does_not_take_again():
    """The defect: a worker that refolded for a minute took its partitions ten times, and so voided
    its own claims."""
    rig = ManualWorker(AGENT)
    open_sessions(rig, *(f"s{n}" for n in range(5)))
    rig.assign()
    for _ in range(9):  # reads nine of the ten records that were in the log before
        rig.ms += SESSION_TIMEOUT_MS
        rig.read(1)
        rig.worker.tick()
    rig.settle()
    assert len(rig.events(ev.PartitionTaken)) == len(ROLES)
    assert len(rig.events(ev.LlmCalled)) == 5


def test_law6_a_lost_take_is_produced_again():
    rig = ManualWorker(AGENT)
    rig.log.faults = Faults([LOST] * len(ROLES))
    rig.assign()
    rig.settle()
    assert rig.events(ev.PartitionTaken) == []
    rig.ms += SESSION_TIMEOUT_MS
    rig.worker.tick()
    assert len(rig.events(ev.PartitionTaken)) == len(ROLES)


# -- law 9 at run time ---------------------------------------------------------------------------


def write_before(rig: ManualWorker, event: object, make: object) -> None:
    """Put `event` into the log before the decision that the worker makes when it reads `make`."""
    (producer,) = rig.log._producers
    producer.pause()
    rig.write("tools", make)
    rig.read()
    rig.write("sessions", event)
    producer.resume()
    rig.settle()


def test_law9_rejections_at_different_views_do_not_freeze_a_session():
    """Workers with two versions of an agent sometimes reject each other's decisions."""
    rig = ManualWorker(AGENT)
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    for step in (1, 2):
        rig.write("models", answered(call("look"), step=step))
        rig.settle()
        nothing = ev.Body(inline=b"[]")
        prefix = ev.ContextSet(system=nothing, tools=nothing, sha256=f"{step:064d}")
        write_before(rig, prefix, result_of_look(step))
    assert rig.worker.rulings["stale"] == 2
    assert rig.worker.owned[0].stuck == {}
    assert [what for what, _ in rig.begins].count("generate") == 3


def test_law9_rejections_by_a_frozen_session_do_not_count():
    """The defect: the decisions and claims of one view were rejected, so the session counted as
    stuck."""
    rig = ManualWorker(AGENT)
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    (producer,) = rig.log._producers
    producer.pause()
    rig.write("models", answered(call("look"), call("look", 1), call("look", 2)))
    rig.read()
    rig.log.store(SESSION_EVENTS, 0, SESSION.encode(), b"?", (("t", b"NEW"), ("m", b"1")))
    producer.resume()
    rig.settle()
    assert rig.worker.rulings["frozen"] == 6  # three decisions, each with its claim
    assert rig.worker.owned[0].stuck == {}


# -- claims ahead of their decisions -------------------------------------------------------------


def test_law5_a_decision_and_its_claim_come_back_in_one_hop():
    rig = ManualWorker(AGENT)
    open_sessions(rig, SESSION)
    rig.assign()
    rig.read()
    assert len(rig.events(ev.LlmCalled)) == len(rig.events(ev.GenStart)) == 1
    assert rig.begins == []
    rig.read()
    assert [what for what, _ in rig.begins] == ["generate"]
    rig.write("models", answered(call("look")))
    rig.read()
    assert len(rig.events(ev.ToolInvoked)) == len(rig.events(ev.ToolStarted)) == 1
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate", "run_tool"]
    assert rig.worker.rulings == {}


def test_law8_a_claim_is_ignored_with_its_decision():
    """A message arrives before the decision. The fold then ignores decision and claim, and WAKE
    requires both again."""
    rig = ManualWorker(AGENT)
    open_sessions(rig, SESSION)
    rig.assign()
    (producer,) = rig.log._producers
    rig.settle()
    rig.write("models", answered())
    rig.settle()
    rig.write("producer", message("m2"))
    producer.pause()
    rig.read()
    rig.write("producer", message("m3"))
    producer.resume()
    rig.settle()
    assert rig.worker.rulings == {"stale": 1, "superseded": 1}
    assert rig.events(ev.LlmCalled)[-1].includes == ("m2", "m3")
    assert len(rig.events(ev.GenStart)) == 3
    assert [begin.turn for _, begin in rig.begins] == [1, 2]
    assert rig.worker.owned[0].stuck == {}


# -- state in memory -----------------------------------------------------------------------------


def test_a_takeover_of_many_sessions_keeps_the_bound(monkeypatch):
    first = ManualWorker(AGENT, "1")
    open_sessions(first, *(f"s{n}" for n in range(20)))
    first.assign()
    first.settle()
    second = ManualWorker(AGENT, "2", first.log)
    second.disk = first.disk
    cached = second.worker.hot_sessions
    cached.bytes_max = 3 * first.worker.hot_sessions.bytes // 20
    counts = []

    class Store(partition_cache_module.Store):
        def load_many(self, session_ids):
            counts.append(len(cached))
            return super().load_many(session_ids)

    monkeypatch.setattr("foldlog.tests.kit.manual_worker.Store", Store)
    second.assign()
    while second.reader.positions()[0] < second.log.end_offsets(SESSION_EVENTS)[0]:
        second.read(2)
        assert cached.bytes <= cached.bytes_max
    assert len(counts) >= 20
    assert max(counts) <= 3 + 2, "the cached ones, and those of a batch"
    second.revoke()
    assert (cached.bytes, len(cached)) == (0, 0), "what a lost partition took is free again"


def test_lost_claims_are_forgotten_with_their_session():
    rig = ManualWorker(AGENT)
    rig.log.faults = faults = LoseClaims()
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    rig.write("models", answered(call("look")))
    for _ in range(4):
        rig.settle()
        rig.ms += 20_000
        rig.worker.tick()
    faults.on = False
    rig.ms += 20_000
    rig.worker.tick()
    rig.settle()
    rig.write("tools", result_of_look(1))
    rig.settle()
    rig.write("models", answered(step=2))
    rig.settle()
    assert rig.events(ev.TurnEnded)
    assert rig.worker.actions._claim_times._produced_at == {}


class LoseClaims(Faults):
    """A fault that loses every TOOL_STARTED while `on` is true."""

    on = True

    def fate(self, producer, topic, partition, headers):
        lost = self.on and headers[0][1] == b"TOOL_STARTED"
        return LOST if lost else super().fate(producer, topic, partition, headers)


# -- slots ---------------------------------------------------------------------------------------


class Busy(ManualWorker):
    """A worker that has `busy` running model calls."""

    busy = 9

    def running(self, role: str) -> int:
        return self.busy if role == "models" else 0


def test_a_back_off_of_the_key_sets_one_timer():
    rig = ManualWorker(AGENT)
    rig.worker.actions._slots["models"].back_off(rig.ms + 9_000)
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    assert rig.worker.next_due_ms() == 9_000
    rig.ms += 9_000
    rig.worker.tick()
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate"]


def test_sessions_that_wait_for_a_slot_are_not_woken_until_one_is_free():
    """The defect: a thousand such sessions used half a core, because each was woken every 50 ms."""
    rig = Busy(AGENT)
    names = [f"s{n:02}" for n in range(30)]
    open_sessions(rig, *names)
    rig.assign()
    rig.settle()
    woken = []
    wake = rig.worker.wake
    rig.worker.wake = lambda owned, session_id: (woken.append(session_id), wake(owned, session_id))
    for _ in range(20):
        rig.ms += rig.worker.next_due_ms()
        rig.worker.tick()
    assert woken == []
    rig.busy = 7
    rig.ms += rig.worker.next_due_ms()
    rig.worker.tick()
    assert woken == ["s00", "s01"], "in the order of the queue, one per free slot"
    assert len(rig.events(ev.GenStart)) == 2


def test_a_revoked_session_leaves_the_slot_queue():
    rig = Busy(AGENT)
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    rig.revoke()
    rig.busy = 0
    rig.ms += 60_000
    rig.worker.tick()
    assert rig.events(ev.GenStart) == []
    rig.assign()
    rig.settle()
    assert len(rig.events(ev.GenStart)) == 1


class Running(ManualWorker):
    """A worker whose model calls never end."""

    def running(self, role: str) -> int:
        return sum(1 for what, _ in self.begins if what == "generate") if role == "models" else 0


def test_claims_read_back_in_one_batch_keep_their_slots():
    """The defect: claims that were read back but not yet running held no slot, so other claims took
    their slots."""
    rig = Running(AGENT)
    open_sessions(rig, *(f"z{n}" for n in range(9)))
    rig.assign()
    rig.read()
    open_sessions(rig, *(f"a{n}" for n in range(9)))
    rig.read()  # LLM_CALLED of these and GEN_START of the others come back in one batch
    assert len(rig.events(ev.GenStart)) == 9 and len(rig.events(ev.LlmCalled)) == 18
    rig.settle()
    assert len(rig.begins) == 9


# -- the disk ------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_worker_and_blames_no_session(tmp_path):
    """The defect: if the disk of the blobs was full, the worker skipped every woken session until
    its next start."""
    rig = ManualWorker(AGENT)
    blobs = BlobStore(tmp_path / "blobs")
    (tmp_path / "blobs" / "incoming").rmdir()  # from now on writing fails, as on a full disk

    def store(data: bytes, media_type: str) -> ev.Body:
        return ev.Body(ref=blobs.store(data, media_type))

    actions = rig.worker.actions
    actions._sources = actions._sources._replace(store_body=store)
    open_sessions(rig, SESSION)
    rig.assign()
    with pytest.raises(BlobError):
        rig.settle()


# -- metrics -------------------------------------------------------------------------------------


class Metered(ManualWorker):
    """A worker that counts."""

    def __init__(self, *args):
        self.meter = Meter(list_prices())
        super().__init__(*args, meter=self.meter)

    @property
    def counted(self) -> int:
        return self.meter.total("foldlog_events")


def test_each_event_is_counted_by_one_worker_also_if_the_next_one_has_an_empty_disk():
    """The defect: a worker that began with an empty directory counted the whole log again."""
    first = Metered(AGENT, "1")
    first.assign()
    open_sessions(first, "s1", "s2")
    first.settle()
    events = first.counted
    assert events == len(first.log.records(SESSION_EVENTS, 0)) - len(ROLES) > 4, "and the takes"
    second = Metered(AGENT, "2", first.log)
    second.assign()
    second.settle()
    later = len(second.log.records(SESSION_EVENTS, 0)) - len(ROLES) * 2 - events
    assert second.counted == later
