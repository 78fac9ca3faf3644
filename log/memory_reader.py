"""Reads the in-memory log outside of any group.

A reader tracks its positions, and raises an error for an offset that is no longer in the log.
`memory_group.py` extends it with partitions that a group assigns.
"""

import time
from collections.abc import Iterable, Mapping

from ..schemas.record import Record
from .door import Offsets
from .errors import OffsetGone, TopicMissing
from .memory_state import MemoryState


class MemoryReader:
    """See `door.Reader`."""

    def __init__(self, log: MemoryState, topic: str, start: Mapping[int, int]) -> None:
        for partition in start:
            if not 0 <= partition < log.partitions(topic):
                raise TopicMissing(f"{topic}/{partition}")
        self._log = log
        self._topic = topic
        self._positions: Offsets = dict(start)
        self._gone: dict[int, OffsetGone | None] = {}
        """Partitions whose offset is out of range, each with the error that `poll` has yet to
        raise, or None if it was raised. They return no records until `seek`.
        """
        self._turn = 0
        self._seen = -1
        """The value of the log's `changes` when this reader last found no more records."""
        self.closed = False

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        assert not self.closed, "the reader is closed"
        log = self._log
        deadline = time.monotonic() + timeout_s if log.threaded else 0.0
        with log.lock:
            while True:
                log.settle()
                if self._seen != log.changes:
                    self._raise_gone()
                    records = self._take(max_records)
                    if records:
                        return records
                    self._raise_gone()
                    self._seen = log.changes
                left = deadline - time.monotonic() if log.threaded else 0.0
                if left <= 0:
                    return []
                log.arrived.wait(left)

    def _raise_gone(self) -> None:
        for partition, error in self._gone.items():
            if error is not None:
                self._gone[partition] = None
                raise error

    def _take(self, max_records: int) -> list[Record]:
        """Up to `max_records` records, starting at a different partition each time so that no
        partition starves.
        """
        partitions = self._log.topic(self._topic).partitions
        mine = sorted(self._positions)
        records: list[Record] = []
        for step in range(len(mine)):
            partition = mine[(self._turn + step) % len(mine)]
            if partition in self._gone:
                continue
            source, offset = partitions[partition], self._positions[partition]
            if not source.first <= offset <= source.end:
                self._gone[partition] = OffsetGone(
                    self._topic, partition, offset, source.first, source.end
                )
                continue
            begin = offset - source.first
            taken = source.records[begin : begin + max_records - len(records)]
            if taken:
                records += taken
                self._positions[partition] = offset + len(taken)
        self._turn += 1
        return records

    def positions(self) -> Offsets:
        return dict(self._positions)

    def seek(self, partition: int, offset: int) -> None:
        assert partition in self._positions, f"partition {partition} is not read here"
        self._positions[partition] = offset
        self._seen = -1
        self._gone.pop(partition, None)

    def add(self, start: Mapping[int, int]) -> None:
        """Also read these partitions."""
        self._positions.update(start)
        self._seen = -1

    def drop(self, partitions: Iterable[int]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._gone.pop(partition, None)

    def close(self) -> None:
        self.closed = True
