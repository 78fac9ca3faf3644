"""Encodes views as bytes, which stores keep and replays compare.

A session consists of one head (everything that is rewritten), a small stream position, and pages of
rows, which are append-only. Equal views give equal bytes, because msgpack encodes fields in order
and no value in a view is unordered. The format may change: a store is a cache, and a new layout
only causes a refold.
"""

import types
from collections.abc import Iterable, Iterator
from hashlib import sha256
from operator import attrgetter
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from ...schemas.value import field_names, replace
from ..fold.projections.turn_view import Stream
from ..fold.rows import Rows
from ..fold.views import VIEWS, SessionViews, initial


def _series() -> Iterator[tuple[type, str]]:
    for view in VIEWS:
        for name, kind in get_type_hints(type(view.initial())).items():
            if get_origin(kind) is Rows:
                yield get_args(kind)[0], f"{view.field}.{name}"


SERIES: dict[type, str] = dict(_series())
"""The row series of a session: the type of the rows, and the path to them in SessionViews."""
assert len(SERIES) == len(list(_series())), "two series have rows of one type"
Lengths = tuple[int, ...]  # of every series, in the order of SERIES
NO_ROWS: Lengths = (0,) * len(SERIES)

series_of = attrgetter(*SERIES.values())
"""`series_of(views)` returns every series of a session, in the order of SERIES."""

lengths_of = attrgetter(*[f"{place}.length" for place in SERIES.values()])
"""`lengths_of(views)` returns the number of rows of each series."""

# Rows are kept in pages: the head of a session contains only the length of each series.
_ENCODER = msgspec.msgpack.Encoder(enc_hook=attrgetter("length"))  # in C: len calls Python
_PAGE: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    types.GenericAlias(tuple, tuple(types.GenericAlias(list, (kind,)) for kind in SERIES))
)
_STREAM = msgspec.msgpack.Decoder(Stream)
encode_row = _ENCODER.encode


def head_of(views: SessionViews) -> bytes:
    """The views of a session except rows and stream position, as bytes."""
    return _ENCODER.encode(views)


def stream_of(views: SessionViews) -> bytes:
    """The stream position of a session, as bytes."""
    return _ENCODER.encode(views.stream)


def page_of(views: SessionViews, known: Lengths) -> bytes:
    """The new rows of a session as bytes. `known`: how many rows of each field are stored already;
    these rows are left out."""
    pairs = zip(series_of(views), known, strict=True)
    return _ENCODER.encode([rows.since(n) if rows.length > n else () for rows, n in pairs])


_KEYS = tuple(rows._key for rows in series_of(initial("")))
_PLACES = {kind: place for place, kind in enumerate(SERIES)}


def views_from(head: bytes, stream: bytes | None, pages: Iterable[bytes]) -> SessionViews:
    """Decodes a session's views from a store's head, stream position and pages, in order."""
    found: list[list[Any]] = [[] for _ in SERIES]
    for page in pages:
        for rows, more in zip(found, _PAGE.decode(page), strict=True):
            if more:
                rows += more

    def rows_of(series: Any, length: int) -> Rows[Any]:
        (kind,) = series.__args__
        place = _PLACES[kind]
        assert len(found[place]) == length, f"pages and head differ in their {kind.__name__}s"
        return Rows(found[place], _KEYS[place])

    views = msgspec.msgpack.decode(head, type=SessionViews, dec_hook=rows_of)
    return replace(views, stream=_STREAM.decode(stream)) if stream else views


VIEW_NAMES = tuple(view.name for view in VIEWS)


def view_parts(views: SessionViews) -> Iterator[tuple[str, bytes]]:
    """(view name, bytes) of every view. A replay compares the bytes."""
    for view in VIEWS:
        whole = _with_turn(views) if view.name == "turn" else _whole(getattr(views, view.field))
        yield view.name, _ENCODER.encode(whole)


def _with_turn(views: SessionViews) -> tuple[Any, ...]:
    """The turn view, the stream position, and the values of a session that belong to no view: why
    it is frozen, its origin if it is a fork, its skipped records and its replaced results."""
    frozen: Any = views.frozen if views.origin is None else (views.frozen, views.origin)
    frozen = (frozen, views.skipped) if views.skipped else frozen
    frozen = (frozen, views.replaced) if views.replaced else frozen
    return views.turn, views.stream, frozen


def _whole(view: Any) -> Any:
    """A view together with its rows. The rows are added because the encoding of a view contains
    only their number. If every field of the view consists of rows, only the rows are returned."""
    values = [getattr(view, name) for name in field_names(view)]
    rows = [value.since(0) for value in values if isinstance(value, Rows)]
    if not rows:
        return view
    return rows if len(rows) == len(values) else (view, *rows)


def view_hashes(views: SessionViews) -> dict[str, str]:
    """Hex sha256 of every view."""
    return {name: sha256(data).hexdigest() for name, data in view_parts(views)}
