"""Cursors: each encodes a viewer's place in one session as an opaque text.

A cursor refers only to offsets of the log, so it is valid at any gateway and after any restart. A
cursor names its session, so that a cursor of another session is refused. It grants no access: a
request with a cursor is authenticated like any other request.
"""

import base64
from functools import lru_cache
from itertools import chain
from zlib import crc32

from ...client.history import KINDS, Place, ShownText
from ...client.transcript_stream import Attempt
from ...log.errors import Refused

VERSION = "1"
NUMBER_MAX = 2**63 - 1
_SHOWN = 3 + 2 * len(KINDS)  # numbers about an open attempt
_NUMBERS_MAX = 1 + _SHOWN + 1
_TEXT_MAX = len(f"{VERSION}.ffffffff") + _NUMBERS_MAX * len(f".{NUMBER_MAX}")
CHARS_MAX = -(-4 * _TEXT_MAX // 3)
"""The longest cursor that this file makes, in base64; a longer cursor is refused."""


class BadCursor(Refused):
    """The cursor is malformed, or from another session."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this cursor {why}: nothing was sent. Begin without a cursor; what you have shown so "
            "far can be replaced by the events that follow."
        )


def cursor_of(session_id: str, place: Place) -> str:
    """The cursor for a place."""
    numbers: tuple[int, ...] = (place.offset,)
    if place.open is not None:
        numbers = (place.offset, *place.open, *chain.from_iterable(place.shown))
    if place.lines:
        numbers = (*numbers, place.lines)
    text = f"{_head(session_id)}.{'.'.join(map(str, numbers))}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@lru_cache(maxsize=1024)
def _head(session_id: str) -> str:
    """The beginning of every cursor of a session."""
    return f"{VERSION}.{crc32(session_id.encode()):x}"


def place_of(session_id: str, cursor: str) -> Place:
    """The place that a cursor encodes. Raises BadCursor."""
    if len(cursor) > CHARS_MAX:
        raise BadCursor("is longer than any cursor of foldlog")
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        version, session, *numbers = raw.split(".")
        counts = [_number(text) for text in numbers]
    except ValueError:
        raise BadCursor("cannot be read") from None
    if version != VERSION:
        raise BadCursor("is of another version of foldlog")
    if session != f"{crc32(session_id.encode()):x}":
        raise BadCursor("is of another session")
    lines = counts.pop() if len(counts) in (2, 2 + _SHOWN) else 0
    if len(counts) == 1:
        return Place(counts[0], lines=lines)
    if len(counts) != 1 + _SHOWN:
        raise BadCursor("cannot be read")
    shown = tuple(map(ShownText, counts[4::2], counts[5::2]))
    return Place(counts[0], Attempt(*counts[1:4]), shown, lines)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= NUMBER_MAX):
        raise ValueError(text)
    return int(text)
