"""Follows the log: returns the entries of some or all sessions from a cursor on, then new entries.

It reads outside of any consumer group: it finds the partition of a session and the offset to begin
at, and tracks the cursor. `session_fold.py` folds these entries.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping

from ..log.door import Log, Offsets
from ..log.errors import LogUnreachable
from ..log.made import partitions_of
from ..log.partition import partition_for
from ..processors.entries import foldable_entry
from ..processors.fold.sessions import is_foldable
from ..schemas.codec import Entry
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS
from .closing import Closing

STALL_S = 10.0
"""How long reading to a known end may make no progress; a local broker restarts in 2 s."""

POLL_S = 0.2
"""How long one poll waits for records, in seconds; short enough that Ctrl-C works at once."""


class Follow(Closing):
    """Reads entries in log order.

    `sessions`: the sessions to read; None for every record.
    `start`: a cursor, which has the next offset of each partition. A partition that is not in the
        cursor is read from its first offset.
    `chunks`: whether to decode GEN_CHUNK, which viewers need and folds do not.
    `holders`: whether to also return the records that name the holders of the partitions.
    `folded`: whether to return only records that a worker folds, which leaves out records whose
        keys cannot be the id of a session.
    `read`: reads the seeds of forks; without it, a forked session is frozen at its first event.
    `partitions`: if `sessions` is None, the partitions to read.

    Raises LogUnreachable, TopicMissing; polling may raise OffsetGone.
    """

    def __init__(
        self,
        log: Log,
        sessions: Collection[str] | None = None,
        start: Mapping[int, int] | None = None,
        *,
        chunks: bool = True,
        holders: bool = False,
        folded: bool = False,
        read: ReadBlob | None = None,
        partitions: Collection[int] | None = None,
    ) -> None:
        self._log, self._chunks, self._folded, self._read = log, chunks, folded, read
        first = log.first_offsets(SESSION_EVENTS)
        self._keys: frozenset[bytes] | None = None
        count = partitions_of(log)
        wanted = set(range(count) if partitions is None else partitions)
        if sessions is not None:
            wanted = {partition_for(session_id, count) for session_id in sessions}
            more = (PARTITION_KEY,) if holders else ()
            self._keys = frozenset(key.encode() for key in (*sessions, *more))
        given = start or {}
        begin = {p: given.get(p, first[p]) for p in sorted(wanted)}
        self._reader = log.reader(SESSION_EVENTS, begin, keys=self._keys)

    @property
    def cursor(self) -> Offsets:
        """The next offset of each partition, after the entries returned so far."""
        return self._reader.positions()

    def poll(self, timeout_s: float = POLL_S) -> list[Entry]:
        """New entries; none if nothing comes for `timeout_s` seconds or the broker is down."""
        return [self.entry_of(record) for record in self._poll_records(timeout_s)]

    def entry_of(self, record: Record) -> Entry:
        """The entry of a record that was read."""
        return foldable_entry(record, self._read, chunks=self._chunks)

    def _poll_records(self, timeout_s: float = POLL_S) -> list[Record]:
        keys = self._keys
        return [
            record
            for record in self._reader.poll(timeout_s)
            if (keys is None or record.key in keys)
            and (not self._folded or is_foldable(record.key))
        ]

    def ends(self) -> Offsets:
        """The present end offset of each partition that is read. Raises LogUnreachable."""
        ends = self._log.end_offsets(SESSION_EVENTS)
        return {p: ends[p] for p in self.cursor}

    def to(
        self,
        ends: Mapping[int, int],
        progress: Callable[[int, int], None] = lambda _read, _total: None,
    ) -> Iterator[list[Entry]]:
        """Yield the entries up to these offsets, in batches, as `records_to` does."""
        for records in self.records_to(ends, progress):
            yield [self.entry_of(record) for record in records]

    def records_to(
        self,
        ends: Mapping[int, int],
        progress: Callable[[int, int], None] = lambda _read, _total: None,
    ) -> Iterator[list[Record]]:
        """Yield the records up to these offsets, in batches. Raises LogUnreachable if reading
        stalls.

        The last batch may go beyond these offsets, because every entry that was read is returned.
        progress(read, total) is called before each batch and at the end, with numbers of records.
        """
        progressed, begun = time.monotonic(), self.cursor
        total = sum(max(0, end - begun[p]) for p, end in ends.items())
        while any(self.cursor[p] < end for p, end in ends.items()):
            progress(sum(at - begun[p] for p, at in self.cursor.items()), total)
            before = self.cursor
            batch = self._poll_records()
            if self.cursor != before:
                progressed = time.monotonic()
            elif time.monotonic() - progressed > STALL_S:
                behind = {p: f"{before[p]} of {end}" for p, end in ends.items()}
                raise LogUnreachable(
                    f"the log stopped responding while it was read (offsets {behind}). Nothing was "
                    "changed. Check the broker (`foldlog status`), then try again."
                )
            yield batch
        if total:
            progress(total, total)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def read_before(
    log: Log,
    topic: str,
    partition: int,
    end: int,
    *,
    start: int | None = None,
    kept: str = "Work done before is kept",
    progress: Callable[[int], None] = lambda _offset: None,
    keys: Collection[bytes] | None = None,
) -> Iterator[Record]:
    """Yield every record of a partition before an offset. Raises LogUnreachable if reading stalls.

    start: the first offset to read, by default the first of the partition.
    kept: the sentence of the error that says what is kept.
    progress: is called with the offset reached, after each poll.
    keys: records with other keys may be left out.
    """
    at = log.first_offsets(topic)[partition] if start is None else start
    reader, progressed = log.reader(topic, {partition: at}, keys=keys), time.monotonic()
    try:
        while at < end:
            yield from (record for record in reader.poll(POLL_S) if record.offset < end)
            before, at = at, reader.positions().get(partition, at)
            progress(min(at, end))
            if at != before:
                progressed = time.monotonic()
            elif time.monotonic() - progressed > STALL_S:
                raise LogUnreachable(
                    f"the log stopped responding while {topic} was read, at offset {at} of {end}. "
                    f"{kept}. Check the broker (`foldlog status`), then run the command again."
                )
    finally:
        reader.close()
