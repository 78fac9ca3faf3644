"""Each record that cannot be decoded is copied to the dead letters once, whatever disk a worker
has."""

import pytest

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.worker.dead_letters import WrittenLetters
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS, topics
from foldlog.tests.kit.manual_worker import ManualWorker

AGENT = Agent(name="a", model="m")


def poison(log: MemoryLog) -> int:
    return log.store(SESSION_EVENTS, 0, b"s", b"no event", (("t", b"X"), ("w", b"tools"))).offset


def worker(log: MemoryLog, incarnation: str) -> ManualWorker:
    """A worker with an empty disk, which has read the log."""
    written = WrittenLetters(log, lambda text: rig.lines.append(text))
    rig = ManualWorker(AGENT, incarnation, log, has_letter=written.has)
    rig.assign()
    rig.settle()
    return rig


def letters(log: MemoryLog) -> list[int]:
    """The offsets of the records that have a dead letter."""
    records = [r for n in log.end_offsets(DEAD_LETTERS) for r in log.records(DEAD_LETTERS, n)]
    return [int(dict(record.headers)["__dlq.errors.offset"]) for record in records]


@pytest.fixture
def log():
    return MemoryLog(topics(1))


def test_S2_4_a_worker_with_an_empty_disk_copies_no_dead_letter_again(log):
    """The defect: three workers with empty disks made 32,053 dead letters of 8,091."""
    first, second = poison(log), poison(log)
    for number in range(3):
        rig = worker(log, str(number))
        assert letters(log) == [first, second]
    third = poison(log)
    rig.settle()
    assert letters(log) == [first, second, third], "a new one is copied"


def test_S2_4_a_dead_letter_that_was_not_written_is_written_by_the_next_worker(log):
    """The last worker died before its letters reached the log."""
    first = poison(log)
    worker(log, "1").revoke()
    second = poison(log)
    worker(log, "2")
    assert letters(log) == [first, second]


def test_a_worker_that_may_not_read_the_dead_letters_writes_them(log, monkeypatch):
    from foldlog.log.errors import AccessDenied

    def denied(*_args, **_more):
        raise AccessDenied("no READ")

    first = poison(log)
    written = WrittenLetters(log, (lines := []).append)
    monkeypatch.setattr(log, "reader", denied)
    (record,) = [r for r in log.records(SESSION_EVENTS, 0) if r.offset == first]
    assert not written.has(record) and "may be written twice" in lines[0]
