"""Keeps the sessions of a partition in the order of lists, so that a request sorts nothing.

The event loop reports each written row; threads of HTTP requests read pages.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import rows

_INVERTED = bytes(range(255, -1, -1))
_END = b"\xff"


class Item(NamedTuple):
    """A session. Items ascend from the oldest change to the newest, so that a change moves few of
    them. In a list, ids ascend among equal times, so here they descend: their bytes are inverted.
    """

    changed_at: int
    inverted_id: bytes
    key: bytes


def _item(key: bytes, changed_at: int) -> Item:
    return Item(changed_at, _inverted(key.partition(b"/")[2]), key)


def _inverted(session_id: bytes) -> bytes:
    return session_id.translate(_INVERTED) + _END


class Order:
    """The sessions of one partition, by their last change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[bytes, Item] = {}
        self._sorted: list[Item] = []

    def fill(self, found: Iterable[tuple[bytes, int]]) -> None:
        """Add the stored sessions, key and time. Those that were `put` meanwhile are newer."""
        stored = {key: _item(key, changed_at) for key, changed_at in found}
        with self._lock:
            self._items = stored | self._items
            self._sorted = sorted(self._items.values())

    def put(self, key: bytes, changed_at: int) -> None:
        """A session was opened or changed."""
        new = _item(key, changed_at)
        with self._lock:
            old = self._items.get(key)
            if old == new:
                return
            if old is not None:
                del self._sorted[bisect_left(self._sorted, old)]
            self._items[key] = new
            insort(self._sorted, new)

    def page(self, after: tuple[int, str] | None, count: int) -> list[Item]:
        """At most `count` sessions after a place (answers.after), the newest change first."""
        with self._lock:
            end = len(self._sorted)
            if after is not None:
                end = bisect_left(self._sorted, (-after[0], _inverted(after[1].encode()), b""))
            return self._sorted[max(0, end - count) : end][::-1]

    def __len__(self) -> int:
        return len(self._items)


class Orders:
    """The orders of a member's partitions, each built from the store at the first request after a
    restore. Rows change then only by `put`."""

    def __init__(self) -> None:
        self._building = threading.Lock()
        self._kept: dict[int, tuple[frozenset[int], Order]] = {}

    def put(self, partition: int, key: bytes, value: bytes) -> None:
        """A session's row was stored."""
        kept = self._kept.get(partition)
        if kept is not None:
            kept[1].put(key, rows.changed_at(value))

    def of(
        self,
        partition: int,
        restored: frozenset[int],
        read: Callable[[], Iterable[tuple[bytes, int]]],
    ) -> Order:
        """The order of a partition. restored: of the book, a new object for each restore. read:
        returns the key and the time of each stored session."""
        with self._building:
            kept = self._kept.get(partition)
            if kept is not None and kept[0] is restored:
                return kept[1]
            current = {p: found for p, found in self._kept.items() if found[0] is restored}
            order = Order()
            self._kept = {**current, partition: (restored, order)}  # it gets every `put`
            try:
                order.fill(read())
            except BaseException:
                self._kept = current
                raise
            return order
