"""Rows: the append-only part of a view.

`Rows` is an immutable sequence whose newest version can be extended in constant time: versions
share one list, each version knows its own length, and extending an older version copies the list. A
store writes only new rows, so storage grows only with new content. It rewrites old rows only after
a skip (RECORD_SKIPPED) or an edited result (RESULT_REPLACED).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Rows(Generic[R]):
    """An append-only sequence of rows. `last` finds rows by the value that `key` returns for a row.

    `length`: the value of len(), for hot paths.
    """

    __slots__ = ("_index", "_key", "_list", "length")

    def __init__(self, rows: Iterable[R] = (), key: Callable[[R], Any] | None = None) -> None:
        self._list: list[R] = list(rows)
        self.length = len(self._list)
        self._key = key
        self._index: dict[Any, list[int]] = {}
        if key is not None:
            for position, row in enumerate(self._list):
                self._index.setdefault(key(row), []).append(position)

    def append(self, *rows: R) -> "Rows[R]":
        """A version with these rows added; `self` does not change."""
        shared, length, key = self._list, self.length, self._key
        if len(shared) != length:  # this version was extended before
            ahead = shared[length : length + len(rows)]
            if ahead and ahead == [*rows]:  # a worker folds decisions before it reads them back
                return self._upto(length + len(rows))
            return Rows(self, key).append(*rows)
        if key is not None:
            for place, row in enumerate(rows, length):
                self._index.setdefault(key(row), []).append(place)
        shared += rows
        return self._upto(length + len(rows))

    def last(self, key: Any) -> R | None:
        """The newest row with that key, or None."""
        for position in reversed(self._index.get(key, ())):
            if position < self.length:
                return self._list[position]
        return None

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[R]:
        return (self._list[n] for n in range(self.length))

    def __getitem__(self, place: int) -> R:
        if not -self.length <= place < self.length:
            raise IndexError(place)
        return self._list[place % self.length]

    def since(self, start: int) -> list[R]:
        """The rows from a position on."""
        return self._list[start : self.length]

    def upto(self, length: int) -> "Rows[R]":
        """The earlier version that had this many rows."""
        assert 0 <= length <= self.length
        return self._upto(length)

    def _upto(self, length: int) -> "Rows[R]":
        version: Rows[R] = Rows.__new__(Rows)
        version._list, version._key, version._index = self._list, self._key, self._index
        version.length = length
        return version

    def extends(self, other: "Rows[R]") -> bool:
        """Whether these rows share the list of `other` and begin with its rows."""
        return self._list is other._list and self.length >= other.length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows) or self.length != other.length:
            return False
        return self._list is other._list or self.since(0) == other.since(0)

    def __hash__(self) -> int:
        return hash(self.length)

    def __repr__(self) -> str:
        return f"Rows({self.since(0)!r})"
