"""The witness folds the log itself, record by record, and passes every step to the invariants.

The witness shares only the fold with the workers: no store, no cache, no batch. It keeps the views
after every record, so they can be compared with a worker's views at any offset.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from foldlog.processors.entries import foldable_entry
from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.ruling import Ruling
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import is_foldable
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, Unreadable
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS


class Seen(NamedTuple):
    """One record, its ruling, and the views before and after it."""

    entry: Entry
    record: Record
    ruling: Ruling
    before: SessionViews
    views: SessionViews
    holders: PartitionView


class Witness:
    """The witness of one world, see the module docstring."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.views: dict[str, SessionViews] = {}
        self.partition_of: dict[str, int] = {}
        self.holders: dict[int, PartitionView] = {}
        self.takes: dict[tuple[int, str], list[tuple[int, str]]] = {}  # -> (epoch, owner)
        self.history: dict[str, list[tuple[int, SessionViews]]] = {}
        self.seen: dict[tuple[int, int], Seen] = {}
        self._next: dict[int, int] = {}
        self._took: list[str] = []
        self._holders: dict[int, list[tuple[int, PartitionView]]] = {}

    def advance(self) -> None:
        """Fold the records that are new in the log."""
        for number, partition in enumerate(self.world.log.topic(SESSION_EVENTS).partitions):
            at = self._next.get(number, 0)
            while at < partition.end:
                self._fold(number, partition.records[at])
                at += 1
                self._next[number] = at
        while self._took:
            self.world.faults.saw_take(self._took.pop())

    def _fold(self, number: int, record: Record) -> None:
        entry = foldable_entry(record, self.world.blobs.read)
        self.world.stats["records"] += 1
        if entry.session_id == PARTITION_KEY:
            before = self.holders.get(number, partition_fold.INITIAL)
            after = self.holders[number] = partition_fold.apply(before, entry)
            event = entry.event
            self.world.stats["owners declared gone"] += isinstance(event, ev.OwnerGone)
            if after is not before:
                self._holders.setdefault(number, []).append((entry.offset, after))
            if after is not before and isinstance(event, ev.PartitionTaken):
                took = self.takes.setdefault((number, event.role), [])
                took.append((entry.offset, event.owner))
                for invariant in self.world.invariants:
                    invariant.on_taken(number, entry)
                self._took.append(event.owner)
            return
        if not is_foldable(record.key):
            return
        if isinstance(entry.event, Unreadable):
            self.world.stats["unreadable"] += 1
        before = self.views.get(entry.session_id) or initial(entry.session_id)
        views, ruling = fold(before, entry)
        self.views[entry.session_id] = views
        self.partition_of[entry.session_id] = number
        self.history.setdefault(entry.session_id, []).append((record.offset, views))
        self.world.stats[f"ruling {ruling.verdict} {ruling.code}".rstrip()] += 1
        holders = self.holders.get(number, partition_fold.INITIAL)
        seen = Seen(entry, record, ruling, before, views, holders)
        self.seen[number, record.offset] = seen
        for invariant in self.world.invariants:
            invariant.on_seen(seen)
        self.world.users.saw(seen)
        self.world.faults.saw(seen)

    def next_offset(self, number: int) -> int:
        """The first offset of a partition that the witness has not folded yet."""
        return self._next.get(number, 0)

    def holders_at(self, number: int, end: int) -> PartitionView:
        """The holders of a partition after every record below `end` was folded."""
        rows = self._holders.get(number, ())
        return _newest(rows, end, (0, partition_fold.INITIAL))[1]

    def views_at(self, session_id: str, end: int) -> SessionViews | None:
        """The views of a session after every record below `end` was folded."""
        return _newest(self.history.get(session_id, ()), end, (0, None))[1]

    def holder_at(self, number: int, role: str, end: int) -> tuple[int, str] | None:
        """The (epoch, owner) that holds a role after every record below `end` was folded."""
        assert end <= self.next_offset(number), "the witness is behind: advance it first"
        return _newest(self.takes.get((number, role), ()), end, None)


def _newest(rows: Sequence[tuple[int, Any]], end: int, default: Any) -> Any:
    """The newest (offset, value) below this offset."""
    count = bisect_left(rows, end, key=itemgetter(0))
    return rows[count - 1] if count else default
