"""Durable Streams, the reading side: offsets, pages and their encoding. Pure.

A stream is a list of appends at places in one partition. An offset names the place to continue
from: the partition and the next log offset, zero-padded so that offsets sort as strings.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ....schemas.canonical import compact_ascii

START, NOW = "-1", "now"
JSON = "application/json"
PAGE_BYTES_MAX = 1024 * 1024
"""Size limit of one response; a larger append is sent whole."""

CURSOR_S = 20
"""Length of a cursor's interval in seconds.

Readers with the same cursor may share a cached response.
"""

_OFFSET = re.compile(r"(\d{5})_(\d{19})")
_LINES = re.compile(rb"\r\n|\r|\n")


class BadOffset(ValueError):
    """The text is not an offset of this stream."""


class Stream(Protocol):
    """A readable stream: appends in order. `tail`: the place after the last append."""

    content_type: str
    tail: int
    closed: bool

    def since(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """Each append from a place on: (the place after it, messages)."""
        ...


class Page(NamedTuple):
    """The appends of one response.

    `place`: where to continue. `closed`: no more appends will come.
    """

    appends: list[tuple[int, list[bytes]]]
    place: int
    up_to_date: bool
    closed: bool


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


def page(stream: Stream, place: int, bytes_max: int = PAGE_BYTES_MAX) -> Page:
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


def is_json(content_type: str) -> bool:
    """Whether a stream is JSON. Only a JSON stream keeps the boundaries between its messages."""
    return content_type.partition(";")[0].strip().lower() == JSON


def is_text(content_type: str) -> bool:
    """Whether server-sent events carry a stream's bytes unencoded."""
    return content_type.lower().startswith("text/") or is_json(content_type)


def body_of(content_type: str, messages: list[bytes]) -> bytes:
    """The messages, joined to one body."""
    return b"[" + b",".join(messages) + b"]" if is_json(content_type) else b"".join(messages)


def etag_of(stream_id: str, start: str, end: Page, partition: int) -> str:
    """The ETag of a page, which changes whenever the page does."""
    closed = ":c" if end.closed and end.up_to_date else ""
    return f'"{stream_id}:{start}:{offset_of(partition, end.place)}{closed}"'


def data_event(content_type: str, messages: list[bytes]) -> bytes:
    """An append as a server-sent event; line breaks in the data do not end the event."""
    data = body_of(content_type, messages)
    lines = _LINES.split(data) if is_text(content_type) else [base64.b64encode(data)]
    return b"event: data\n" + b"".join(b"data:" + _spaced(line) + b"\n" for line in lines) + b"\n"


def _spaced(line: bytes) -> bytes:
    """The line with a leading space doubled, because readers of events remove one space."""
    return b" " + line if line.startswith(b" ") else line


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
