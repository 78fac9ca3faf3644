"""The gateway's reader of the log, shared by all viewers: folds every partition.

A thread polls every partition from its store's cursor on, folds as a worker does, and passes each
batch to a listener. Chunks are decoded for watched sessions only. The tail claims no work, and its
stores are only a cache of the log. So after any error (a full disk, a missing topic) the thread
starts over from its stores until it succeeds. Only a bug, or a replaced log, ends the thread, and
with it the process.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ...client.outcomes import Decision, decision_of
from ...client.show import summary
from ...client.status import Status, why_unserved
from ...log.door import Log, Reader
from ...log.errors import (
    Corrupt,
    FoldlogError,
    LogCut,
    LogUnreachable,
    OffsetGone,
    Retry,
    TopicMismatch,
)
from ...log.partition import partition_for
from ...log.settings import SESSION_CACHE_MB
from ...processors.entries import foldable_entry
from ...processors.fold.projections.partition import PartitionView
from ...processors.fold.ruling import ACCEPTED
from ...processors.fold.sessions import FoldedEvent, is_foldable
from ...processors.fold.views import SessionViews
from ...processors.store.hot_sessions import MB, HotSessions
from ...processors.store.opener import StoreOpener
from ...processors.store.partition_cache import PartitionCache
from ...processors.store.rocks import DiskFailed
from ...processors.store.snapshots import Snapshots
from ...processors.store.store import Belongs, Store, fold_version
from ...schemas.codec import ChunkSeen
from ...schemas.events import GenChunk
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS
from ..inspector.overview import Overview

POLL_S = 0.2
"""How long a poll waits for records, in seconds. The end of the process may wait as long."""

OPEN = (Status.BUSY, Status.UNSERVED)
"""Statuses of a session that depend on the holders of its partition."""

RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses before the tail starts over, in seconds; the last pause is repeated."""

QUIET_S = 5.0
"""Seconds without records after which the tail checks that the topic exists and is still the same.
"""

CHUNKS = (ChunkSeen, GenChunk)
"""Events that change nothing in a session's summary, if they are accepted."""

COMMAND_WRITER = "producer"
"""The writer of commands, on which clients wait for a ruling."""


class NotReady(Retry):
    """The gateway does not know the present state of sessions."""


class Replaced(TopicMismatch):
    """The topic was deleted and created again, so everything in this process's memory is from the
    old topic.
    """


class Batch(NamedTuple):
    """The result of one poll.

    events: the events of watched sessions, in log order for each session.
    decisions: the rulings on commands.
    summaries: the new summary of every session whose summary changed.
    """

    events: list[FoldedEvent]
    decisions: list[Decision]
    summaries: dict[str, dict[str, Any]]


