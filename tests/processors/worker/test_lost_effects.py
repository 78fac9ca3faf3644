"""Effects that run on where their partition was lost: what reaches them, and what does not."""

import threading
from dataclasses import fields, replace

import pytest

from foldlog.log.errors import LogUnreachable
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker import lost_effects
from foldlog.processors.worker.lost_effects import LostEffects, Running
from foldlog.processors.worker.ports import EffectId
from foldlog.schemas import events as ev
from foldlog.schemas.seed import MEDIA_TYPE, seal
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.laws.manual_worker import (
    ROLES,
    SESSION,
    USER,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)

WAIT_S = 10.0
ROLE_OF = {"generate": "models", "run_tool": "tools", "work": "background"}


@tool(effect="once")
def charge() -> str:
    """Charges."""
    raise AssertionError("never called here")


AGENT = Agent(name="a", model="m", tools=(charge,))


class Losing(ManualWorker):
    """What began runs until it is asked to stop; `stopped` has the claims of those."""

    def __init__(self, agent: Agent = AGENT, *, threaded: bool = False) -> None:
        self.blobs: dict[str, bytes] = {}
        super().__init__(
            agent, roles=(*ROLES, "background"), read_blob=lambda ref: self.blobs[ref.sha256]
        )
        self.ended: set[int] = set()
        self.told: list[str] = []
        self.heard = threading.Event()
        self.lost = LostEffects(
            self.log, self, self.worker.actions.read_blob, self.told.append, threaded=threaded
        )
        self.worker.lost_effects = self.lost

    def begun(self) -> list[Running]:
        return [
            Running(ROLE_OF[what], EffectId(SESSION, begin.claim.offset))
            for what, begin in self.begins
            if begin.claim.offset not in self.ended
        ]

    def stop(self, effect: EffectId, why: str) -> bool:
        self.heard.set()
        return super().stop(effect, why)

    def follow(self) -> bool:
        """One round of the follower."""
        return self.lost.round(0)

    @property
    def newest(self) -> int:
        """The claim of the newest effect."""
        return self.begins[-1][1].claim.offset


def cancel(turn: int = 1, mode: str = "now") -> ev.CancelRequested:
    return ev.CancelRequested(cancel_id="c1", mode=mode, turn=turn, reason="", by_user=USER)


def streaming(rig: Losing) -> Losing:
    """A model call of the session runs."""
    rig.write("producer", opened("a"))
    rig.write("producer", message())
    rig.assign()
    rig.settle()
    assert [what for what, _ in rig.begins] == ["generate"]
    return rig


def in_tool(rig: Losing) -> Losing:
    """A tool of the session runs."""
    streaming(rig).write("models", answered(call("charge")))
    rig.ended.add(rig.newest)
    rig.settle()
    assert rig.begins[-1][0] == "run_tool"
    return rig


ENDS = {
    "cancel": cancel(),
    "interrupt": message("m2", "interrupt"),
    "terminate": ev.SessionTerminated(reason="", by_user=USER),
}


@pytest.mark.parametrize("begin", [streaming, in_tool])
@pytest.mark.parametrize("end", ENDS)
def test_constraint_3_an_abort_ends_what_runs_of_a_lost_partition(begin, end):
    rig = begin(Losing())
    rig.revoke()
    assert rig.follow() and rig.stopped == []
    rig.write("producer", ENDS[end])
    rig.follow()
    assert rig.stopped == [rig.newest]


@pytest.mark.parametrize("begin", [streaming, in_tool])
def test_constraint_3_an_abort_that_was_in_the_log_before_the_partition_was_lost_is_found(begin):
    rig = begin(Losing())
    rig.write("producer", cancel())  # past the cursor: the worker never read it
    rig.revoke()
    rig.follow()
    assert rig.stopped == [rig.newest]


def test_only_an_abort_that_counts_ends_it():
    rig = streaming(Losing())
    rig.revoke()
    rig.write("producer", cancel(turn=7))
    rig.write("producer", replace(cancel(), by_user="thief"))
    rig.write("producer", replace(cancel(), cancel_id="c2", mode="after_step"))
    rig.write("producer", message("m2", "steer"))
    rig.write("producer", message("m3"))
    rig.follow()
    assert rig.stopped == []


def test_a_model_call_that_another_has_taken_over_is_ended():
    """Its answer can't count any more, and it is still paid for."""
    rig = streaming(Losing())
    (start,) = rig.events(ev.GenStart)
    rig.revoke()
    epoch = rig.write("models", ev.PartitionTaken(role="models", owner="x/1"), key="#partition")
    same = {field.name: getattr(start, field.name) for field in fields(start)}
    same |= {"owner": "x/1", "epoch": epoch, "attempt": 2}
    rig.write("models", ev.GenResumed(**same, strategy="replace", prior_seq=-1))
    rig.follow()
    assert rig.stopped == [rig.newest]


def test_background_work_ends_at_a_cancel_and_not_at_an_interrupt():
    rig = streaming(Losing(replace(AGENT, memory=True)))
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


def test_nothing_is_read_once_what_ran_has_ended_or_the_partition_is_back():
    rig = streaming(Losing())
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
    assert set(rig.stopped) == {rig.newest}, "the worker itself has it again"


def test_a_worker_that_still_has_the_partition_and_was_overtaken_ends_what_runs_too():
    rig = streaming(Losing())
    for role in (*ROLES, "background"):
        rig.write(role, ev.PartitionTaken(role=role, owner="x/1"), key="#partition")
    rig.write("producer", cancel())
    rig.read()
    assert rig.stopped == [rig.newest]


def test_a_thread_follows_while_anything_runs_and_ends_by_itself():
    rig = in_tool(Losing(threaded=True))
    rig.revoke()
    rig.write("producer", cancel())
    assert rig.heard.wait(WAIT_S) and rig.stopped[0] == rig.newest
    thread = rig.lost._thread
    rig.ended.add(rig.newest)
    thread.join(WAIT_S)
    assert not thread.is_alive() and rig.told == []


def test_a_log_that_can_not_be_read_is_tried_again_and_said_once(monkeypatch):
    monkeypatch.setattr(lost_effects, "AGAIN_S", 0.001)
    rig = in_tool(Losing(threaded=True))
    reader, tries = rig.log.reader, []

    def away(topic, start):
        tries.append(start)
        if len(tries) <= 3:
            raise LogUnreachable(f"no broker answered ({len(tries)})")  # as its client puts it now
        return reader(topic, start)

    monkeypatch.setattr(rig.log, "reader", away)
    rig.revoke()
    rig.write("producer", cancel())
    assert rig.heard.wait(WAIT_S) and rig.stopped[0] == rig.newest
    (told,) = rig.told
    assert told.endswith("no broker answered (1)")
    rig.lost.close()


def test_a_partition_whose_offset_is_gone_is_followed_no_more():
    rig = in_tool(Losing())
    rig.revoke()
    rig.write("producer", cancel())
    rig.log.trim(SESSION_EVENTS, 0, rig.log.end_offsets(SESSION_EVENTS)[0])  # before it was read
    rig.follow()
    assert not rig.follow() and rig.stopped == []
    assert "no longer reach" in rig.told[0]


@pytest.mark.parametrize("begin", [streaming, in_tool])
def test_what_runs_is_not_judged_by_views_from_before_its_claim(begin):
    """While a store is folded again from the first offset, or a follower lags behind."""
    rig = begin(Losing())
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
    rig = in_tool(Losing())
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
