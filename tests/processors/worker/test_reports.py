"""Outcomes reach the log despite disk errors, and no outcome in the outbox prevents a worker's
start."""

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


@pytest.mark.parametrize("fault", ["the outbox is full", "the disk fails"])
def test_an_outcome_that_the_outbox_cannot_keep_is_written_to_the_log(log, path, fault):
    output = []
    outbox = Outbox(path, pending_bytes_max=10 if fault == "the outbox is full" else 10_000)
    if fault == "the disk fails":
        outbox.close()  # from now on the file raises OSError
    asyncio.run(Reports(log.producer(), outbox, output.append).outcome("s", result()))
    assert logged(log) == [result()]
    assert any("outbox" in line for line in output)


def test_a_kept_outcome_that_is_too_large_does_not_prevent_the_start(log, path):
    outbox = Outbox(path)
    outbox.put("s", result("x" * (RECORD_BYTES_MAX + 1)))
    outbox.put("s", result("small", turn=2))
    assert Reports(log.producer(), outbox, lambda text: None).emit_pending(1.0) == 0
    first, second = logged(log)
    assert "could not be written" in first.content.inline.decode()
    assert second.turn == 2
    assert len(outbox) == 0


class BusyTwice(Faults):
    """A producer whose queue is full for the first two appends."""

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
    outbox = Outbox(path)
    for turn in range(1, 4):
        outbox.put("s", result(turn=turn))
    assert Reports(log.producer(), outbox, lambda text: None).emit_pending(1.0) == 0
    assert [event.turn for event in logged(log)] == [1, 2, 3]