class Tail:
    """Folds every partition in one thread of its own, until it is closed.

    `directory`: the directory of the stores, which only one gateway may use at a time. The thread
        calls `on_batch` with every batch that is not empty, `on_gap` when batches may be missing
        and viewers must start over, and `on_end` when it ends (`has_ended` is then true).
    `failed`: the error because of which the tail does not follow the log at present, or None.
    `read`: reads the seeds of forks.
    `overview`: the home page's overview, which the tail updates as it folds.
    `snapshots`, `behind_max`: see StoreOpener; a gateway makes no snapshots.
    `session_cache_mb`: see Settings. The constructor raises LogUnreachable, TopicMissing.
    """

    def __init__(
        self,
        log: Log,
        directory: Path,
        print_line: Callable[[str], None],
        read: ReadBlob | None = None,
        overview: Overview | None = None,
        snapshots: Snapshots | None = None,
        behind_max: int = 0,
        session_cache_mb: int = SESSION_CACHE_MB,
    ) -> None:
        self._hot_sessions = HotSessions(session_cache_mb * MB)
        self._read, self._overview = read, overview
        self._log, self._directory, self._print = log, directory, print_line
        self._opener = StoreOpener(
            lambda partition: directory / str(partition), print_line, snapshots, behind_max
        )
        self._lock, self._halt = threading.RLock(), threading.Event()
        self._watched: frozenset[bytes] = frozenset()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self.on_batch: Callable[[Batch], object] = lambda _batch: None
        self.on_gap: Callable[[], object] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        self.failed: BaseException | None = None
        self.has_ended = False
        self.unreachable_since: float | None = None  # time of the monotonic clock
        self._owned: dict[int, PartitionCache] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._topic_id = log.topic_id(SESSION_EVENTS)
        self._begin()

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading, and close the stores."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._abandon()

    # -- reads, from any thread --------------------------------------------------------------------

    def views(self, session_id: str) -> SessionViews | None:
        """The present views of a session; None if it is unknown."""
        with self._lock:
            found = (owned := self._place(session_id)).views(session_id)
            owned.trim({session_id})
        return found if found is not None and found.turn.known else None

    def user_of(self, session_id: str) -> str | None:
        """The user of a session; None if it is unknown."""
        return self._summaries.get(session_id, {}).get("user_id")

    def cursor(self, session_id: str) -> tuple[int, int]:
        """The session's partition, and its next offset to fold."""
        owned = self._place(session_id)
        return owned.number, owned.next_offset

    def holders(self, session_id: str) -> PartitionView:
        """The holders of a session's partition."""
        return self._place(session_id).partition

    def watch(self, session_id: str) -> tuple[SessionViews | None, int]:
        """Start decoding a session's chunks. Returns the session's views, and the next offset."""
        with self._lock:
            self._watched |= {session_id.encode()}
            return self.views(session_id), self.cursor(session_id)[1]

    def unwatch(self, session_id: str) -> None:
        """Stop decoding a session's chunks."""
        with self._lock:
            self._watched -= {session_id.encode()}

    def summaries(self, user: str | None = None) -> list[dict[str, Any]]:
        """The summary of each session of one user or of all users, most recently changed first."""
        with self._lock:
            found = [s for s in self._summaries.values() if user in (None, s["user_id"])]
        return sorted(found, key=lambda s: (-s["updated_at"], s["session_id"]))

    def partitions(self) -> list[PartitionView]:
        """The holders of every partition."""
        return [owned.partition for owned in list(self._owned.values())]

    def end(self, session_id: str) -> int:
        """The present end offset of the session's partition. Raises LogUnreachable."""
        return self._log.end_offsets(SESSION_EVENTS)[self._place(session_id).number]

    def places(self) -> dict[int, int]:
        """The next offset to fold, for every partition."""
        return {number: owned.next_offset for number, owned in list(self._owned.items())}

    def lag(self) -> int:
        """The number of records not folded yet. Raises LogUnreachable."""
        ends = self._log.end_offsets(SESSION_EVENTS)
        return sum(max(0, ends[p] - owned.next_offset) for p, owned in self._owned.items())

    @property
    def caught_up(self) -> bool:
        """Whether the tail has folded everything that was in the log when the tail started."""
        return all(owned.next_offset >= self._goal[p] for p, owned in self._owned.items())

    def ready(self) -> None:
        """Raise NotReady if the tail does not follow the log at present, or has not yet folded
        everything that was in the log when it started.
        """
        if self.failed is not None:
            raise NotReady(
                "this gateway does not follow the log at present; every message is kept. It "
                "retries automatically; its output has the reason, for the operator."
            )
        if not self.caught_up:
            raise NotReady("this gateway is still reading the log. Try again in a moment.")

    def _place(self, session_id: str) -> PartitionCache:
        if not self._owned:
            raise NotReady("this gateway is opening its stores. Try again in a moment.")
        return self._owned[partition_for(session_id, len(self._owned))]

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        waits = iter(RETRY_S)
        while not self._halt.is_set():
            try:
                if self.failed is not None:
                    self._begin()
                    self._print("the gateway follows the log again")
                    self.failed, self.unreachable_since = None, None
                    waits = iter(RETRY_S)
                    self.on_gap()
                self._follow()
            except (FoldlogError, OSError) as error:
                self._fail(error)
                if isinstance(error, Replaced | DiskFailed):
                    return self._end()
                self._halt.wait(next(waits, RETRY_S[-1]))
            except BaseException as error:
                self._fail(error)
                return self._end()

    def _end(self) -> None:
        self.has_ended = True
        self.on_end()

    def _fail(self, error: BaseException) -> None:
        is_news = str(error) != str(self.failed)
        self.failed = error
        if is_news:
            self._print(f"the gateway does not follow the log: {type(error).__name__}: {error}")
        self.on_gap()

    def _begin(self) -> None:
        """Open every store, and make a summary of each session. Raises Replaced."""
        with self._lock:
            self._abandon()
            self._summaries, self._watched = {}, frozenset()
            if self._overview is not None:
                self._overview.clear()
            self._demand_same()
            ends = self._log.end_offsets(SESSION_EVENTS)
            opened: dict[int, PartitionCache] = {}
            try:
                for number, end in ends.items():
                    opened[number] = PartitionCache(
                        number, self._open(number, end), self._hot_sessions
                    )
            finally:
                self._owned = opened
            self._goal = dict(ends)
            for number, owned in self._owned.items():
                try:
                    self._summarise(owned)
                except (Corrupt, DiskFailed) as damage:
                    self._rebuild(number, f"its store is damaged ({damage})")

    def _abandon(self) -> None:
        """Close every store and ignore errors, because RocksDB raises on close after a failed
        write.
        """
        owned, self._owned = self._owned, {}
        for one in owned.values():
            one.release()
            with suppress(Exception):
                one.store.close()

    def _demand_same(self) -> None:
        if self._log.topic_id(SESSION_EVENTS) != self._topic_id:
            raise Replaced(
                f"the topic {SESSION_EVENTS} was deleted and created again, so this gateway's "
                "state belongs to the deleted topic. It ends; restart it to show the new topic."
            )

    def _follow(self) -> None:
        """Read until the tail is closed. Raises the error that stops reading."""
        start = {p: owned.first_read() for p, owned in self._owned.items()}
        reader = self._log.reader(SESSION_EVENTS, start)
        try:
            progressed = monotonic()
            while not self._halt.is_set():
                places = self.places()
                for partition, offset in self._poll(reader).items():
                    reader.seek(partition, offset)
                if self.places() != places:
                    progressed, self.unreachable_since = monotonic(), None
                elif monotonic() - progressed > QUIET_S:
                    self._check_topic()
                    progressed = monotonic()
        finally:
            reader.close()

    def _check_topic(self) -> None:
        """Check that the topic is still the same, and record since when no broker has responded.

        Polling does not show this: a reader gets no error if the topic was replaced or if no broker
        responds. Raises Replaced.
        """
        try:
            self._demand_same()
            self.unreachable_since = None
        except LogUnreachable:
            self.unreachable_since = self.unreachable_since or monotonic()

    def _poll(self, reader: Reader) -> dict[int, int]:
        """Fold new records. Returns where to continue in partitions whose stores were rebuilt."""
        try:
            records = reader.poll(POLL_S)
        except OffsetGone as gone:
            self.on_gap()  # viewers saw records that no longer exist
            return {gone.partition: self._rebuild(gone.partition, str(gone))}
        batch, sought = Batch([], [], {}), {}
        for number, run in groupby(records, attrgetter("partition")):
            if number in sought:
                continue
            try:
                with self._lock:
                    self._fold_run(self._owned[number], list(run), batch)
            except LogCut:
                raise
            except (Corrupt, DiskFailed) as damage:
                if isinstance(damage, DiskFailed) and self._owned[number].store.is_new:
                    raise  # the disk fails under a new store too
                sought[number] = self._rebuild(number, f"its store is damaged ({damage})")
                self.on_gap()
        if any(batch):
            self.on_batch(batch)
        return sought

    def _fold_run(self, owned: PartitionCache, records: list[Record], batch: Batch) -> None:
        write = partial(self._write, owned)
        owned.fold_run(records, lambda record: self._fold(owned, record, batch), write)
        if owned.next_offset != owned.store.cursor.offset:
            write()

    def _fold(self, owned: PartitionCache, record: Record, batch: Batch) -> str | None:
        """Fold one record. See `PartitionCache.fold_run`: viewers need every chunk."""
        watched = record.key in self._watched
        owned.advance(record)
        if not (watched or is_foldable(record.key)):
            return None
        entry = foldable_entry(record, self._read, chunks=watched)
        folded = owned.feed(entry)
        if folded is None:
            self._update_served(owned, batch)
            return None
        if watched:
            batch.events.append(folded)
        if type(entry.event) in CHUNKS and folded.ruling is ACCEPTED:
            return None if watched else entry.session_id
        self._add_to_batch(owned, folded, batch)
        return None

    def _add_to_batch(self, owned: PartitionCache, folded: FoldedEvent, batch: Batch) -> None:
        entry = folded.entry
        if entry.writer == COMMAND_WRITER:
            batch.decisions.append(decision_of(folded))
        if folded.views.turn.known and folded.views is not folded.before:
            line = summary(folded.views, owned.number, owned.partition)
            if self._overview is not None:
                self._overview.take(folded.views, line, folded.before)
            if self._summaries.get(entry.session_id) != line:
                self._summaries[entry.session_id] = batch.summaries[entry.session_id] = line

    def _update_served(self, owned: PartitionCache, batch: Batch) -> None:
        """After a change of a partition's holders, update which of its open sessions are served."""
        for session_id, line in list(self._summaries.items()):
            if line["partition"] != owned.number or line["status"] not in OPEN:
                continue
            lacked = line["reason"] if line["status"] is Status.UNSERVED else None
            if why_unserved(line["agent"], owned.partition) is lacked:
                continue
            views = owned.views(session_id)
            owned.trim({session_id})
            assert views is not None, "a summary is of a session in the store"
            new = summary(views, owned.number, owned.partition)
            if new != line:
                self._summaries[session_id] = batch.summaries[session_id] = new
                if self._overview is not None:
                    self._overview.changed(new)

    def _write(self, owned: PartitionCache) -> None:
        for session_id, views in owned.write(_never_pending).items():
            self._print(f"session {session_id} cannot be stored: {views.frozen}")
        owned.trim(owned.touched)
        owned.touched = set()

    # -- stores ------------------------------------------------------------------------------------

    def _open(self, partition: int, end: int, *, fresh: bool = False) -> Store:
        first = self._log.first_offsets(SESSION_EVENTS)[partition]
        identity = self._log.identity(), self._log.topic_id(SESSION_EVENTS)
        belongs = Belongs(*identity, fold_version())
        return self._opener.open(partition, belongs, end, first, fresh=fresh)

    def _rebuild(self, partition: int, why: str) -> int:
        """Rebuild a partition's store. Returns the offset to continue from. Raises LogCut."""
        with self._lock:
            owned = self._owned[partition]
            self._print(f"the gateway's store {partition} is rebuilt from the log: {why}")
            if self._overview is not None:
                self._overview.forget(partition)
            end = self._log.end_offsets(SESSION_EVENTS)[partition]
            while True:
                owned.store.abandon()
                owned.reset(self._open(partition, end, fresh=True))
                try:
                    self._summarise(owned)
                    return owned.first_read()
                except Corrupt as damage:  # in a snapshot: the next one is older, the last is empty
                    self._print(f"the gateway's store {partition} is damaged too: {damage}")

    def _summarise(self, owned: PartitionCache) -> None:
        for session_id in owned.store.sessions():
            views = owned.store.load(session_id)
            owned.store.forget(session_id)
            if views is not None and views.turn.known:
                line = summary(views, owned.number, owned.partition)
                self._summaries[session_id] = line
                if self._overview is not None:
                    self._overview.take(views, line)


def _never_pending(_views: SessionViews) -> bool:
    return False
