"""The one reader of the log that all viewers of a gateway share: it folds, and hands on.

A thread polls every partition from the place of its store on, folds as a worker folds, and gives
each batch to a listener. Sessions that are watched have their chunks decoded. It claims nothing and
owes nothing: what it keeps is a cache of the log. So whatever stops it (a full disk, a topic that
is missing) it begins again from its stores, until that works; only another log in the place of the
one that it knows, or a bug, ends it, and with it the process.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

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
from ...processors.fold.projections.partition import PartitionView
from ...processors.fold.sessions import FoldedEvent, is_foldable
from ...processors.fold.views import SessionViews
from ...processors.store.fork_seeds import foldable_entry
from ...processors.store.partition_cache import PartitionCache
from ...processors.store.store import Belongs, Store, fold_version, new_store, open_store
from ...schemas.codec import ChunkSeen
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS
from ..outcomes import Decision, decision_of
from ..show import open_status, summary

POLL_S = 0.2
"""How long a look waits for records; the end of the process is felt this late at most."""

OPEN = ("busy", "unserved")
"""The words for a session that depend on who holds its partition."""

AGAIN_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""How long it waits before it begins again; the last one however often."""

QUIET_S = 5.0
"""Silence of the log after which it is asked whether it is there, and still the same."""

ASKED = "producer"
"""The writer whose events somebody waits for a decision on."""


class NotReady(Retry):
    """The gateway can not say yet, or no longer, how a session stands."""


class Replaced(TopicMismatch):
    """The topic was deleted and made again: whatever this process holds is of another log."""


class Batch(NamedTuple):
    """What one look at the log came to.

    seen: events of watched sessions, in log order of each. decided: rulings on what producers
    asked for. moved: the new summary of every session that changed by more than its stream.
    """

    seen: list[FoldedEvent]
    decided: list[Decision]
    moved: dict[str, dict[str, Any]]


