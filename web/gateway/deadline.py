"""A deadline for something that begins and ends very often, such as one write to a viewer."""

import asyncio
import math
from collections.abc import Callable


class Deadline:
    """Calls `expired` when more than `seconds` pass between `begin` and `end`.

    asyncio.timeout makes a timer of the event loop for each use. A Deadline has one timer at most,
    which serves all uses that end in time. Use it from one event loop only.
    """

    __slots__ = ("_at", "_expired", "_seconds", "_timer")

    def __init__(self, seconds: float, expired: Callable[[], object]) -> None:
        self._seconds, self._expired = seconds, expired
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to measure the time."""
        loop = asyncio.get_running_loop()
        self._at = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(self._at, self._check)

    def end(self) -> None:
        """Stop to measure the time."""
        self._at = math.inf

    def close(self) -> None:
        """Drop the timer."""
        self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        assert self._timer is not None
        was_due, self._timer = self._timer.when(), None
        if self._at <= was_due:
            self._at = math.inf
            self._expired()
        elif self._at < math.inf:  # it ended in time, and began again
            self._timer = asyncio.get_running_loop().call_at(self._at, self._check)
