"""The thread of a worker: assembles the parts, then works until it is stopped or fails.

`host.py` runs it in a separate process, `client/worker.py` in an application's process.
"""

import threading
from collections.abc import Callable

from ...schemas.enums import Role
from .assemble import Parts, say

JOIN_S = 10.0
"""How long the thread may take to finish its round after `stop`, in seconds."""


class WorkerThread(threading.Thread):
    """Calls `begin` once the parts exist, and `end` when the thread ends, by itself or after
    `stop`.

    parts: the assembled parts; None until they are assembled.
    failed: the exception of the assembly. The exception that ended the work is in `parts.fatal`.
    """

    def __init__(
        self,
        assemble: Callable[[], Parts],
        begin: Callable[[Parts], None],
        end: Callable[[], None],
    ) -> None:
        super().__init__(name="poll", daemon=True)
        self.parts: Parts | None = None
        self.failed: BaseException | None = None
        self.is_stopping = False
        self._assemble, self._begin, self._end = assemble, begin, end

    def run(self) -> None:
        """The body of the thread."""
        try:
            parts = self._assemble()
        except BaseException as error:
            self.failed = error
            self._end()
            return
        self.parts = parts
        if self.is_stopping:  # stopped before the parts existed
            parts.loop.stop()
        try:
            self._begin(parts)
            models = Role.MODELS in parts.worker.roles
            parts.topic_watch.start()
            # Not earlier, because the import of the model SDK would compete with pending
            # obligations.
            parts.loop.run(parts.effects.warm if models else lambda: None)
        except BaseException as error:
            parts.fatal.append(error)
            if not self.is_stopping:
                say(f"the worker is ending: {type(error).__name__}: {error}")
        finally:
            self._end()

    def stop(self) -> bool:
        """Ask the thread to end after the present round, and wait. Returns False if it has not
        ended in time. The caller must still close the parts."""
        self.is_stopping = True
        if self.parts is not None:
            self.parts.loop.stop()
            self.parts.log.interrupt()
        self.join(JOIN_S)
        return not self.is_alive()
