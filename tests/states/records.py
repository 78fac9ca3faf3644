"""The log of the searched system: its records and its positions, each stored once and named by a
small number.

A position is what the fold has made of all records before it. Two histories that lead to the same
views at the same offset are one position, so states that differ only in their past are one state.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.rows import Rows
from foldlog.processors.fold.ruling import Ruling
from foldlog.processors.fold.sessions import fold_event
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.schemas.codec import Entry, encode, entry_of, headers_for
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

SESSION = "s"


class Draft(NamedTuple):
    """A record before it has an offset and a time."""

    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class Position(NamedTuple):
    """What a reader knows that has folded every record below `end`."""

    end: int
    views: SessionViews
    holders: PartitionView


class Folded(NamedTuple):
    """One record of the session with its ruling, and the views around it."""

    entry: Entry
    ruling: Ruling | None
    before: SessionViews
    views: SessionViews
    holders: PartitionView


def _rows(value: Any) -> list[Any]:
    assert isinstance(value, Rows), value
    return list(value)


def canonical(value: Any) -> bytes:
    """A hash of the canonical bytes of a view."""
    return blake2b(msgspec.msgpack.encode(value, enc_hook=_rows), digest_size=16).digest()


class Numbered:
    """Values and their numbers, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any, key: Any = None) -> int:
        """The number of a value, which `key` identifies (default: the value itself)."""
        key = value if key is None else key
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
        return number

    def __getitem__(self, number: int) -> Any:
        return self.values[number]

    def __len__(self) -> int:
        return len(self.values)


class Log:
    """Every record and every position that the search has met. `on_folded` is called once for each
    record at each position."""

    def __init__(self, on_folded: Callable[[Folded], None]) -> None:
        self.drafts = Numbered()
        self.stamped = Numbered()  # (draft, broker time): a record in the log
        self.positions = Numbered()
        self._on_folded = on_folded
        self._after: dict[tuple[int, int], int] = {}
        self._rulings: dict[tuple[int, int], Ruling | None] = {}
        self.empty = self._number(Position(0, initial(SESSION), partition_fold.INITIAL))

    def draft(self, event: Any, writer: str, key: str = SESSION) -> int:
        """The number of an event as a record."""
        return self.drafts.number(Draft(key, encode(event), tuple(headers_for(event, writer))))

    def _number(self, position: Position) -> int:
        key = (position.end, canonical(position.views), position.holders)
        return self.positions.number(position, key)

    def record(self, stamped: int, offset: int) -> Record:
        """A record at an offset."""
        draft, at = self.stamped[stamped]
        key, value, headers = self.drafts[draft]
        return Record(SESSION_EVENTS, 0, offset, at, key.encode(), value, headers)

    def entry(self, stamped: int, offset: int) -> Entry:
        """A record at an offset, decoded."""
        return entry_of(self.record(stamped, offset))

    def after(self, position: int, stamped: int) -> int:
        """The position after one more record."""
        known = self._after.get((position, stamped))
        if known is not None:
            return known
        end, before, holders = self.positions[position]
        entry = self.entry(stamped, end)
        ruling, views = None, before
        if entry.session_id == PARTITION_KEY:
            holders = partition_fold.apply(holders, entry)
        else:
            event = fold_event(before, entry)
            ruling, views = event.ruling, event.views
        self._on_folded(Folded(entry, ruling, before, views, holders))
        after = self._number(Position(end + 1, views, holders))
        self._after[position, stamped] = after
        self._rulings[position, stamped] = ruling
        return after

    def ruling(self, position: int, stamped: int) -> Ruling | None:
        """The ruling on a record that was folded at a position; None for one of no session."""
        return self._rulings[position, stamped]
