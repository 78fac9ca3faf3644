"""Limits the memory taken by request bodies, in total and for each user."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from ...log.errors import Retry

ALL_MAX = 512 * 1024 * 1024
PER_USER_MAX = 64 * 1024 * 1024
"""Limit for one user in bytes, which is eight bodies of the largest size."""


class TooManyBodies(Retry):
    """The gateway or this user has reached the limit of request bodies in memory (429)."""


class Bodies:
    """Counts the bytes of HTTP requests that have no response yet.

    `bytes`: the number of bytes by user.
    """

    def __init__(self, all_max: int = ALL_MAX, per_user: int = PER_USER_MAX) -> None:
        self._all_max, self._per_user = all_max, per_user
        self._all = 0
        self.bytes: Counter[str] = Counter()

    @contextmanager
    def count(self, user: str, receive: Receive) -> Iterator[Receive]:
        """Count the body of one request while the block runs.

        Yields the function with which to receive the body. This function raises TooManyBodies when
        a limit is reached.
        """
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            if size and (
                self.bytes[user] + size > self._per_user or self._all + size > self._all_max
            ):
                raise TooManyBodies("too many large requests are being answered: nothing was done "
                "with this one. Send it again when others have finished")
            received, self._all = received + size, self._all + size
            self.bytes[user] += size
            return message

        try:
            yield counted
        finally:
            self._all -= received
            self.bytes[user] -= received
            self.bytes += Counter()  # drops users whose count is zero
