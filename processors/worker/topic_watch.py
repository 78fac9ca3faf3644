"""Asks now and then whether the topic is still the one that this worker reads.

A topic that is deleted and made again gets another id. A reader learns of it by an offset that is
gone, but only if the new topic is shorter than what was read of the old one; else the records of
two logs would be folded together, without an error anywhere.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from ...log.door import Log
from ...log.errors import FoldlogError
from ...schemas.topics import SESSION_EVENTS

LOOK_S = 5.0  # one small request; so long may a worker fold the records of another topic
CLOSE_S = 2.0


class TopicWatch:
    """A thread that passes the topic's id to `found` every LOOK_S, while a broker answers."""

    def __init__(self, log: Log, found: Callable[[str], None], look_s: float = LOOK_S) -> None:
        self._log, self._found, self._look_s = log, found, look_s
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic watch", daemon=True)

    def start(self) -> None:
        """Begin to look; the first time after a while."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, if it was started."""
        self._halt.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._halt.wait(self._look_s):
            # Away, or deleted and not made again yet: known at a later look.
            with suppress(FoldlogError):
                self._found(self._log.topic_id(SESSION_EVENTS))
