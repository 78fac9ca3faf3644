"""Effects that are still running after their partition was lost: which events stop them."""

import threading
from dataclasses import fields, replace

import pytest

from foldlog.log.errors import LogUnreachable
from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import EffectId
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker import lost_effects
from foldlog.processors.worker.lost_effects import LostEffects, Running
from foldlog.schemas import events as ev
from foldlog.schemas.seed import MEDIA_TYPE, seal
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import (
    ROLES,
    SESSION,
    USER,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)
from foldlog.tests.kit.slowness import allowed

WAIT_S = allowed(90.0)
ROLE_OF = {"generate": "models", "run_tool": "tools", "work": "background"}


@tool(effect="once")
def charge() -> str:
    """Charges."""
    raise AssertionError("never called here")


AGENT = Agent(name="a", model="m", tools=(charge,))


class LosingWorker(ManualWorker):
    """A worker whose effects run until the test ends them.

    `stopped`: the claim offsets of the effects that the worker stopped.
    """

    def __init__(self, agent: Agent = AGENT, *, threaded: bool = False) -> None:
        self.blobs: dict[str, bytes] = {}
        self.ended: set[int] = set()
        self.output: list[str] = []
        self.has_stopped = threading.Event()
        self._threaded = threaded
        super().__init__(agent, roles=(*ROLES, "background"), read_blob=self._read)

    def _read(self, ref) -> bytes:
        return self.blobs[ref.sha256]

    def _start(self, incarnation: str) -> None:
        self.lost = LostEffects(
            self.log, self, self._read, self.output.append, threaded=self._threaded
        )
        self._parts["lost_effects"] = self.lost
        super()._start(incarnation)

    def begun(self) -> list[Running]:
        return [
            Running(ROLE_OF[what], EffectId(SESSION, begin.claim.offset))
            for what, begin in self.begins
            if begin.claim.offset not in self.ended
        ]

    def stop(self, effect: EffectId, why: str) -> bool:
        self.has_stopped.set()
        return super().stop(effect, why)

    def follow(self) -> bool:
        """Run one round of LostEffects. Returns whether it follows a partition."""
        return self.lost.round(0)

    @property
    def newest(self) -> int:
        """The claim offset of the newest effect."""
        return self.begins[-1][1].claim.offset


def cancel(turn: int = 1, mode: str = "now") -> ev.CancelRequested:
    return ev.CancelRequested(cancel_id="c1", mode=mode, turn=turn, reason="", by_user=USER)


def with_model_call(rig: LosingWorker) -> LosingWorker:
    """Begin a model call of the session."""
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate"]
    return rig


def with_tool_call(rig: LosingWorker) -> LosingWorker:
    """Begin a tool call of the session."""
    with_model_call(rig).write("models", answered(call("charge")))
    rig.ended.add(rig.newest)
    rig.settle()
    assert rig.begins[-1][0] == "run_tool"
    return rig


ABORTS = {
    "cancel": cancel(),
    "interrupt": message("m2", "interrupt"),
    "terminate": ev.SessionTerminated(reason="", by_user=USER),
}


@pytest.mark.parametrize("begin", [with_model_call, with_tool_call])
@pytest.mark.parametrize("abort", ABORTS)
def test_constraint_3_an_abort_stops_the_effects_of_a_lost_partition(begin, abort):
    rig = begin(LosingWorker())
    rig.revoke()
    assert rig.follow() and rig.stopped == []
    rig.write("producer", ABORTS[abort])
    rig.follow()
    assert rig.stopped == [rig.newest]


@pytest.mark.parametrize("begin", [with_model_call, with_tool_call])
def test_constraint_3_an_abort_before_the_loss_that_was_not_read_stops_them_too(begin):
    rig = begin(LosingWorker())
    rig.write("producer", cancel())  # the worker never reads it
    rig.revoke()
    rig.follow()
    assert rig.stopped == [rig.newest]


def test_only_a_valid_abort_stops_an_effect():
    rig = with_model_call(LosingWorker())
    rig.revoke()
    rig.write("producer", cancel(turn=7))
    rig.write("producer", replace(cancel(), by_user="thief"))
    rig.write("producer", replace(cancel(), cancel_id="c2", mode="after_step"))
    rig.write("producer", message("m2", "steer"))
    rig.write("producer", message("m3"))
    rig.follow()
    assert rig.stopped == []


def test_a_model_call_that_another_worker_took_over_is_stopped():
    """The answer of such a call can no longer count, but its tokens are billed."""
    rig = with_model_call(LosingWorker())
    (start,) = rig.events(ev.GenStart)
    rig.revoke()
    epoch = rig.write("models", ev.PartitionTaken(role="models", owner="x/1"), key="#partition")
    same = {field.name: getattr(start, field.name) for field in fields(start)}
    same |= {"owner": "x/1", "epoch": epoch, "attempt": 2}
    rig.write("models", ev.GenResumed(**same, strategy="replace", prior_seq=-1))
    rig.follow()
    assert rig.stopped == [rig.newest]


