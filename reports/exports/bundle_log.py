"""Presents a bundle as a log, so that every reader of the log can read a session from a file.

A replay of a bundle uses the same code as a fold of a broker's log. A bundle is read-only.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from ...log.bundle_file import Bundle
from ...log.door import GroupReader, Member, Offsets, Producer, TopicReport
from ...log.errors import Refused, TopicMissing
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS


class ReadOnly(Refused):
    """A write to a bundle was attempted."""


class BundleReader:
    """Implements `log.door.Reader`. At offsets that belong to other sessions it finds no records.
    """

    def __init__(self, records: Sequence[Record], start: Mapping[int, int], ends: Offsets) -> None:
        self._records, self._ends = records, ends
        self._positions = dict(start)

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        """The next records. At the end it returns an empty list without waiting, because a bundle
        never grows.
        """
        del timeout_s
        for partition, at in self._positions.items():
            if at >= self._ends[partition]:
                continue
            mine = self._records if partition == _partition(self._records) else ()
            first = bisect_left(mine, at, key=lambda record: record.offset)
            found = list(mine[first : first + max_records])
            at_end = first + len(found) == len(mine)
            last = self._ends[partition] if at_end else found[-1].offset + 1
            self._positions[partition] = last
            if found:
                return found
        return []

    def positions(self) -> Offsets:
        """The next offset of each partition."""
        return dict(self._positions)

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading from an offset."""
        self._positions[partition] = offset

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class BundleLog:
    """Implements `log.door.Log`."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        manifest = bundle.manifest
        self._ends = dict.fromkeys(range(manifest.partitions), 0) | {
            manifest.partition: manifest.end
        }

    def reader(
        self, topic: str, start: Mapping[int, int], *, keys: Collection[bytes] | None = None
    ) -> BundleReader:
        """A reader of the bundle's partitions."""
        del keys
        self._demand(topic)
        for partition in start:
            if partition not in self._ends:
                raise TopicMissing(f"{topic}/{partition}")
        return BundleReader(self._bundle.records, start, self._ends)

    def partitions(self, topic: str) -> int:
        """The partition count of the log that the bundle was made from."""
        self._demand(topic)
        return len(self._ends)

    def first_offsets(self, topic: str) -> Offsets:
        """0 for every partition."""
        self._demand(topic)
        return dict.fromkeys(self._ends, 0)

    def delete_before(self, *_deleting: object) -> None:
        """Raises ReadOnly."""
        _refuse()

    def end_offsets(self, topic: str) -> Offsets:
        """The end of the session's partition; all other partitions are empty."""
        self._demand(topic)
        return dict(self._ends)

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        """The first offset at or after a time in each partition."""
        self._demand(topic)
        later = (r.offset for r in self._bundle.records if r.timestamp_ms >= timestamp_ms)
        here = self._bundle.manifest.partition
        return self._ends | {here: next(later, self._ends[here])}

    def identity(self) -> str:
        """An id of the bundle, made from its SHA-256."""
        return f"bundle {self._bundle.sha256}"

    def topic_id(self, topic: str) -> str:
        """Identifies the records of the topic."""
        self._demand(topic)
        return self._bundle.manifest.records_sha256

    def interrupt(self) -> None:
        """Does nothing, because no read of a bundle waits."""

    def producer(self, *_on_fatal: object, brief: bool = False) -> Producer:
        """Raises ReadOnly."""
        del brief
        _refuse()

    def group_reader(self, *_joining: object) -> GroupReader:
        """Raises ReadOnly."""
        _refuse()

    def members(self, _prefix: str) -> list[Member]:
        """Returns no members, because no consumer group reads a bundle."""
        return []

    def prefixes(self) -> list[str]:
        """Returns no prefix, because a bundle has no cluster."""
        return []

    def apply_topics(self, _specs: object) -> TopicReport:
        """Raises ReadOnly, because no topic can be created."""
        _refuse()

    check_topics = apply_topics

    def close(self) -> None:
        """Does nothing, because nothing is open."""

    def _demand(self, topic: str) -> None:
        if topic != SESSION_EVENTS:
            raise TopicMissing(topic)


def _partition(records: Sequence[Record]) -> int | None:
    return records[0].partition if records else None


def _refuse() -> NoReturn:
    raise ReadOnly("a bundle is read-only, so nothing was written. To change the session, use the "
                   "log that contains it.")
