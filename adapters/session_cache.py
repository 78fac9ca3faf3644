"""A cache of the sessions that a process uses, kept up to date by one thread.

When a session is first used, it is folded from its first offset. After that, the thread reads the
partitions of the cached sessions and folds new events as they arrive. A writer registers the id of
its event before it writes the event, and gets the ruling once the thread has folded it. A reader
gets the views at the log's end.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from ..client.follow import STALL_S
from ..client.outcomes import Decision, decision_of
from ..client.session_fold import SessionFold
from ..log.door import Log, Offsets, Reader
from ..log.errors import LogUnreachable, OffsetGone
from ..log.made import partitions_of
from ..log.partition import partition_for
from ..processors.entries import foldable_entry
from ..processors.fold.sessions import fold_event
from ..processors.fold.views import SessionViews
from ..schemas.events.parts import ReadBlob
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS

POLL_S = 0.05
"""How long a poll waits, in seconds. A new partition is first read after at most this time."""

SESSIONS_MAX = 1000
"""The most sessions in memory.

The least recently used session is dropped, and folded again on use.
"""


class _Session:
    """A session in memory, folded up to `next`. `users`: how many callers use it at present."""

    __slots__ = ("next", "partition", "users", "views")

    def __init__(self, views: SessionViews, partition: int, next: int) -> None:
        self.views, self.partition, self.next, self.users = views, partition, next, 0


class SessionCache:
    """Sessions by id, each at an offset that only moves forward. Any thread may use a cache.

    `name_of` returns the id of an event, by which a caller can wait for the ruling on it. `read`
    reads the seeds of forks. Every method raises LogUnreachable or TopicMissing if the log cannot
    be read.
    """

    def __init__(
        self, log: Log, name_of: Callable[[object], str], read: ReadBlob | None = None
    ) -> None:
        self._log, self._name_of, self._read = log, name_of, read
        self._changed = threading.Condition()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._keys: frozenset[bytes] = frozenset()
        self._loading: set[str] = set()
        self._expected: dict[tuple[str, str], Decision | None] = {}
        self._followed: Offsets = {}
        self._partitions = partitions_of(log)
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._closed = False

    def views(self, session_id: str) -> SessionViews:
        """The cached views. They include every event whose ruling this cache has returned, but
        perhaps not the newest events of the log.
        """
        with self._changed:
            return self._use(session_id).views

    def fresh_views(self, session_id: str) -> SessionViews:
        """The views after every event that is in the log now."""
        end = self._log.end_offsets(SESSION_EVENTS)[partition_for(session_id, self._partitions)]
        with self._changed:
            session = self._use(session_id)
            session.users += 1
            try:
                self._wait_for(lambda: self._upto(session) >= end)
            finally:
                session.users -= 1
            return session.views

    def expect(self, session_id: str, name: str) -> None:
        """Record the ruling on the session's next event whose id is `name`, so that `decision` can
        return it.
        """
        with self._changed:
            self._use(session_id).users += 1
            self._expected[session_id, name] = None

    def decided(self, session_id: str, name: str) -> Decision | None:
        """The expected ruling, or None if the event is not folded yet."""
        with self._changed:
            return self._expected[session_id, name]

    def decision(self, session_id: str, name: str) -> Decision:
        """Wait for the expected ruling."""
        with self._changed:
            self._wait_for(lambda: self._expected[session_id, name] is not None)
            found = self._expected[session_id, name]
            assert found is not None
            return found

    def forget(self, session_id: str, name: str) -> None:
        """Stop expecting the ruling."""
        with self._changed:
            del self._expected[session_id, name]
            if session_id in self._sessions:
                self._sessions[session_id].users -= 1

    def close(self) -> None:
        """Stop reading the log. Callers that still wait get an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    # -- called with the lock held -----------------------------------------------------------------

    def _use(self, session_id: str) -> _Session:
        while True:
            if self._closed:
                raise RuntimeError("this session store is closed. Create a new one.")
            session = self._sessions.get(session_id)
            if session is not None:
                self._sessions.move_to_end(session_id)
                self._follow()
                return session
            if session_id in self._loading:
                self._changed.wait()
                continue
            self._loading.add(session_id)
            self._changed.release()
            try:
                self._load(session_id)
            finally:
                self._changed.acquire()
                self._loading.discard(session_id)
                self._changed.notify_all()

    def _upto(self, session: _Session) -> int:
        return max(session.next, self._followed.get(session.partition, 0))

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until `done` returns True. Raises LogUnreachable if reading stalls, or the error
        that ended the thread.
        """
        progressed, before = time.monotonic(), dict(self._followed)
        while not done():
            self._follow()
            if self._closed:
                raise RuntimeError("this session store is closed. Create a new one.")
            self._changed.wait(POLL_S)
            if self._followed != before:
                progressed, before = time.monotonic(), dict(self._followed)
            elif time.monotonic() - progressed > STALL_S:
                raise LogUnreachable(
                    f"the log stopped responding: reading it made no progress for {STALL_S:g} s. "
                    "Acknowledged events are kept. Check the broker (`foldlog status`), then try "
                    "again."
                )

    def _follow(self) -> None:
        """Start the reading thread if it is not running. Raises the last thread's error once."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._followed and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="foldlog-sessions", daemon=True)
            self._thread.start()

    # -- without the lock --------------------------------------------------------------------------

    def _load(self, session_id: str) -> None:
        """Fold a session up to the offset that the thread has reached in its partition, and cache
        it.
        """
        with SessionFold(self._log, session_id, read=self._read) as folded:
            place = folded.end()
            while True:
                for _ in folded.upto(place):
                    pass
                with self._changed:
                    at = self._followed.setdefault(folded.partition, place)
                    if at <= place:  # the thread skips events that are already folded
                        self._keep(session_id, _Session(folded.views, folded.partition, place))
                        return
                    place = at

    def _keep(self, session_id: str, session: _Session) -> None:
        self._sessions[session_id] = session
        unused = [name for name, other in self._sessions.items() if not other.users]
        for name in unused[: max(0, len(self._sessions) - SESSIONS_MAX)]:
            if name != session_id:
                del self._sessions[name]
        self._keys = frozenset(name.encode() for name in self._sessions)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        reader: Reader | None = None
        try:
            while True:
                with self._changed:
                    if self._closed:
                        return
                    start = dict(self._followed)
                if reader is None or reader.positions().keys() != start.keys():
                    if reader is not None:
                        reader.close()
                    reader = self._log.reader(SESSION_EVENTS, start)
                self._poll(reader)
        except BaseException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()
        finally:
            if reader is not None:
                reader.close()

    def _poll(self, reader: Reader) -> None:
        try:
            records = reader.poll(POLL_S)
        except OffsetGone as gone:
            self._lost(gone.partition)
            return
        with self._changed:
            for record in records:
                if record.key in self._keys:
                    self._fold(record)
            moved = {p: at for p, at in reader.positions().items() if p in self._followed}
            if moved.items() - self._followed.items():
                self._followed.update(moved)
                self._changed.notify_all()

    def _fold(self, record: Record) -> None:
        entry = foldable_entry(record, self._read)
        session = self._sessions[entry.session_id]
        if entry.offset < session.next:
            return
        folded = fold_event(session.views, entry)
        session.views, session.next = folded.views, entry.offset + 1
        wanted = entry.session_id, self._name_of(entry.event)
        if self._expected.get(wanted, self) is None:  # of repeated events, the first counts
            self._expected[wanted] = decision_of(folded)

    def _lost(self, partition: int) -> None:
        """Drop the partition's sessions, because the log no longer has their next offset. A session
        is folded again when it is used next.
        """
        with self._changed:
            self._followed.pop(partition, None)
            for session_id, session in list(self._sessions.items()):
                if session.partition == partition:
                    del self._sessions[session_id]
            self._keys = frozenset(name.encode() for name in self._sessions)
            self._changed.notify_all()
