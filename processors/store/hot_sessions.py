"""The sessions that a process keeps in memory as objects, bounded by their estimated bytes.

All partitions of a process share the bound. The least recently used sessions are evicted first. A
session with changes that are not stored yet stays, and so does the session used last: a session
larger than the bound is used like any other.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

MB = 1_000_000


class Cache(Protocol):
    """The cache of one partition, compared by identity."""

    def is_unwritten(self, session_id: str) -> bool:
        """Whether the session has changes that are not stored yet."""

    def evict(self, session_id: str) -> None:
        """Drop the session's views, which the store has."""


class HotSessions:
    """The sessions in memory, by their last use.

    `bytes`: their estimated size together.
    `loaded`: how many were read from a store so far.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = self.loaded = 0
        self._sizes: OrderedDict[tuple[Cache, str], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def use(self, cache: Cache, session_id: str, size: int) -> None:
        """Record that a session was used just now, and its present size."""
        key = (cache, session_id)
        self.bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self._sizes.move_to_end(key)

    def touch(self, cache: Cache, session_id: str) -> None:
        """Record that a session in memory is used now."""
        if (key := (cache, session_id)) in self._sizes:
            self._sizes.move_to_end(key)

    def forget(self, cache: Cache, session_id: str) -> None:
        """Forget a session that its cache dropped."""
        self.bytes -= self._sizes.pop((cache, session_id), 0)

    def evict(self, cache: Cache | None = None, needed: Collection[str] = ()) -> bool:
        """Evict sessions until the rest fits into memory. Those of `cache` that are `needed` stay.
        Returns whether the rest fits."""
        kept: list[tuple[tuple[Cache, str], int]] = []
        while self.bytes > self.bytes_max and len(self._sizes) > 1:
            key, size = self._sizes.popitem(last=False)
            owner, session_id = key
            if (owner is cache and session_id in needed) or owner.is_unwritten(session_id):
                kept.append((key, size))
            else:
                self.bytes -= size
                owner.evict(session_id)
        for key, size in reversed(kept):
            self._sizes[key] = size
            self._sizes.move_to_end(key, last=False)
        return self.bytes <= self.bytes_max
