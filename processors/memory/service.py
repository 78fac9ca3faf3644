"""Keeps the memory store of a worker current: a thread with its own reader of memory-events.

`begin()` opens the store and starts the thread; `close()` ends the thread and closes the store. A
worker starts without waiting for the thread. The first prompt with memory waits until the store has
folded the records that the log had when the service began. Later prompts do not wait: they may read
slightly older memory, which is harmless because the log keeps the content of each prompt. A writer
that must see its own write calls `await_folded`. While no broker answers, nothing is read.
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...log.door import Log, Producer, Reader
from ...log.errors import Corrupt, FoldlogError, LogFatal, OffsetGone
from ...producers.memory import MemoryWriter, Written
from ...schemas.memory import MemoryWritten
from ...schemas.topics import MEMORY_EVENTS
from ..search.embed import Embedder
from ..sqlite_errors import is_damage
from ..store.store import Belongs
from .extraction import new_entries
from .reader import MemoryReader
from .store import MemoryStore, memory_version

FILE = "memory.sqlite"
POLL_S = 0.5  # the longest wait of a poll, and so of a close
BATCH = 200  # records in one transaction, during which readers wait
RETRY_S = 5.0  # delay between retries after an error of the store or the log
FOLDED_S = 5.0  # a write is folded within milliseconds, unless the log is unreachable
START_S = 2.0  # the poll thread waits: claims that it reads afterwards need their start window
CLOSE_S = 5.0


class MemoryService:
    """The memory of a worker: `reader` is for prompts and tools, `writer(user, role)` for tools.

    `directory`: the worker's state directory, whose lock makes this process the only writer.
    `embedder`: computes the vectors for searches; if it is None, HashedEmbedder does.
    """

    def __init__(
        self,
        log: Log,
        producer: Producer,
        directory: Path,
        say: Callable[[str], None],
        embedder: Embedder | None = None,
    ) -> None:
        self._log, self._producer, self._say = log, producer, say
        self._embedder = embedder
        self._path = directory / FILE
        self._opened: MemoryStore | None = None
        self._ends_at_start: dict[int, int] = {}
        self._ended = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._main, name="memory", daemon=True)
        self.reader = MemoryReader(self._store)

    def begin(self) -> None:
        """Open the store and begin to read the log.

        Raises LogUnreachable, TopicMissing, EmbedderFailed, or sqlite3.Error if no store can be
        created.
        """
        self._opened = self._open()
        self._ends_at_start = self._log_ends()
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the store. Does nothing if `begin` was not called."""
        self._ended.set()
        with self._moved:
            self._moved.notify_all()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)
        if self._opened is not None:
            self._opened.close()

    def writer(self, user: str, role: str) -> MemoryWriter:
        """A writer of memory for a user, in the role `role` (tools or background)."""
        return MemoryWriter(self._producer, user, writer=role)

    def keep(self, scope: str, events: Sequence[MemoryWritten], at: int) -> int:
        """Write the events that were extracted at `at` (Unix ms).
        Returns how many were known already.

        The model saw only the memory in its session's prompt, which may be older than the store, so
        known entries are removed here. If two sessions find the same fact at the same time, it is
        written twice.
        """
        self.await_caught_up()  # otherwise recent entries would be written again
        news = new_entries(events, self.reader.view(scope), at)
        writer = self.writer(scope.partition(":")[2], "background")
        for event in news:
            writer.write(scope, event, event.entry_id)
        return len(events) - len(news)

    def await_folded(self, written: Written, timeout_s: float = FOLDED_S) -> bool:
        """Wait until the store has folded an event. Returns False after the timeout."""
        return self._wait({written.partition: written.offset + 1}, timeout_s)

    def await_caught_up(self, timeout_s: float = FOLDED_S) -> bool:
        """Wait until the store has folded the whole log. Returns False after the timeout."""
        return self._wait(self._log_ends(), timeout_s)

    def await_start(self) -> None:
        """Wait until the store has folded the records that the log had when the service began.
        Waits at most START_S seconds, and only at the first call.

        Without this wait, a new worker would begin a session without the user's memory.
        """
        ends, self._ends_at_start = self._ends_at_start, {}
        if not self._wait(ends, START_S) and not self._ended.is_set():
            self._say(
                f"memory: the log was not read to its end within {START_S:g} s; prompts contain "
                "the part read so far, and get the rest when their prefix next changes"
            )

    def _log_ends(self) -> dict[int, int]:
        """The end offset of every partition that has records now."""
        first = self._log.first_offsets(MEMORY_EVENTS)
        ends = self._log.end_offsets(MEMORY_EVENTS)
        return {number: end for number, end in ends.items() if end > first[number]}

    def _wait(self, wanted: Mapping[int, int], timeout_s: float) -> bool:
        def there() -> bool:
            cursors = self._store().cursors
            return all(cursors.get(p, 0) >= offset for p, offset in wanted.items())

        with self._moved:
            self._moved.wait_for(lambda: self._ended.is_set() or there(), timeout_s)
        return there()

    def _store(self) -> MemoryStore:
        assert self._opened is not None, "memory is read after begin()"
        return self._opened

    def _open(self, rebuild_reason: str | None = None) -> MemoryStore:
        belongs = Belongs(
            self._log.identity(), self._log.topic_id(MEMORY_EVENTS), memory_version()
        )
        ends = self._log.end_offsets(MEMORY_EVENTS)
        return MemoryStore(self._path, belongs, ends, self._say, rebuild_reason, self._embedder)

    def _main(self) -> None:
        rebuild_reason: str | None = None
        while not self._ended.is_set():
            try:
                if rebuild_reason is not None:
                    self._store().close()
                    self._opened, rebuild_reason = self._open(rebuild_reason), None
                self._follow()
            except OffsetGone as gone:
                rebuild_reason = str(gone)
            except sqlite3.DatabaseError as broken:
                if is_damage(broken):
                    rebuild_reason = f"it failed ({type(broken).__name__}: {broken})"
                    self._say(f"memory: the store failed and is rebuilt: {broken}")
                else:  # such as a full disk or a lock: the store is kept
                    self._say(f"memory: the store cannot be used now; retrying: {broken}")
                self._ended.wait(RETRY_S)
            except Corrupt as damage:
                rebuild_reason = f"it is damaged ({damage})"
            except LogFatal as fatal:
                self._say(f"memory is no longer read: {fatal}")
                return
            except FoldlogError as error:
                self._say(f"memory cannot be read now; retrying: {error}")
                self._ended.wait(RETRY_S)
            except Exception as bug:  # otherwise the thread would end silently, with stale memory
                self._say(f"memory is not updated; retrying: {type(bug).__name__}: {bug}")
                self._ended.wait(RETRY_S)

    def _follow(self) -> None:
        store = self._store()
        start = {**self._log.first_offsets(MEMORY_EVENTS), **store.cursors}
        reader: Reader = self._log.reader(MEMORY_EVENTS, start)
        try:
            while not self._ended.is_set():
                if store.damage is not None:
                    raise Corrupt(store.damage)
                records = reader.poll(POLL_S, BATCH)
                if not records:
                    continue
                store.fold(records)
                with self._moved:
                    self._moved.notify_all()
        finally:
            reader.close()

