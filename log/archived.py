"""Reads the log as if nothing had been deleted that the archive has.

Every reader of the log continues through the archive without knowing it: records below the first
offset of a partition come from the archive, all others from the log, with the same offsets, times
and bytes. Without an archive that has the deleted records, readers see only the records that are
still in the log.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar, cast

from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS
from .archive import Archive, ArchiveDamaged, LogId
from .door import GroupReader, Log, Offsets, OnAssigned, OnRevoked, Reader
from .errors import LogCut, LogUnreachable, OffsetGone

T = TypeVar("T")


class ArchivedReader:
    """See `door.Reader` and `door.GroupReader`.

    The inner reader reports a deleted offset and then returns nothing of that partition until
    `seek`. Meanwhile this reader returns the partition's records from the archive.
    """

    def __init__(
        self,
        inner: Reader | GroupReader,
        log: "ArchivedLog",
        keys: Collection[bytes] | None = None,
    ) -> None:
        self._inner, self._log, self._keys = inner, log, keys
        self._reading: dict[int, tuple[Iterator[Record], int]] = {}
        """The records that remain in the archive, and the first offset of the log, by partition."""
        self._positions: Offsets = {}

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        while True:
            try:
                records = self._inner.poll(0 if self._reading else timeout_s, max_records)
            except OffsetGone as gone:
                if not self._begin(gone):
                    raise
                records = []
            if not self._reading:
                return records
            for partition in list(self._reading):
                if len(records) < max_records:
                    records += self._take(partition, max_records - len(records))
            if records:
                return records

    def _begin(self, gone: OffsetGone) -> bool:
        """Read a partition from the archive, if that has the deleted records."""
        partition, at, first = gone.partition, gone.offset, gone.first
        if first < 0:  # the client did not learn it in time
            first = self._log.live.first_offsets(SESSION_EVENTS)[partition]
        if at >= first:
            return False
        found = _guarded(
            partition, at, first, lambda: self._log.archived(partition, at, first, self._keys)
        )
        if found is None:
            return False
        self._reading[partition], self._positions[partition] = (found, first), at
        return True

    def _take(self, partition: int, most: int) -> list[Record]:
        rest, first = self._reading.pop(partition)  # if reading fails, nothing more is returned
        at = self._positions[partition]
        records = _guarded(partition, at, first, lambda: list(islice(rest, most)))
        if len(records) < most:
            self.seek(partition, first)
        else:
            self._reading[partition] = rest, first
            self._positions[partition] = records[-1].offset + 1
        return records

    def positions(self) -> Offsets:
        return {**self._inner.positions(), **self._positions}

    def seek(self, partition: int, offset: int) -> None:
        self.drop([partition])
        self._inner.seek(partition, offset)

    def drop(self, partitions: Collection[int]) -> None:
        """Stop reading these partitions from the archive."""
        for partition in partitions:
            self._reading.pop(partition, None)
            self._positions.pop(partition, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _guarded(partition: int, at: int, first: int, read: Callable[[], T]) -> T:
    """The result of reading the archive from the offset `at` to the log's first offset. Raises
    LogCut, LogUnreachable."""
    try:
        return read()
    except ArchiveDamaged as damage:
        raise LogCut(partition, at, first, f"the archive is damaged: {damage}") from damage
    except OSError as error:
        raise LogUnreachable(
            f"the archive is inaccessible ({error}), and the log no longer has offset {at} of "
            f"partition {partition}. Nothing was skipped. Make the archive's directory "
            "(FOLDLOG_ARCHIVE) readable, then try again."
        ) from error


class ArchivedLog:
    """Implements `door.Log`: wraps the log `live`, and reads what was deleted from the archive."""

    def __init__(self, live: Log, archive: Archive) -> None:
        self.live, self.archive = live, archive

    def reader(
        self, topic: str, start: Mapping[int, int], *, keys: Collection[bytes] | None = None
    ) -> Reader:
        inner = self.live.reader(topic, start, keys=keys)
        if topic != SESSION_EVENTS:
            return inner
        return ArchivedReader(inner, self, keys)

    def group_reader(
        self,
        topic: str,
        group: str,
        instance_id: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        label: str = "",
    ) -> GroupReader:
        def assigned(partitions: list[int]) -> Mapping[int, int]:
            archived.drop(partitions)
            return on_assigned(partitions)

        def revoked(partitions: list[int]) -> None:
            archived.drop(partitions)
            on_revoked(partitions)

        inner = self.live.group_reader(topic, group, instance_id, assigned, revoked, label)
        archived = ArchivedReader(inner, self)
        reader: GroupReader = cast(Any, archived)  # `commit` is the inner reader's
        return reader

    def first_offsets(self, topic: str) -> Offsets:
        """See `door.Log`; 0 for a partition whose deleted records the archive has."""
        firsts = self.live.first_offsets(topic)
        if topic != SESSION_EVENTS or not any(firsts.values()):
            return firsts
        log = self.log_id()
        return {p: 0 if self._covers(log, p, first) else first for p, first in firsts.items()}

    def _covers(self, log: LogId, partition: int, first: int) -> bool:
        return first == 0 or _guarded(
            partition, 0, first, lambda: self.archive.covers(log, partition, first)
        )

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        found = self.live.offsets_at(topic, timestamp_ms)
        if topic == SESSION_EVENTS:
            for partition, first in self.live.first_offsets(topic).items():
                if 0 < first == found[partition]:
                    found[partition] = self._archived_since(partition, first, timestamp_ms)
        return found

    def _archived_since(self, partition: int, first: int, timestamp_ms: int) -> int:
        def since() -> int:
            records = self.archived(partition, 0, first) or iter(())
            later = (record.offset for record in records if record.timestamp_ms >= timestamp_ms)
            return next(later, first)

        return _guarded(partition, 0, first, since)

    def archived(
        self, partition: int, start: int, first: int, keys: Collection[bytes] | None = None
    ) -> Iterator[Record] | None:
        """The records from `start` to the log's first offset; None if the archive does not have
        them. See Archive.records."""
        manifest = self.archive.covering(self.log_id(), partition, first)
        if manifest is None:
            return None
        return self.archive.records(manifest, start, first, keys)

    def log_id(self) -> LogId:
        """The cluster and the topic of this log."""
        return LogId(self.live.identity(), self.live.topic_id(SESSION_EVENTS))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.live, name)
