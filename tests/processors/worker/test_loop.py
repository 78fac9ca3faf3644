"""The errors that end the poll loop, and the exit code of the process."""

import pytest

from foldlog.log.door import GroupReader
from foldlog.log.errors import AccessDenied, Fenced, LogFatal, LogUnreachable
from foldlog.processors.agent import Agent
from foldlog.processors.store.store import Belongs, Store
from foldlog.processors.worker import supervise
from foldlog.processors.worker.host import exit_code
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.schemas.events import GenStart
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.manual_worker import SESSION, ManualWorker, answered, message, opened

AGENT = Agent(name="a", model="m")


def test_a_fatal_producer_ends_a_worker_that_has_nothing_to_write():
    """The defect: the outcomes of effects failed on the dead producer, but the worker continued to
    poll."""
    rig, mail = ManualWorker(AGENT), Mailbox()
    outcomes = rig.log.producer(on_fatal=mail.fail)
    loop = Loop(rig.log, rig.worker, "g", mail)
    reader = loop.reader()
    for _ in range(3):
        loop.round(reader)
    outcomes.die(LogFatal("the cluster forbids it"))
    with pytest.raises(LogFatal, match="forbids"):
        loop.round(reader)


class _Outage(ManualWorker):
    """A worker that finds no broker when it opens a store, as often as `fails` says."""

    fails = 0

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, has_letter=lambda record: self.has_letter(record))

    def has_letter(self, _record) -> bool:
        return False

    def _open(self, partition: int, *, fresh: bool) -> Store:
        if self.fails:
            self.fails -= 1
            raise self.error("no broker answered")
        return super()._open(partition, fresh=fresh)

    error: type[Exception] = LogUnreachable


def _damaged(rig: ManualWorker, loop: Loop) -> None:
    for key in (key for key in rig.disk if not key.startswith(b"\0")):
        rig.disk[key] = b"damaged"
    rig.worker.owned[0].evict(SESSION)
    rig.write("producer", message("m2"))


def _recreated(rig: ManualWorker, loop: Loop) -> None:
    belongs = Belongs("cluster", "topic", "folds")
    rig.worker.owned[0].store.belongs = belongs
    loop.topic_is("other")


def _unread(rig: ManualWorker, loop: Loop) -> None:
    """The dead letters cannot be read."""
    owned, fails = rig.worker.owned[0], iter([True])
    owned.store.log_end = 1 << 40

    def has_letter(_record) -> bool:
        if next(fails, False):
            raise rig.error("the log stopped responding")
        return False

    rig.fails, rig.has_letter = 0, has_letter
    rig.log.store(SESSION_EVENTS, 0, b"..", b"", ())


REOPENED = (_damaged, _recreated, _unread)


def _worked(kind: type[Exception]) -> tuple[_Outage, Loop, GroupReader]:
    rig = _Outage(AGENT)
    rig.error = kind
    loop = Loop(rig.log, rig.worker, "g", Mailbox())
    reader = loop.reader()
    rig.write("producer", opened("a"))
    rig.write("producer", message("m1"))
    while not rig.events(GenStart):
        loop.step(reader)
    return rig, loop, reader


@pytest.mark.parametrize("reopens", REOPENED)
def test_S0_2_no_answer_while_a_store_is_reopened_does_not_end_the_worker(reopens):
    """The defect: the worker ended with exit code 3."""
    rig, loop, reader = _worked(LogUnreachable)
    rig.fails = 3
    reopens(rig, loop)
    for _ in range(9):
        loop.step(reader)
    assert not rig.fails and rig.worker.holds(0)
    rig.write("models", answered())
    rig.write("producer", message("m3"))
    for _ in range(3):
        loop.step(reader)
    assert rig.worker.owned[0].views(SESSION).turn.number > 1
    assert len(rig.events(GenStart)) == 2, "no effect was begun twice"


@pytest.mark.parametrize("reopens", REOPENED)
def test_a_right_that_is_missing_while_a_store_is_reopened_ends_the_worker(reopens):
    rig, loop, reader = _worked(AccessDenied)
    rig.fails = 1
    reopens(rig, loop)
    with pytest.raises(AccessDenied):
        for _ in range(3):
            loop.step(reader)


def test_a_fenced_worker_ends_with_the_exit_code_that_is_not_retried():
    rig = ManualWorker(AGENT)
    loop = Loop(rig.log, rig.worker, "g", Mailbox())
    reader = loop.reader()
    loop.round(reader)
    other = ManualWorker(AGENT, "2", rig.log)
    newer = Loop(rig.log, other.worker, "g", Mailbox())
    newer.round(newer.reader())
    with pytest.raises(Fenced) as fenced:
        loop.round(reader)
    assert exit_code([fenced.value]) == supervise.MISUSE
    assert exit_code([LogFatal("x")]) == 1
    assert exit_code([AccessDenied("a right was taken away")]) == supervise.LOG_UNREACHABLE
    assert exit_code([]) == 0
