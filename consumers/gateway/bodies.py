"""How much of the bodies of requests lies in memory at a time: bounded, in all and by user."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from ...log.errors import Retry

ALL_MAX = 512 * 1024 * 1024
PER_USER_MAX = 64 * 1024 * 1024
"""Bytes: eight of the largest bodies."""


class TooManyBodies(Retry):
    """The gateway, or this user, has as much in memory as it takes (429)."""


class Bodies:
    """What was received of the requests that are being answered. `held`: bytes by user."""

    def __init__(self, all_max: int = ALL_MAX, per_user: int = PER_USER_MAX) -> None:
        self._all_max, self._per_user = all_max, per_user
        self._all = 0
        self.held: Counter[str] = Counter()

    @contextmanager
    def of(self, user: str, receive: Receive) -> Iterator[Receive]:
        """A request of a user, as long as this lasts. What is received raises TooManyBodies."""
        ours = 0

        async def counted() -> Message:
            nonlocal ours
            message = await receive()
            size = len(message.get("body", b""))
            if size and (
                self.held[user] + size > self._per_user or self._all + size > self._all_max
            ):
                raise TooManyBodies("too many large requests are being answered: nothing was done "
                                    "with this one; send it again when others are done")
            ours, self._all = ours + size, self._all + size
            self.held[user] += size
            return message

        try:
            yield counted
        finally:
            self._all -= ours
            self.held[user] -= ours
            self.held += Counter()  # forgets those that have none
