"""Following the log: entries of some sessions, or of all, from a cursor on, and on as they come.

This file owns reading outside of any group: where a session lies, where reading begins, how far it
has come. It must not know what an entry means; `session_fold.py` folds what comes from here.
"""

import time
from collections.abc import Collection, Iterator, Mapping

from ..log.door import Log, Offsets
from ..log.errors import LogUnreachable
from ..log.made import partitions_of
from ..log.partition import partition_for
from ..processors.fold.sessions import is_foldable
from ..processors.store.fork_seeds import foldable_entry
from ..schemas.codec import Entry
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS

STALL_S = 10.0
"""How long reading towards a known end may stand still: a local broker is back in 2 s."""

POLL_S = 0.2
"""How long one look waits for records; short enough that Ctrl-C is felt at once."""


class Follow:
    """Entries in log order. `sessions`: those wanted, None for every record of every partition.

    `start`: next offset by partition (a cursor); a partition that it does not name is read from
    its first offset. `chunks`: decode GEN_CHUNK, as a viewer needs and a fold does not. `holders`:
    also what says who holds the partitions that are read. `folded`: only what a worker folds, no
    record whose key can not name a session (its worker keeps that as a dead letter). `read`: where
    the seeds of forks are; without it a fork is frozen where it begins. `partitions`: of all
    sessions, those of these only.
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
        made = partitions_of(log)
        wanted = set(range(made) if partitions is None else partitions)
        if sessions is not None:
            wanted = {partition_for(session_id, made) for session_id in sessions}
            more = (PARTITION_KEY,) if holders else ()
            self._keys = frozenset(key.encode() for key in (*sessions, *more))
        given = start or {}
        begin = {p: given.get(p, first[p]) for p in sorted(wanted)}
        self._reader = log.reader(SESSION_EVENTS, begin)

    @property
    def cursor(self) -> Offsets:
        """The next offset by partition, as handed out."""
        return self._reader.positions()

    def poll(self, timeout_s: float = POLL_S) -> list[Entry]:
        """What has come; empty after `timeout_s` seconds. A broker that is away is silence."""
        keys = self._keys
        return [
            foldable_entry(record, self._read, chunks=self._chunks)
            for record in self._reader.poll(timeout_s)
            if (keys is None or record.key in keys)
            and (not self._folded or is_foldable(record.key))
        ]

    def ends(self) -> Offsets:
        """The present end of each partition that is read. Raises LogUnreachable."""
        ends = self._log.end_offsets(SESSION_EVENTS)
        return {p: ends[p] for p in self.cursor}

    def to(self, ends: Mapping[int, int]) -> Iterator[list[Entry]]:
        """Entries up to these offsets, in batches as they come. Raises LogUnreachable on a stall.

        A batch may hold more than was asked for: what was read is handed out.
        """
        moved = time.monotonic()
        while any(self.cursor[p] < end for p, end in ends.items()):
            before = self.cursor
            batch = self.poll()
            if self.cursor != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                behind = {p: f"{before[p]} of {end}" for p, end in ends.items()}
                raise LogUnreachable(
                    f"the log stopped answering while it was read (offsets {behind}). Nothing was "
                    "changed. Look at the broker (`foldlog status`), then try again."
                )
            yield batch

    def close(self) -> None:
        """End reading."""
        self._reader.close()

    def __enter__(self) -> "Follow":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_before(log: Log, topic: str, partition: int, end: int) -> Iterator[Record]:
    """Every record of a partition before an offset. Raises LogUnreachable on a stall."""
    first = log.first_offsets(topic)[partition]
    reader, moved = log.reader(topic, {partition: first}), time.monotonic()
    try:
        while reader.positions().get(partition, first) < end:
            records = reader.poll(POLL_S)
            if records:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                raise LogUnreachable(
                    f"the log stopped answering while {topic} was read. What was done before is "
                    "kept. Look at the broker (`foldlog status`), then run the command again."
                )
            yield from (record for record in records if record.offset < end)
    finally:
        reader.close()
