"""Outcomes reach the log whatever the disk does, and one bad outcome never keeps a worker down."""

import asyncio

import pytest

from foldlog.log.errors import LogBusy
from foldlog.log.faults import Faults
from foldlog.log.memory import MemoryLog
from foldlog.processors.worker.outbox import Outbox
from foldlog.processors.worker.reports import Reports
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import RECORD_BYTES_MAX, SESSION_EVENTS, topics


def result(text: str = "done", turn: int = 1) -> ev.ToolResult:
    return ev.ToolResult(
        turn=turn,
        step=1,
        index=0,
        attempt=1,
        outcome="ok",
        via="tool",
        content=ev.Body(inline=text.encode()),
        bytes=len(text),
        tokens=1,
        left_out=0,
    )


@pytest.fixture
def log():
    return MemoryLog(topics(1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outbox"


def logged(log: MemoryLog) -> list:
    return [entry_of(record).event for record in log.records(SESSION_EVENTS, 0)]


def test_an_outcome_that_finds_the_outbox_full_is_written_to_the_log_all_the_same(log, path):
    said = []
    box = Outbox(path, pending_bytes_max=10)
    asyncio.run(Reports(log.producer(), box, said.append).outcome("s", result()))
    assert logged(log) == [result()]
    assert any("outbox" in line for line in said)


def test_an_outcome_that_the_disk_refuses_is_written_to_the_log_all_the_same(log, path):
    said = []
    box = Outbox(path)
    box.close()  # from here on the file answers with OSError, as a full disk does
    asyncio.run(Reports(log.producer(), box, said.append).outcome("s", result()))
    assert logged(log) == [result()]
    assert said


def test_a_kept_outcome_that_no_broker_takes_does_not_keep_the_worker_from_starting(log, path):
    box = Outbox(path)
    box.put("s", result("x" * (RECORD_BYTES_MAX + 1)))
    box.put("s", result("small", turn=2))
    assert Reports(log.producer(), box, lambda text: None).emit_pending(1.0) == 0
    first, second = logged(log)
    assert "could not be written" in first.content.inline.decode()
    assert second.turn == 2
    assert len(box) == 0


class BusyTwice(Faults):
    """The producer's queue is full twice."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2

    def fate(self, producer, topic, partition, headers):
        if self.left:
            self.left -= 1
            raise LogBusy("full")
        return super().fate(producer, topic, partition, headers)


def test_kept_outcomes_wait_for_room_in_the_producers_queue(path):
    log = MemoryLog(topics(1), faults=BusyTwice())
    box = Outbox(path)
    for turn in range(1, 4):
        box.put("s", result(turn=turn))
    assert Reports(log.producer(), box, lambda text: None).emit_pending(1.0) == 0
    assert [event.turn for event in logged(log)] == [1, 2, 3]
