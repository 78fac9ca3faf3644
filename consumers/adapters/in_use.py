"""The sessions that a process uses, folded in memory by one thread that follows their partitions.

A session is folded from its first offset when it is first used, and from then on as its events
come. Whoever writes asks for the decision before it writes, and is told when the fold has it;
whoever reads is given the views as of the log's end. This file must not know what events are for.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from ...log.door import Log, Offsets, Reader
from ...log.errors import LogUnreachable, OffsetGone
from ...log.made import partitions_of
from ...log.partition import partition_for
from ...processors.fold.sessions import fold_event
from ...processors.fold.views import SessionViews
from ...processors.store.fork_seeds import foldable_entry
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS
from ..follow import STALL_S
from ..outcomes import Decision, decision_of
from ..session_fold import SessionFold

POLL_S = 0.05
"""How long a look waits: a partition that is new to the process is followed this late at most."""

KEPT_MAX = 1000
"""Sessions in memory; beyond it the one that was not used for longest is folded anew when used."""


class _Held:
    """A session in memory, with every event before `next`; `users` wait for it now."""

    __slots__ = ("next", "partition", "users", "views")

    def __init__(self, views: SessionViews, partition: int, next: int) -> None:
        self.views, self.partition, self.next, self.users = views, partition, next, 0


class InUse:
    """Sessions by id, at a place that only moves forward. May be used from several threads.

    `name_of` gives the id that an event carries, for those whose decision somebody may wait for;
    `read`: where the seeds of forks are.
    Every question raises LogUnreachable or TopicMissing when the log can't be read.
    """

    def __init__(
        self, log: Log, name_of: Callable[[object], str], read: ReadBlob | None = None
    ) -> None:
        self._log, self._name_of, self._read = log, name_of, read
        self._changed = threading.Condition()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._keys: frozenset[bytes] = frozenset()
        self._loading: set[str] = set()
        self._expected: dict[tuple[str, str], Decision | None] = {}
        self._followed: Offsets = {}
        self._partitions = partitions_of(log)
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._closed = False

    def seen(self, session_id: str) -> SessionViews:
        """The views as this process has them: at least as far as all that it was told of."""
        with self._changed:
            return self._use(session_id).views

    def fresh(self, session_id: str) -> SessionViews:
        """The views with every event that is in the log now."""
        end = self._log.end_offsets(SESSION_EVENTS)[partition_for(session_id, self._partitions)]
        with self._changed:
            held = self._use(session_id)
            held.users += 1
            try:
                self._wait_for(lambda: self._upto(held) >= end)
            finally:
                held.users -= 1
            return held.views

    def expect(self, session_id: str, name: str) -> None:
        """Keep the decision on the next event of the session that carries this id."""
        with self._changed:
            self._use(session_id).users += 1
            self._expected[session_id, name] = None

    def decided(self, session_id: str, name: str) -> Decision | None:
        """The decision that is expected, if the fold has it."""
        with self._changed:
            return self._expected[session_id, name]

    def decision(self, session_id: str, name: str) -> Decision:
        """The decision that is expected, when the fold has it."""
        with self._changed:
            self._wait_for(lambda: self._expected[session_id, name] is not None)
            found = self._expected[session_id, name]
            assert found is not None
            return found

    def forget(self, session_id: str, name: str) -> None:
        """End what `expect` began."""
        with self._changed:
            del self._expected[session_id, name]
            if session_id in self._held:
                self._held[session_id].users -= 1

    def close(self) -> None:
        """End following; who still waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    # -- for whoever asks: the lock is held --------------------------------------------------------

    def _use(self, session_id: str) -> _Held:
        while True:
            if self._closed:
                raise RuntimeError("the sessions are closed")
            held = self._held.get(session_id)
            if held is not None:
                self._held.move_to_end(session_id)
                self._follow()
                return held
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

    def _upto(self, held: _Held) -> int:
        return max(held.next, self._followed.get(held.partition, 0))

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Wait for the thread. Raises LogUnreachable when it stands still, or what ended it."""
        moved, before = time.monotonic(), dict(self._followed)
        while not done():
            self._follow()
            if self._closed:
                raise RuntimeError("the sessions are closed")
            self._changed.wait(POLL_S)
            if self._followed != before:
                moved, before = time.monotonic(), dict(self._followed)
            elif time.monotonic() - moved > STALL_S:
                raise LogUnreachable(
                    f"the log stopped answering for {STALL_S:g} s while it was followed. What it "
                    "acknowledged is kept. Look at the broker (`foldlog status`), then look again."
                )

    def _follow(self) -> None:
        """Have a thread that follows; what ended the last one is raised once."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._followed and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="foldlog-in-use", daemon=True)
            self._thread.start()

    # -- without the lock --------------------------------------------------------------------------

    def _load(self, session_id: str) -> None:
        """Fold a session to where its partition is followed, and hand it to the thread."""
        with SessionFold(self._log, session_id, read=self._read) as folded:
            place = folded.end()
            while True:
                for _ in folded.upto(place):
                    pass
                with self._changed:
                    at = self._followed.setdefault(folded.partition, place)
                    if at <= place:  # the thread skips what is folded already
                        self._keep(session_id, _Held(folded.views, folded.partition, place))
                        return
                    place = at

    def _keep(self, session_id: str, held: _Held) -> None:
        self._held[session_id] = held
        unused = (name for name, other in self._held.items() if not other.users)
        while len(self._held) > KEPT_MAX and (name := next(unused, session_id)) != session_id:
            del self._held[name]
            unused = (name for name, other in self._held.items() if not other.users)
        self._keys = frozenset(name.encode() for name in self._held)

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
                self._look(reader)
        except BaseException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()
        finally:
            if reader is not None:
                reader.close()

    def _look(self, reader: Reader) -> None:
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
        held = self._held[entry.session_id]
        if entry.offset < held.next:
            return
        folded = fold_event(held.views, entry)
        held.views, held.next = folded.views, entry.offset + 1
        wanted = entry.session_id, self._name_of(entry.event)
        if self._expected.get(wanted, self) is None:  # what comes twice was decided the first time
            self._expected[wanted] = decision_of(folded)

    def _lost(self, partition: int) -> None:
        """What is followed is no longer in the log: its sessions are folded anew when used."""
        with self._changed:
            self._followed.pop(partition, None)
            for session_id, held in list(self._held.items()):
                if held.partition == partition:
                    del self._held[session_id]
            self._keys = frozenset(name.encode() for name in self._held)
            self._changed.notify_all()
