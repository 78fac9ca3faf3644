"""Searches the content of sessions for the gateway, with the same index as `foldlog search`.

The index is one SQLite file, so only one thread reads and updates it. If the index is far behind
the log, a search returns the progress instead of hits while the index catches up.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as StillRunning
from pathlib import Path
from typing import NamedTuple

from ...log.door import Log
from ...log.errors import Retry
from ...reports.search.search_index import Found, Progress, TranscriptIndex
from ...schemas.events.parts import ReadBlob

WAIT_S = 2.0
"""How long a search waits for the index before it returns the progress, in seconds."""

QUEUED_MAX = 16
"""The most searches that wait for the thread; a further search returns the progress at once."""


class Behind(NamedTuple):
    """The index is being updated: the number of events read, and the number to read in total."""

    progress: Progress


class Finder:
    """Searches one index; any thread may call it. Raises the errors of the index: IndexUnusable,
    Retry.
    """

    def __init__(
        self, log: Log, path: Path, read: ReadBlob, print_line: Callable[[str], None]
    ) -> None:
        self._log, self._path, self._read, self._print = log, path, read, print_line
        self._thread = ThreadPoolExecutor(1, "finder")
        self._index: TranscriptIndex | None = None
        self._lock = threading.Lock()
        self._queued = 0
        self._progress = Progress(0, 0)
        self._closing = False

    def search(self, words: str, user: str | None, limit: int) -> list[Found] | Behind:
        """The best matches in the user's documents, or in all documents if `user` is None."""
        with self._lock:
            if self._queued >= QUEUED_MAX:
                return Behind(self._progress)
            self._queued += 1
        job: Future[list[Found]] = self._thread.submit(self._search, words, user, limit)
        job.add_done_callback(self._leave)
        try:
            return job.result(WAIT_S)
        except StillRunning:
            return Behind(self._progress)

    def _leave(self, _job: Future) -> None:
        with self._lock:
            self._queued -= 1

    def _search(self, words: str, user: str | None, limit: int) -> list[Found]:
        self._demand_running()
        if self._index is None:
            self._index = TranscriptIndex(self._log, self._path, self._read, self._print)
        self._index.catch_up(self._note)
        return self._index.search(words, user, limit=limit)

    def _note(self, progress: Progress) -> None:
        self._progress = progress
        self._demand_running()  # the batch read so far is already committed

    def _demand_running(self) -> None:
        if self._closing:
            raise Retry("this gateway is ending: nothing was searched. Try again in a moment")

    def close(self) -> None:
        """End the thread after its current batch.

        SQLite requires that the same thread closes the file.
        """
        self._closing = True
        self._thread.submit(self._close_index)
        self._thread.shutdown()

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
