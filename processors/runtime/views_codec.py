"""Views to bytes and back: what a store keeps, and what a replay compares.

A session is one head (all that is rewritten), a small stream place, and series of rows that only
grow. The bytes are the same for the same views: msgpack in field order, nothing unordered.
This file is not the contract: a store is a cache, and a new layout only means to refold.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from ...schemas.value import fields_of
from ..projections.context import ContextView, Fragment, Prefix, Request
from ..projections.ledger import LedgerView, Spent
from ..projections.messages import MessagesView, Progress, Received
from ..projections.session_state import SessionState
from ..projections.transcript import Line, Sent, TranscriptView
from ..projections.turn_view import Stream, TurnView
from ..session import Frozen, SessionViews, initial

# One letter of a row's key, the view and field it belongs to, and its type.
SERIES: dict[str, tuple[str, str, type]] = {
    "f": ("context", "fragments", Fragment),
    "p": ("context", "prefixes", Prefix),
    "l": ("transcript", "lines", Line),
    "s": ("transcript", "sent", Sent),
    "t": ("ledger", "spent", Spent),
    "m": ("messages", "received", Received),
    "g": ("messages", "progress", Progress),
}


class Head(NamedTuple):
    """Everything of a session but its rows and its stream place; `lengths` in SERIES order."""

    state: SessionState
    turn: TurnView
    frozen: Frozen | None
    request: Request | None
    prefix_sha: str
    tokens: tuple[int, int, int]
    spent: tuple[int, int, int, int]
    lengths: tuple[int, ...]


_HEAD = msgspec.msgpack.Decoder(Head)
_STREAM = msgspec.msgpack.Decoder(Stream)
_ROWS = {letter: msgspec.msgpack.Decoder(kind) for letter, (_, _, kind) in SERIES.items()}
_ENCODER = msgspec.msgpack.Encoder()
encode_row = _ENCODER.encode


def rows_of(views: SessionViews, letter: str):
    """The rows of one series."""
    view, field, _ = SERIES[letter]
    return getattr(getattr(views, view), field)


def head_of(views: SessionViews) -> bytes:
    """The head of a session, as bytes."""
    context, ledger = views.context, views.ledger
    return _ENCODER.encode(
        Head(
            views.state,
            views.turn,
            views.frozen,
            context.request,
            context.prefix_sha,
            (context.anchor_tokens, context.tail_tokens, context.last_step_tokens),
            (
                ledger.input_tokens,
                ledger.cache_read_tokens,
                ledger.cache_write_tokens,
                ledger.output_tokens,
            ),
            tuple(len(rows_of(views, letter)) for letter in SERIES),
        )
    )


def stream_of(views: SessionViews) -> bytes:
    """The stream place of a session, as bytes."""
    return _ENCODER.encode(views.stream)


def lengths_in(head: bytes) -> dict[str, int]:
    """How many rows of each series a head counts."""
    return dict(zip(SERIES, _HEAD.decode(head).lengths, strict=True))


def decode_row(letter: str, value: bytes) -> Any:
    """A row of one series."""
    return _ROWS[letter].decode(value)


def views_from(
    session_id: str, head: bytes, stream: bytes | None, rows: dict[str, list[Any]]
) -> SessionViews:
    """The views of a session, from what a store kept of it."""
    kept = _HEAD.decode(head)
    empty = initial(session_id)
    grown = {letter: rows_of(empty, letter).append(*rows[letter]) for letter in SERIES}
    return SessionViews(
        session_id,
        kept.state,
        kept.turn,
        _STREAM.decode(stream) if stream else Stream(),
        ContextView(grown["f"], grown["p"], kept.request, kept.prefix_sha, *kept.tokens),
        TranscriptView(grown["l"], grown["s"]),
        LedgerView(grown["t"], *kept.spent),
        MessagesView(grown["m"], grown["g"]),
        kept.frozen,
    )


VIEW_NAMES = ("session_state", "turn", "context", "transcript", "ledger", "messages")


def view_parts(views: SessionViews) -> Iterator[tuple[str, bytes]]:
    """(view name, bytes) of every view: what a replay compares, byte for byte."""

    def series(*letters: str) -> bytes:
        return b"".join(encode_row(row) for s in letters for row in rows_of(views, s))

    context, ledger = views.context, views.ledger
    yield "session_state", _ENCODER.encode(views.state)
    yield "turn", _ENCODER.encode((views.turn, views.stream, views.frozen))
    tokens = (context.anchor_tokens, context.tail_tokens, context.last_step_tokens)
    rest = _ENCODER.encode((context.request, context.prefix_sha, *tokens))
    yield "context", rest + series("f", "p")
    yield "transcript", series("l", "s")
    yield "ledger", _ENCODER.encode(tuple(fields_of(ledger).values())[1:]) + series("t")
    yield "messages", series("m", "g")


def view_hashes(views: SessionViews) -> dict[str, str]:
    """Hex sha256 of every view."""
    return {name: sha256(data).hexdigest() for name, data in view_parts(views)}
