"""The interfaces of an effect: Sink receives the effect's chunks and its one outcome, and Stop asks
the effect to stop.

Effects are independent of the log, the outbox and the worker: they get a Sink and a Stop.
"""

import asyncio
import threading
from typing import Any, Protocol

from ...schemas.events import GenChunk


class Sink(Protocol):
    """Receives an effect's events."""

    def chunk(self, session_id: str, event: GenChunk) -> None:
        """Produce a chunk without waiting. Chunks reach the log in the order of the calls, before
        the outcome."""

    async def outcome(self, session_id: str, event: Any) -> None:
        """Make the outcome durable on this machine, produce it, and return when the log has it."""


class Stop:
    """Asks one running effect to end. Any thread may call `request`, any number of times.

    `leaves`: the effect must end because the worker is ending, not because it is unwanted.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.leaves = False
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def requested(self) -> bool:
        """Whether an end was requested."""
        return self.why is not None

    def request(self, why: str, *, leaves: bool = False) -> None:
        """Ask the effect to end. If it was asked before, the earlier `why` is kept."""
        with self._lock:
            if self.why is not None:
                return
            self.why, self.leaves = why, leaves
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> str:
        """Wait for a request and return its reason."""
        event = asyncio.Event()
        with self._lock:
            if self.why is None:
                self._waiters.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        await event.wait()
        assert self.why is not None
        return self.why
