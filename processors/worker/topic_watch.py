"""Checks periodically whether the topic is still the one that this worker reads.

A topic that is deleted and recreated gets another id. A reader notices this only if the new topic
is so short that the reader's next offset does not exist. Otherwise the records of both topics would
be folded together without any error.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from ...log.door import Log
from ...log.errors import FoldlogError
from ...schemas.topics import SESSION_EVENTS

CHECK_S = 5.0  # one small request; for this long, a worker may fold records of another topic
CLOSE_S = 2.0


class TopicWatch:
    """A thread that passes the topic's id to `found` every CHECK_S seconds,
    while a broker answers."""

    def __init__(self, log: Log, found: Callable[[str], None], check_s: float = CHECK_S) -> None:
        self._log, self._found, self._check_s = log, found, check_s
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic watch", daemon=True)

    def start(self) -> None:
        """Start the thread; the first check follows after `check_s`."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, if it was started."""
        self._halt.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._halt.wait(self._check_s):
            # The broker is unreachable, or the topic is not recreated yet: a later check will tell.
            with suppress(FoldlogError):
                self._found(self._log.topic_id(SESSION_EVENTS))
