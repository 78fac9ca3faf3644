"""Sessions of many short turns, written to a log as events; and seeds as format 1 stored them."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import msgspec

from foldlog.bench.history import Session
from foldlog.log import Log, partition_for
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.events import BlobRef
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

USER = "bench"


class _Even(Session):
    """A session whose turns have equal sizes."""

    def _text(self, median: int, most: int) -> str:
        return "x" * min(median, most)


class LongSession:
    """A session that grows by whole turns. It must be alone in its partition."""

    def __init__(self, log: Log, session_id: str = "s1") -> None:
        self.log, self.session_id = log, session_id
        self.partition = partition_for(session_id, len(log.end_offsets(SESSION_EVENTS)))
        first = log.end_offsets(SESSION_EVENTS)[self.partition]
        self._session = _Even(session_id, count(first))
        self._write(self._session.opened())

    def grow_to(self, turns: int) -> "LongSession":
        while self._session.views.turn.number < turns:
            self._write(self._session.short_turn())
        return self

    def ended(self, turn: int) -> int:
        """The offset of a turn's last event."""
        ends = [r.offset for r in self.records() if r.header("t") == b"TURN_ENDED"]
        return ends[turn - 1]

    def records(self) -> list[Record]:
        key = self.session_id.encode()
        return [r for r in self.log.records(SESSION_EVENTS, self.partition) if r.key == key]

    def _write(self, events: Iterator[tuple[str, Any]]) -> None:
        for writer, event in events:
            headers = tuple(headers_for(event, writer))
            key = self.session_id.encode()
            self.log.store(SESSION_EVENTS, self.partition, key, encode(event), headers)


def sealed_in_format_1(
    session_id: str, records: Iterable[Record], seed: BlobRef | None = None
) -> bytes:
    """A seed as the versions before segments stored it. Logs in use have such seeds: never change
    this function."""
    rows = [
        [r.offset, r.timestamp_ms, [[name, bytes(value)] for name, value in r.headers], r.value]
        for r in records
    ]
    up = None if seed is None else [seed.sha256, seed.bytes, seed.media_type]
    partitions = [record.partition for record in records]
    return msgspec.msgpack.encode(
        [1, session_id, up, partitions[-1] if partitions else 0, rows]
    )
