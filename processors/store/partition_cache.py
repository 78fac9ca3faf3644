"""An assigned partition: its cached sessions, its timers, and the changes that are not stored yet.

This file makes no decisions. `views` is the only access to a session's views: it reads the cache,
then the store.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_
from typing import Protocol
from zlib import crc32

from ...log.errors import Corrupt
from ...log.settings import SESSION_CACHE_MB
from ...schemas.codec import Entry
from ...schemas.ids import PARTITION_KEY
from ...schemas.record import Record
from ..fold.calls import IN_DOUBT
from ..fold.projections import partition as partition_fold
from ..fold.projections.partition import PartitionView
from ..fold.session import streamed_on
from ..fold.sessions import FoldedEvent, chunk_runs, fold_event
from ..fold.views import SessionViews
from ..wake.budget import Budget, Rules
from .clocks import Anchor
from .hot_sessions import MB, HotSessions
from .store import Cursor, FactRow, Store

PREFETCHED = 32  # sessions that are loaded at once


class OtherLog(Corrupt):
    """The log has a different record at the position just before a store's cursor. This means that
    the log was truncated and written again after the store had folded the old record."""

    def __init__(self) -> None:
        super().__init__("the log is not the one its store was folded from")


class FactOf(Protocol):
    """Derives the fact of a folded event, if it has one, and never raises. of_events: the types of
    events that may have one; of other types, only an event that froze its session has one."""

    of_events: frozenset[type]

    def __call__(self, event: FoldedEvent, /) -> FactRow | None: ...


class OpenStore(Protocol):
    """Opens the store of a partition. `fresh` replaces an existing store, by a snapshot or by an
    empty store."""

    def __call__(self, partition: int, *, fresh: bool) -> Store: ...


def checksum_of(record: Record) -> int:
    """A checksum that distinguishes records with the same offset. It includes the broker time,
    because the same event may be written again after a log lost its end."""
    at = record.timestamp_ms.to_bytes(8, "big", signed=True)
    return crc32(record.value or b"", crc32(record.key or b"", crc32(at)))


def may_owe(views: SessionViews, rules: Rules | None = None) -> bool:
    """Whether WAKE can have a row for these views. If so, the session is checked when its partition
    is assigned."""
    turn = views.turn
    doubts = [call for call in turn.doubts if call.status in IN_DOUBT]
    if turn.open or bool(turn.refusals) or not all(call.told for call in doubts):
        return True
    if rules is not None and any(call.unasked for call in doubts):
        return True
    if turn.terminated or rules is None:
        return False
    return bool(views.background.works or views.delivery.owed) or bool(Budget(views, rules).works)


def _name_of(key: bytes | None) -> str:
    """The session id in a record's key. For a key that is no session id, a name that no session can
    have."""
    return (key or b"").decode("utf-8", "replace")


_beside_stream = attrgetter(*[name for name in SessionViews.__annotations__ if name != "stream"])


def _only_streamed(before: SessionViews, views: SessionViews) -> bool:
    """Whether only the stream position differs."""
    if views.stream is before.stream:
        return False
    return all(map(is_, _beside_stream(views), _beside_stream(before)))


class PartitionCache:
    """One assigned partition.

    memory: bounds its cached sessions and those of other partitions.
    fact_of: derives the facts that are stored to be sent; None stores none.
    """

    def __init__(
        self,
        number: int,
        store: Store,
        memory: HotSessions | None = None,
        fact_of: FactOf | None = None,
    ) -> None:
        self.number = number
        self._fact_of = fact_of
        self._may_have_facts = frozenset[type]() if fact_of is None else fact_of.of_events
        self._memory = HotSessions(SESSION_CACHE_MB * MB) if memory is None else memory
        self._hot: dict[str, SessionViews] = {}
        self.taken_at = 0
        self.takes_from = store.log_end  # an older PARTITION_TAKEN is of an earlier assignment
        self.checking = False
        self.anchor: Anchor | None = None
        self.reset(store)

    def reset(self, store: Store) -> None:
        """Restart at the cursor of `store` with an empty cache."""
        self.release()
        self.store = store
        self.partition: PartitionView = store.partition
        self.next_offset = store.cursor.offset
        self.last: Record | None = None
        self.newest_at = 0
        self.wake_all = False
        self.touched: set[str] = set()
        self.dirty: dict[str, SessionViews] = {}
        self.streamed: dict[str, SessionViews] = {}
        self.since: dict[str, int] = {}  # per dirty session: the first offset that changed it
        self._facts: list[FactRow] = []  # since the last write
        # The facts in the store; None until fact_sender.py has counted those of an earlier process.
        self.facts_stored: int | None = None if self.next_offset else 0
        self.stuck: dict[str, str] = {}  # see `leave_alone`
        self._stuck_in: dict[str, int] = {}
        self._unknown: set[str] = set()  # not in the store, until the next write
        self._timers: list[tuple[int, str]] = []
        self._wake_at: dict[str, int] = {}

    def views(self, session_id: str) -> SessionViews | None:
        """The current views of a session, or None if the session is unknown."""
        views = self._hot.get(session_id)
        if views is None and session_id not in self._unknown:
            views = self.store.load(session_id)
            if views is not None:
                self._keep(session_id, views)
        return views

    def _keep(self, session_id: str, views: SessionViews) -> None:
        self._hot[session_id] = views
        self._memory.loaded += 1
        self._memory.use(self, session_id, self.store.memory_of(session_id))

    def prefetch(self, records: Sequence[Record]) -> int:
        """Load the sessions of these records, many at once. Returns how many of the records can be
        folded now: fewer than all if the sessions of all do not fit into memory. Raises Corrupt."""
        keys = dict.fromkeys(map(attrgetter("key"), records))
        needed = dict.fromkeys(_name_of(key) for key in keys)
        missing = [name for name in needed if name not in self._hot and name != PARTITION_KEY]
        if missing:
            for name in needed:
                self._memory.touch(self, name)
        for start in range(0, len(missing), PREFETCHED):
            group = missing[start : start + PREFETCHED]
            loaded = self.store.load_many(group)
            self._unknown.update(name for name in group if name not in loaded)
            for name, views in loaded.items():
                self._keep(name, views)
            if not self._memory.evict(self, needed):
                rest = set(missing[start + PREFETCHED :])
                places = enumerate(records)
                return next((n for n, each in places if _name_of(each.key) in rest), len(records))
        return len(records)

    def hot(self, session_id: str) -> SessionViews | None:
        """The views of a cached session, or None."""
        return self._hot.get(session_id)

    def first_read(self) -> int:
        """The offset at which reading begins. It is that of the record before the cursor, so that
        `check` can verify the log."""
        self.checking = self.next_offset > 0
        return max(self.store.log_first, self.next_offset - 1)

    def check(self, record: Record) -> None:
        """Verify that the log still has the record before the cursor: call this for each record
        that is read, because only the first of them is checked. Raises OtherLog if the log has
        another record there."""
        if not self.checking:
            return
        self.checking, before = False, self.store.cursor
        same = record.offset >= before.offset
        if record.offset == before.offset - 1:
            same = checksum_of(record) == before.checksum
        if not same:
            raise OtherLog

    def is_next(self, record: Record) -> bool:
        """Whether a record must still be folded. The record before the cursor, with which reading
        begins, was folded already."""
        return record.offset >= self.next_offset

    def advance(self, record: Record) -> None:
        """Set the next offset to the one after this record, which was folded."""
        self.next_offset = record.offset + 1
        self.last = record
        self.newest_at = record.timestamp_ms  # not the highest: a broker's clock may be ahead

    def feed(self, entry: Entry) -> FoldedEvent | None:
        """Fold an entry into the cached views.
        Returns None for an entry about the partition itself.

        The session is `touched`, unless only its stream position changed: a chunk creates no
        obligation. A chunk only extends the attempt's deadline; its timer is set again.
        """
        if entry.session_id == PARTITION_KEY:
            self.partition = partition_fold.apply(self.partition, entry)
            return None
        session_id = entry.session_id
        event = fold_event(self.views(session_id), entry)
        if event.views is not event.before:
            self.record_change(session_id, event.before, event.views)
        if event.views is event.before or session_id not in self.streamed:
            self.touched.add(session_id)
        if type(entry.event) in self._may_have_facts or event.views.frozen is not None:
            self._add_fact(event)
        return event

    def _add_fact(self, event: FoldedEvent) -> None:
        fact = None if self._fact_of is None else self._fact_of(event)
        if fact is not None:
            self._facts.append(fact)

    def fold_run(
        self,
        records: Iterable[Record],
        fold: Callable[[Record], str | None],
        write: Callable[[], None],
    ) -> None:
        """Fold a run of records, in parts if their sessions do not fit into memory together. Raises
        Corrupt, and OtherLog if the store belongs to another log.

        fold: folds one record. It returns the session id if the record is an accepted chunk and the
        chunks that follow it may be folded together; else None. write: stores the changes, between
        two parts.
        """
        unread = list(records)
        self.check(unread[0])
        unread = [record for record in unread if self.is_next(record)]
        while unread:
            count = self.prefetch(unread)
            part, unread = unread[:count], unread[count:]
            for first, more in chunk_runs(part):
                streaming = fold(first)
                if streaming is None:
                    for record in more:
                        fold(record)
                elif more:
                    self.fold_chunks(streaming, len(more), more[-1])
            self.advance(part[-1])  # the last run need not contain it
            if unread:
                write()
                self.trim(self.touched)

    def fold_chunks(self, session_id: str, chunks: int, last: Record) -> None:
        """Fold chunks that follow an accepted chunk of the same attempt. This is a short cut,
        because such chunks are most of the records in a log."""
        before = self.views(session_id)
        assert before is not None
        self.record_change(session_id, before, streamed_on(before, chunks, last.timestamp_ms))

    def record_change(self, session_id: str, before: SessionViews, views: SessionViews) -> None:
        """Record the new views of a session. If only the stream position changed, as after a chunk,
        `write` stores only the stream position.

        A new fork of a streaming session does not count as such a change: it has a stream position
        from the start, but its other views are not stored yet either.
        """
        self._hot[session_id] = views
        if session_id not in self.dirty and _only_streamed(before, views):
            self.streamed[session_id] = views
            self._memory.touch(self, session_id)
        else:
            self.streamed.pop(session_id, None)
            self.dirty[session_id] = views
            self.since.setdefault(session_id, self.next_offset - 1)

    def write(self, busy: Callable[[SessionViews], bool]) -> dict[str, SessionViews]:
        """Store the changes in one batch. Returns the sessions that were frozen because their views
        could not be stored."""
        assert self.last is not None, "a partition moves by a record"
        cursor = Cursor(self.next_offset, checksum_of(self.last))
        frozen = self.store.write(
            self.dirty, self.streamed, busy, self.partition, cursor, self.since, self._facts
        )
        if self.facts_stored is not None:
            self.facts_stored += len(self._facts)
        self._facts = []
        self._hot.update(frozen)
        self.dirty, self.streamed, self.since = {}, {}, {}
        self._unknown.clear()
        return frozen

    def leave_alone(self, session_id: str, turn: int, why: str) -> None:
        """Record that this worker cannot continue a session, until its turn after `turn` or until
        the next start."""
        self.stuck[session_id] = why
        self._stuck_in[session_id] = turn

    def is_left_alone(self, session_id: str, turn: int) -> bool:
        """Whether this worker cannot continue a session in this turn."""
        if session_id in self.stuck and turn > self._stuck_in.get(session_id, turn):
            del self.stuck[session_id]
        return session_id in self.stuck

    def trim(self, used: set[str]) -> None:
        """Evict the least recently used sessions that do not fit into memory; `used` were used just
        now."""
        for session_id in used & self._hot.keys():
            self._memory.use(self, session_id, self.store.memory_of(session_id))
        self._memory.evict()

    def is_unwritten(self, session_id: str) -> bool:
        """Whether a session has changes that are not stored yet."""
        return session_id in self.dirty or session_id in self.streamed

    def evict(self, session_id: str) -> None:
        """Drop a session from memory; the store has it."""
        self._hot.pop(session_id, None)
        self.store.forget(session_id)

    def release(self) -> None:
        """Drop every session, because the store is closed or replaced."""
        for session_id in self._hot:
            self._memory.forget(self, session_id)
        self._hot.clear()

    def schedule_wake(self, session_id: str, due: int) -> None:
        """Wake a session at `due` (Unix ms) or earlier; each session has one timer."""
        known = self._wake_at.get(session_id)
        if known is None or due < known:
            self._wake_at[session_id] = due
            heapq.heappush(self._timers, (due, session_id))

    @property
    def next_due(self) -> int | None:
        """Unix ms of the earliest timer, or None."""
        return self._timers[0][0] if self._timers else None

    def due(self, now: int) -> list[str]:
        """The sessions whose timer has expired, each once."""
        ready = []
        while self._timers and self._timers[0][0] <= now:
            due, session_id = heapq.heappop(self._timers)
            if self._wake_at.get(session_id) == due:
                del self._wake_at[session_id]
                ready.append(session_id)
        return ready
