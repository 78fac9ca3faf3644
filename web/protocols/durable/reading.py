"""Durable Streams: a session as a stream, its offsets, its pages and their encoding. Pure.

A stream is a list of appends at places in one partition: the lines of the transcript, each a
message of plain JSON. Streaming output is left out, because it may be superseded and a durable
stream never changes: an answer is appended once it is settled. An offset names the place to
continue from: the partition and the next log offset, zero-padded so that offsets sort as strings.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas.canonical import compact, compact_ascii
from ....schemas.events.parts import ReadBlob
from ..plain import line_json

START, NOW = "-1", "now"
JSON = "application/json"
"""The content type of every stream: a body is an array of messages."""

PAGE_BYTES_MAX = 1024 * 1024
"""Size limit of one response; a larger append is sent whole."""

CURSOR_S = 20
"""Length of a cursor's interval in seconds.

Readers with the same cursor may share a cached response.
"""

_OFFSET = re.compile(r"(\d{5})_(\d{19})")


class BadOffset(ValueError):
    """The text is not an offset of this stream."""


class Page(NamedTuple):
    """The appends of one response.

    `place`: where to continue.
    `closed`: no more appends will come.
    """

    appends: list[tuple[int, list[bytes]]]
    place: int
    up_to_date: bool
    closed: bool


class SessionStream:
    """A session's views as a stream.

    The stream is closed if the session is terminated and none of its calls is in doubt.
    """

    def __init__(self, views: SessionViews, read: ReadBlob) -> None:
        self._lines, self._read = views.transcript.lines, read
        turn = views.turn
        self.tail = self._lines[-1].offset + 1 if len(self._lines) else 0
        self.closed = turn.terminated and not turn.open and not turn.doubts

    def since(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """The lines of each event from a place on.

        All inherited lines of a fork belong to its first event.
        """
        first = bisect_left(self._lines, place, key=attrgetter("offset"))
        for offset, lines in groupby(self._lines.since(first), attrgetter("offset")):
            yield offset + 1, [_frame(line, self._read) for line in lines]


def _frame(line: Line, read: ReadBlob) -> bytes:
    return compact(line_json(line, read)).encode()


def offset_of(partition: int, place: int) -> str:
    """The offset for a place."""
    return f"{partition:05d}_{place:019d}"


def place_of(offset: str, partition: int, tail: int) -> int:
    """The place that an offset names. Raises BadOffset."""
    if offset == START:
        return 0
    if offset == NOW:
        return tail
    found = _OFFSET.fullmatch(offset)
    if found is None or int(found[1]) != partition:
        raise BadOffset(f"{offset[:64]!r} is not an offset of this stream: nothing was sent. Give "
        f"{START}, {NOW}, or an offset from this stream")
    return int(found[2])


def page(stream: SessionStream, place: int, bytes_max: int = PAGE_BYTES_MAX) -> Page:
    """The appends that fit in one response, beginning at a place."""
    appends: list[tuple[int, list[bytes]]] = []
    size, at = 0, place
    for after, messages in stream.since(place):
        size += sum(map(len, messages))
        if appends and size > bytes_max:
            return Page(appends, at, False, False)
        appends.append((after, messages))
        at = after
    return Page(appends, stream.tail, True, stream.closed)


def body_of(messages: list[bytes]) -> bytes:
    """The messages, joined to one JSON array."""
    return b"[" + b",".join(messages) + b"]"


def etag_of(stream_id: str, start: str, end: Page, partition: int) -> str:
    """The ETag of a page, which changes whenever the page does."""
    closed = ":c" if end.closed and end.up_to_date else ""
    return f'"{stream_id}:{start}:{offset_of(partition, end.place)}{closed}"'


def data_event(messages: list[bytes]) -> bytes:
    """An append as a server-sent event. Compact JSON has no line break that would end the event."""
    return b"event: data\ndata:" + body_of(messages) + b"\n\n"


def control_event(partition: int, at: Page, cursor: str) -> bytes:
    """The control event, which says where to continue after the data before it."""
    fields: dict[str, Any] = {"streamNextOffset": offset_of(partition, at.place)}
    if at.closed and at.up_to_date:
        fields |= {"streamClosed": True, "upToDate": True}
    else:
        fields |= {"streamCursor": cursor} | ({"upToDate": True} if at.up_to_date else {})
    text = compact_ascii(fields)
    return b"event: control\ndata:" + text.encode() + b"\n\n"


def cursor_of(given: str | None, now_s: float, jitter_s: int) -> str:
    """The cursor to return: the number of the present interval of CURSOR_S seconds. If the reader's
    own cursor is not below this number, the returned cursor is higher than the reader's own.
    """
    interval = int(now_s) // CURSOR_S
    if given is None or not given.isdecimal() or len(given) > 18 or int(given) < interval:
        return str(interval)
    return str(int(given) + max(1, jitter_s // CURSOR_S))
