"""The fold of many sessions: entries in log order in, views of sessions and partitions out.

Every reader of the log folds with this loop; session.py folds one event of one session. A reader
that stores or caches views itself calls `fold_event` with its views. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ...schemas.codec import CHUNK, ChunkSeen, Entry
from ...schemas.ids import DOTS, ID_CHARS_MAX, PARTITION_KEY
from ...schemas.record import Record
from .projections import partition as partition_fold
from .projections.partition import PartitionView
from .ruling import ACCEPTED, Ruling
from .session import fold, streamed_on
from .views import SessionViews, initial

KEY_BYTES_MAX = 2 * ID_CHARS_MAX  # a short key that is not an id still gets a refusal


def is_foldable(key: bytes | None) -> bool:
    """Whether a key can be a session's. A record with another key (too long, binary, `.` or `..`)
    is a dead letter."""
    if key is None or not 0 < len(key) <= KEY_BYTES_MAX or b"\0" in key:
        return False
    try:
        return key.decode() not in DOTS
    except UnicodeDecodeError:
        return False


class Run(NamedTuple):
    """One record. If it is a chunk, `more` has the chunks of the same attempt that follow it;
    otherwise `more` is empty."""

    first: Record
    more: list[Record]


def chunk_runs(records: Iterable[Record]) -> list[Run]:
    """The records of one partition as runs. The order within each session stays the same.

    Most records of a log are chunks. The fold reads only a chunk's headers, which are the same for
    all chunks of an attempt, and a chunk never changes the ruling on the next chunk of its attempt.
    So a reader folds the first chunk of a run and only counts the others. A run may be interrupted
    by records of other sessions, because each session is folded by itself.
    """
    runs: list[Run] = []
    streaming: dict[bytes | None, Run] = {}  # by session: the run that its next chunk continues
    for record in records:
        key, headers = record.key, record.headers
        run = streaming.get(key)
        if run is not None and headers == run.first.headers:
            run.more.append(record)
            continue
        run = Run(record, [])
        runs.append(run)
        if headers and headers[0] == CHUNK:
            streaming[key] = run
        else:
            streaming.pop(key, None)
    return runs


class FoldedEvent(NamedTuple):
    """One event of a session, the ruling on it, and the views before and after it."""

    entry: Entry
    ruling: Ruling
    before: SessionViews
    views: SessionViews


def fold_event(before: SessionViews | None, entry: Entry) -> FoldedEvent:
    """Fold one event into the views of its session, which are None before the first event."""
    if before is None:
        before = initial(entry.session_id)
    views, ruling = fold(before, entry)
    return FoldedEvent(entry, ruling, before, views)


@dataclass
class FoldedSession:
    """One session up to an offset.

    `first`: the offset of its first event.
    `next`: the offset after its last event.
    `last_at`: the broker time of its last event (Unix ms).
    `rulings`: the number of events by verdict.
    """

    session_id: str
    partition: int
    first: int
    next: int = 0
    last_at: int = 0
    rulings: Counter[str] = field(default_factory=Counter)
    views: SessionViews = field(init=False)

    def __post_init__(self) -> None:
        self.views = initial(self.session_id)

    def take(self, event: FoldedEvent) -> None:
        """Replace the views with those after an event, and count the event."""
        self.views = event.views
        self.next, self.last_at = event.entry.offset + 1, event.entry.at
        self.rulings[event.ruling.verdict] += 1

    def take_chunks(self, chunks: int, last: Record) -> None:
        """Fold and count further chunks of an attempt, after an accepted chunk of the same
        attempt."""
        self.views = streamed_on(self.views, chunks, last.timestamp_ms)
        self.next, self.last_at = last.offset + 1, last.timestamp_ms
        self.rulings[ACCEPTED.verdict] += chunks


S = TypeVar("S", bound=FoldedSession)


class FoldedSessions(Generic[S]):
    """Sessions by id and the holders of each partition, folded from the entries fed so far.

    `new`: creates the FoldedSession of a session.
    `newest_ms`: the newest broker time.
    """

    @overload
    def __init__(self: "FoldedSessions[FoldedSession]") -> None: ...

    @overload
    def __init__(self, new: Callable[[str, int, int], S]) -> None: ...

    def __init__(self, new: Callable[[str, int, int], Any] = FoldedSession) -> None:
        self._new = new
        self.sessions: dict[str, S] = {}
        self.holders: dict[int, PartitionView] = {}
        self.newest_ms = 0

    def feed(self, entry: Entry) -> FoldedEvent | None:
        """Fold an entry. Returns None for an entry about a partition, such as PARTITION_TAKEN."""
        if entry.at > self.newest_ms:
            self.newest_ms = entry.at
        name = entry.session_id
        if name == PARTITION_KEY:
            holders = self.holders_of(entry.partition)
            self.holders[entry.partition] = partition_fold.apply(holders, entry)
            return None
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = self._new(name, entry.partition, entry.offset)
        event = fold_event(session.views, entry)
        session.take(event)
        return event

    def feed_records(
        self, records: Iterable[Record], entry_of: Callable[[Record], Entry]
    ) -> int:
        """Fold a batch of records of one partition. `entry_of` converts a record to an entry, and
        must convert a GEN_CHUNK to a ChunkSeen.

        Returns the number of events of sessions. This method is faster than `feed`, and does not
        return the events.
        """
        count = 0
        for first, more in chunk_runs(records):
            event = self.feed(entry_of(first))
            count += event is not None
            if event is None or not more:
                continue
            if type(event.entry.event) is ChunkSeen and event.ruling is ACCEPTED:
                self.sessions[event.entry.session_id].take_chunks(len(more), more[-1])
                self.newest_ms = max(self.newest_ms, *(one.timestamp_ms for one in more))
                count += len(more)
            else:
                count += sum(self.feed(entry_of(record)) is not None for record in more)
        return count

    def views_of(self, session_id: str) -> SessionViews:
        """The views of a session; the initial views if the session is unknown."""
        session = self.sessions.get(session_id)
        return initial(session_id) if session is None else session.views

    def holders_of(self, partition: int) -> PartitionView:
        """The holders of a partition, by role."""
        return self.holders.get(partition, partition_fold.INITIAL)
