"""Encodes views: what a store keeps, and what a replay compares.

A session is one head (everything that is rewritten), a small stream position, and pages of rows,
which only grow. Equal views give equal bytes: msgpack in field order, nothing unordered. This
format is not a contract: a store is a cache, and a new layout only means a refold.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from operator import attrgetter
from typing import Any, get_args

import msgspec

from ...schemas.value import replace
from ..fold.projections.compaction import Short, Summary
from ..fold.projections.context import Fragment
from ..fold.projections.items import Batch, Retraction
from ..fold.projections.ledger import Spent
from ..fold.projections.messages import Progress, Received
from ..fold.projections.prefixes import Prefix
from ..fold.projections.transcript import Line, Sent
from ..fold.projections.turn_view import Stream
from ..fold.rows import Rows
from ..fold.views import SessionViews, initial

# The row series of a session: the type of their rows, and where they are.
SERIES: dict[type, str] = {
    Fragment: "context.fragments",
    Prefix: "context.prefixes",
    Line: "transcript.lines",
    Sent: "transcript.sent",
    Spent: "ledger.spent",
    Received: "messages.received",
    Progress: "messages.progress",
    Short: "compaction.shorts",
    Summary: "compaction.summaries",
    Batch: "items.batches",
    Retraction: "items.retractions",
}
Lengths = tuple[int, ...]  # of every series, in that order
NO_ROWS: Lengths = (0,) * len(SERIES)

series_of = attrgetter(*SERIES.values())
"""series_of(views): every series of a session, in that order."""

lengths_of = attrgetter(*[f"{place}.length" for place in SERIES.values()])
"""lengths_of(views): how many rows each series has."""

# Rows are kept in pages: the head of a session contains only the length of each series.
_ENCODER = msgspec.msgpack.Encoder(enc_hook=attrgetter("length"))  # in C: len calls Python
_PAGE = msgspec.msgpack.Decoder(tuple[tuple(list[kind] for kind in SERIES)])
_STREAM = msgspec.msgpack.Decoder(Stream)
encode_row = _ENCODER.encode


def head_of(views: SessionViews) -> bytes:
    """Everything of a session except its rows, as bytes."""
    return _ENCODER.encode(views)


def stream_of(views: SessionViews) -> bytes:
    """The stream position of a session, as bytes."""
    return _ENCODER.encode(views.stream)


def page_of(views: SessionViews, known: Lengths) -> bytes:
    """The rows of every series beyond its known length, as bytes."""
    pairs = zip(series_of(views), known, strict=True)
    return _ENCODER.encode([rows.since(n) if rows.length > n else () for rows, n in pairs])


def views_from(head: bytes, stream: bytes | None, pages: Iterable[bytes]) -> SessionViews:
    """Decodes a session's views from a store's head, stream position and pages, in order."""
    grown = dict(zip(SERIES, series_of(initial("")), strict=True))
    for page in pages:
        for kind, rows in zip(SERIES, _PAGE.decode(page), strict=True):
            grown[kind] = grown[kind].append(*rows)

    def rows_of(series: Any, length: int) -> Rows[Any]:
        (kind,) = get_args(series)
        assert len(grown[kind]) == length, f"pages and head differ in their {kind.__name__}s"
        return grown[kind]

    views = msgspec.msgpack.decode(head, type=SessionViews, dec_hook=rows_of)
    return replace(views, stream=_STREAM.decode(stream)) if stream else views


VIEW_NAMES = (
    "session_state",
    "turn",
    "context",
    "transcript",
    "ledger",
    "messages",
    "compaction",
    "background",
    "delivery",
    "items",
)


def view_parts(views: SessionViews) -> Iterator[tuple[str, bytes]]:
    """(view name, bytes) of every view, which a replay compares byte for byte."""
    rows = [series.since(0) for series in series_of(views)]
    fragments, prefixes, lines, sent, spent, received, progress, *compacted = rows[:-2]
    encode = _ENCODER.encode
    yield "session_state", encode(views.state)
    frozen: Any = views.frozen if views.origin is None else (views.frozen, views.origin)
    frozen = (frozen, views.skipped) if views.skipped else frozen
    yield "turn", encode((views.turn, views.stream, frozen))
    yield "context", encode((views.context, fragments, prefixes))
    yield "transcript", encode((lines, sent))
    yield "ledger", encode((views.ledger, spent))
    yield "messages", encode((received, progress))
    yield "compaction", encode((views.compaction, *compacted))
    yield "background", encode(views.background)
    yield "delivery", encode(views.delivery)
    yield "items", encode((views.items, *rows[-2:]))


def view_hashes(views: SessionViews) -> dict[str, str]:
    """Hex sha256 of every view."""
    return {name: sha256(data).hexdigest() for name, data in view_parts(views)}