class Tail:
    """Folds every partition, in a thread of its own, until it is closed.

    `directory`: where its stores lie, one gateway at a time. `listen` gets every batch that is not
    empty, in the thread. `interrupted` is called in it when batches may be missing: whoever was
    shown them must begin anew; `ended` when it will never go on. `failed`: why it does not follow
    the log now. `read`: where the seeds of forks are. Raises LogUnreachable, TopicMissing when it
    is made.
    """

    def __init__(
        self,
        log: Log,
        directory: Path,
        say: Callable[[str], None],
        read: ReadBlob | None = None,
    ) -> None:
        self._read = read
        self._log, self._directory, self._say = log, directory, say
        self._lock, self._halt = threading.RLock(), threading.Event()
        self._watched: frozenset[bytes] = frozenset()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self.listen: Callable[[Batch], object] = lambda _batch: None
        self.interrupted: Callable[[], object] = lambda: None
        self.ended: Callable[[], None] = lambda: None
        self.failed: BaseException | None = None
        self.over = False  # it will not begin again
        self.unreachable_since: float | None = None  # of the monotonic clock
        self._owned: dict[int, PartitionCache] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._topic_id = log.topic_id(SESSION_EVENTS)
        self._begin()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End reading, and close the stores."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._abandon()

    # -- what others ask, from any thread ----------------------------------------------------------

    def views(self, session_id: str) -> SessionViews | None:
        """The views of a session as of now; None if it is not known."""
        with self._lock:
            found = (owned := self._place(session_id)).views(session_id)
            owned.trim({session_id})
        return found if found is not None and found.turn.known else None

    def user_of(self, session_id: str) -> str | None:
        """Whose a session is; None if it is not known."""
        return self._summaries.get(session_id, {}).get("user_id")

    def cursor(self, session_id: str) -> tuple[int, int]:
        """The session's partition, and the next offset of it that is not folded."""
        owned = self._place(session_id)
        return owned.number, owned.next_offset

    def holders(self, session_id: str) -> PartitionView:
        """Who holds the partition of a session."""
        return self._place(session_id).partition

    def watch(self, session_id: str) -> tuple[SessionViews | None, int]:
        """Have a session's chunks decoded from now on; its views, and the next offset."""
        with self._lock:
            self._watched |= {session_id.encode()}
            return self.views(session_id), self.cursor(session_id)[1]

    def unwatch(self, session_id: str) -> None:
        """Leave a session's chunks alone again."""
        with self._lock:
            self._watched -= {session_id.encode()}

    def summaries(self, user: str | None = None) -> list[dict[str, Any]]:
        """A line per session, of one user or of all, last changed first."""
        with self._lock:
            found = [s for s in self._summaries.values() if user in (None, s["user_id"])]
        return sorted(found, key=lambda s: (-s["updated_at"], s["session_id"]))

    def end(self, session_id: str) -> int:
        """The present end of the session's partition. Raises LogUnreachable."""
        return self._log.end_offsets(SESSION_EVENTS)[self._place(session_id).number]

    def places(self) -> dict[int, int]:
        """The next offset that is not folded, of every partition."""
        return {number: owned.next_offset for number, owned in list(self._owned.items())}

    def lag(self) -> int:
        """How many records lie before the end of the log. Raises LogUnreachable."""
        ends = self._log.end_offsets(SESSION_EVENTS)
        return sum(max(0, ends[p] - owned.next_offset) for p, owned in self._owned.items())

    @property
    def caught_up(self) -> bool:
        """Whether it has come to where the log ended when it began."""
        return all(owned.next_offset >= self._goal[p] for p, owned in self._owned.items())

    def ready(self) -> None:
        """Raise NotReady as long as it has not come to where the log ended when it began."""
        if self.failed is not None:
            raise NotReady(
                "this gateway does not follow the log at present; what was said is kept. It tries "
                "again by itself; its operator finds why in what it printed."
            )
        if not self.caught_up:
            raise NotReady("this gateway still reads the log: ask again in a moment")

    def _place(self, session_id: str) -> PartitionCache:
        if not self._owned:
            raise NotReady("this gateway opens its stores: ask again in a moment")
        return self._owned[partition_for(session_id, len(self._owned))]

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        waits = iter(AGAIN_S)
        while not self._halt.is_set():
            try:
                if self.failed is not None:
                    self._begin()
                    self._say("the gateway follows the log again")
                    self.failed, self.unreachable_since = None, None
                    waits = iter(AGAIN_S)
                    self.interrupted()
                self._follow()
            except (FoldlogError, OSError) as error:
                self._fail(error)
                if isinstance(error, Replaced):
                    return self._end()
                self._halt.wait(next(waits, AGAIN_S[-1]))
            except BaseException as error:
                self._fail(error)
                return self._end()

    def _end(self) -> None:
        self.over = True
        self.ended()

    def _fail(self, error: BaseException) -> None:
        is_news = str(error) != str(self.failed)
        self.failed = error
        if is_news:
            what = f"{type(error).__name__}: {error}"
            self._say(f"the gateway does not follow the log: {what}")
        self.interrupted()

    def _begin(self) -> None:
        """Open every store, and have a line of each session. Raises Replaced."""
        with self._lock:
            self._abandon()
            self._summaries, self._watched = {}, frozenset()
            self._demand_same()
            ends = self._log.end_offsets(SESSION_EVENTS)
            opened: dict[int, PartitionCache] = {}
            try:
                for number, end in ends.items():
                    opened[number] = PartitionCache(number, self._open(number, end))
            finally:
                self._owned = opened
            self._goal = dict(ends)
            for number, owned in self._owned.items():
                try:
                    self._summarise(owned)
                except Corrupt as damage:
                    self._anew(number, f"its store is damaged ({damage})")

    def _abandon(self) -> None:
        """Close every store as well as may be: after a failed write RocksDB complains of that."""
        owned, self._owned = self._owned, {}
        for one in owned.values():
            with suppress(Exception):
                one.store.close()

    def _demand_same(self) -> None:
        if self._log.topic_id(SESSION_EVENTS) != self._topic_id:
            raise Replaced(
                f"the topic {SESSION_EVENTS} was deleted and made again: what this gateway knows "
                "is of the one that is gone. It ends; started again it shows what there is now."
            )

    def _follow(self) -> None:
        """Read on until told to end. Raises what stops it."""
        start = {p: owned.first_read() for p, owned in self._owned.items()}
        reader = self._log.reader(SESSION_EVENTS, start)
        try:
            heard = monotonic()
            while not self._halt.is_set():
                places = self.places()
                for partition, offset in self._look(reader).items():
                    reader.seek(partition, offset)
                if self.places() != places:
                    heard, self.unreachable_since = monotonic(), None
                elif monotonic() - heard > QUIET_S:
                    self._ask_whether_it_is_there()
                    heard = monotonic()
        finally:
            reader.close()

    def _ask_whether_it_is_there(self) -> None:
        """A deleted topic and a broker that is away are both silence to a reader."""
        try:
            self._demand_same()
            self.unreachable_since = None
        except LogUnreachable:
            self.unreachable_since = self.unreachable_since or monotonic()

    def _look(self, reader: Reader) -> dict[int, int]:
        """Fold what has come; where to read on, of partitions whose store was made anew."""
        try:
            records = reader.poll(POLL_S)
        except OffsetGone as gone:
            self.interrupted()  # viewers were shown what is gone
            return {gone.partition: self._anew(gone.partition, str(gone))}
        batch, sought = Batch([], [], {}), {}
        for number, run in groupby(records, attrgetter("partition")):
            if number in sought:
                continue
            try:
                with self._lock:
                    owned = self._owned[number]
                    for record in run:
                        owned.check(record)
                        if owned.is_next(record):
                            self._fold(owned, record, batch)
                    if owned.next_offset != owned.store.cursor.offset:
                        self._write(owned)
            except LogCut:
                raise
            except Corrupt as damage:
                sought[number] = self._anew(number, f"its store is damaged ({damage})")
                self.interrupted()
        if any(batch):
            self.listen(batch)
        return sought

    def _fold(self, owned: PartitionCache, record: Record, batch: Batch) -> None:
        watched = record.key in self._watched
        owned.folded(record)
        if not is_foldable(record.key):
            return
        entry = foldable_entry(record, self._read, chunks=watched)
        folded = owned.feed(entry)
        if folded is None:
            self._serve_anew(owned, batch)
            return
        if watched:
            batch.seen.append(folded)
        if type(entry.event) is not ChunkSeen:
            self._tell(owned, folded, batch)

    def _tell(self, owned: PartitionCache, seen: FoldedEvent, batch: Batch) -> None:
        entry = seen.entry
        if entry.writer == ASKED:
            batch.decided.append(decision_of(seen))
        if seen.views.turn.known and seen.views is not seen.before:
            line = summary(seen.views, owned.number, owned.partition)
            if self._summaries.get(entry.session_id) != line:
                self._summaries[entry.session_id] = batch.moved[entry.session_id] = line

    def _serve_anew(self, owned: PartitionCache, batch: Batch) -> None:
        """Correct which open sessions of a partition are served, after its holder changed."""
        for session_id, line in list(self._summaries.items()):
            if line["partition"] == owned.number and line["status"] in OPEN:
                moved = {**line, "status": open_status(line["agent"], owned.partition)}
                if moved != line:
                    self._summaries[session_id] = batch.moved[session_id] = moved

    def _write(self, owned: PartitionCache) -> None:
        for session_id, views in owned.write(_owes_nothing).items():
            self._say(f"session {session_id} cannot be stored: {views.frozen}")
        owned.trim(owned.touched)
        owned.touched = set()

    # -- stores ------------------------------------------------------------------------------------

    def _open(self, partition: int, end: int, *, fresh: bool = False) -> Store:
        first = self._log.first_offsets(SESSION_EVENTS)[partition]
        identity = self._log.identity(), self._log.topic_id(SESSION_EVENTS)
        belongs, directory = Belongs(*identity, fold_version()), self._directory / str(partition)
        if fresh:
            return new_store(directory, belongs, end, first_offset=first)
        return open_store(directory, belongs, end, self._say, first)

    def _anew(self, partition: int, why: str) -> int:
        """Where to read on from with a new store of a partition. Raises LogCut."""
        with self._lock:
            owned = self._owned[partition]
            self._say(f"the gateway's store {partition} is made anew from the log: {why}")
            owned.store.abandon()
            end = self._log.end_offsets(SESSION_EVENTS)[partition]
            owned.reset(self._open(partition, end, fresh=True))
            return owned.next_offset

    def _summarise(self, owned: PartitionCache) -> None:
        for session_id in owned.store.sessions():
            views = owned.store.load(session_id)
            owned.store.forget(session_id)
            if views is not None and views.turn.known:
                self._summaries[session_id] = summary(views, owned.number, owned.partition)


def _owes_nothing(_views: SessionViews) -> bool:
    return False