def test_background_work_is_stopped_by_a_cancel_and_not_by_an_interrupt():
    rig = with_model_call(LosingWorker(replace(AGENT, memory=True)))
    rig.ended.add(rig.newest)
    rig.write("models", answered())
    rig.settle()
    assert rig.begins[-1][0] == "work"
    work = rig.newest
    rig.revoke()
    rig.write("producer", message("m2"))
    rig.write("producer", message("m3", "interrupt"))
    rig.follow()
    assert work not in rig.stopped
    rig.write("producer", cancel(turn=2))
    rig.follow()
    assert work in rig.stopped


def test_reading_stops_when_the_effects_have_ended_or_the_partition_is_back():
    rig = with_model_call(LosingWorker())
    rig.revoke()
    assert rig.follow()
    rig.ended.add(rig.newest)
    assert not rig.follow() and rig.lost._reader is None
    rig.ended.clear()
    rig.revoke()
    rig.assign()
    rig.revoke()
    assert rig.follow()
    rig.assign()
    assert not rig.follow()
    rig.settle()
    rig.write("producer", cancel())
    rig.read()
    assert set(rig.stopped) == {rig.newest}, "the worker itself reads the partition again"


def test_a_worker_that_lost_its_roles_but_not_the_partition_stops_its_effects_too():
    rig = with_model_call(LosingWorker())
    for role in (*ROLES, "background"):
        rig.write(role, ev.PartitionTaken(role=role, owner="x/1"), key="#partition")
    rig.write("producer", cancel())
    rig.read()
    assert rig.stopped == [rig.newest]


def test_the_thread_reads_while_effects_run_and_then_ends():
    rig = with_tool_call(LosingWorker(threaded=True))
    rig.revoke()
    rig.write("producer", cancel())
    assert rig.has_stopped.wait(WAIT_S) and rig.stopped[0] == rig.newest
    thread = rig.lost._thread
    rig.ended.add(rig.newest)
    thread.join(WAIT_S)
    assert not thread.is_alive() and rig.output == []


def test_an_unreachable_log_is_retried_and_reported_once(monkeypatch):
    monkeypatch.setattr(lost_effects, "RETRY_S", 0.001)
    rig = with_tool_call(LosingWorker(threaded=True))
    reader, tries = rig.log.reader, []

    def unreachable(topic, start):
        tries.append(start)
        if len(tries) <= 3:
            raise LogUnreachable(f"no broker answered ({len(tries)})")  # the text varies
        return reader(topic, start)

    monkeypatch.setattr(rig.log, "reader", unreachable)
    rig.revoke()
    rig.write("producer", cancel())
    assert rig.has_stopped.wait(WAIT_S) and rig.stopped[0] == rig.newest
    (line,) = rig.output
    assert line.endswith("no broker answered (1)")
    rig.lost.close()


def test_a_partition_whose_next_offset_was_deleted_is_not_followed_any_more():
    rig = with_tool_call(LosingWorker())
    rig.revoke()
    rig.write("producer", cancel())
    rig.log.trim(SESSION_EVENTS, 0, rig.log.end_offsets(SESSION_EVENTS)[0])
    rig.follow()
    assert not rig.follow() and rig.stopped == []
    assert "no longer reach" in rig.output[0]


@pytest.mark.parametrize("begin", [with_model_call, with_tool_call])
def test_an_effect_is_not_judged_by_views_from_before_its_claim(begin):
    """The views are old while a store is folded again from the first offset, or while LostEffects
    lags."""
    rig = begin(LosingWorker())
    rig.revoke()
    rig.disk.clear()
    rig.assign()
    while rig.reader.positions()[0] < rig.log.end_offsets(SESSION_EVENTS)[0]:
        rig.read(1)
    assert rig.stopped == []
    rig.write("producer", cancel())
    rig.settle()
    assert rig.newest in rig.stopped


def test_a_cancel_reaches_a_session_that_continues_without_an_unreadable_record():
    rig = with_tool_call(LosingWorker())
    records = rig.log.records(SESSION_EVENTS, 0)
    seed = seal(SESSION, [record for record in records if record.key == SESSION.encode()])
    rig.revoke()
    headers = (("t", b"FROM_THE_FUTURE"), ("w", b"producer"), ("m", b"1"))
    offset = rig.log.store(SESSION_EVENTS, 0, SESSION.encode(), b"unreadable", headers).offset
    rig.follow()
    ref = ev.BlobRef(sha256="5" * 64, bytes=len(seed), media_type=MEDIA_TYPE)
    rig.blobs[ref.sha256] = seed
    rig.write(
        "producer", ev.RecordSkipped(offset=offset, seed_ref=ref, reason="", by_user=USER)
    )
    rig.follow()
    assert rig.stopped == [], "the seed has the call's claim"
    rig.write("producer", cancel())
    rig.follow()
    assert rig.stopped == [rig.newest]
