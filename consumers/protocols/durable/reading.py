"""Durable Streams, the reading side: offsets, pages, and how they are written. Pure.

A stream is appends at places of one partition. An offset names the place to read on from: the
partition and the next log offset, zero padded so that texts compare as places do. This file must
not know what a stream is made of, nor HTTP.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from ....schemas.canonical import compact_ascii

START, NOW = "-1", "now"
JSON = "application/json"
PAGE_BYTES_MAX = 1024 * 1024
"""Of one answer; an append that is larger comes whole."""

CURSOR_S = 20
"""Width of a cursor's interval: readers in the same one may share an answer."""

_OFFSET = re.compile(r"(\d{5})_(\d{19})")
_LINES = re.compile(rb"\r\n|\r|\n")


class BadOffset(ValueError):
    """A text that is no offset of this stream."""


class Stream(Protocol):
    """What can be read: appends in order, and where they end. `tail`: the place behind them."""

    content_type: str
    tail: int
    closed: bool

    def since(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """(place behind it, messages) of each append from a place on."""
        ...


class Page(NamedTuple):
    """Appends that go together. `place`: where to read on. `closed`: nothing ever comes behind."""

    appends: list[tuple[int, list[bytes]]]
    place: int
    up_to_date: bool
    closed: bool


def offset_of(partition: int, place: int) -> str:
    """The offset of a place."""
    return f"{partition:05d}_{place:019d}"


def place_of(offset: str, partition: int, tail: int) -> int:
    """The place that an offset names. Raises BadOffset."""
    if offset == START:
        return 0
    if offset == NOW:
        return tail
    found = _OFFSET.fullmatch(offset)
    if found is None or int(found[1]) != partition:
        raise BadOffset(f"{offset[:64]!r} is no offset of this stream: give {START}, {NOW}, or one "
                        "that it gave you")
    return int(found[2])


def page(stream: Stream, place: int, bytes_max: int = PAGE_BYTES_MAX) -> Page:
    """What there is from a place on, as far as one answer goes."""
    appends: list[tuple[int, list[bytes]]] = []
    size, at = 0, place
    for behind, messages in stream.since(place):
        size += sum(map(len, messages))
        if appends and size > bytes_max:
            return Page(appends, at, False, False)
        appends.append((behind, messages))
        at = behind
    return Page(appends, stream.tail, True, stream.closed)


def is_json(content_type: str) -> bool:
    """Whether a stream keeps the bounds of its messages."""
    return content_type.partition(";")[0].strip().lower() == JSON


def is_text(content_type: str) -> bool:
    """Whether server-sent events carry a stream's bytes as they are."""
    return content_type.lower().startswith("text/") or is_json(content_type)


def body_of(content_type: str, messages: list[bytes]) -> bytes:
    """Messages as one body."""
    return b"[" + b",".join(messages) + b"]" if is_json(content_type) else b"".join(messages)


def etag_of(stream_id: str, start: str, end: Page, partition: int) -> str:
    """The tag of a page: another one once anything of it is another."""
    closed = ":c" if end.closed and end.up_to_date else ""
    return f'"{stream_id}:{start}:{offset_of(partition, end.place)}{closed}"'


def data_event(content_type: str, messages: list[bytes]) -> bytes:
    """An append as a server-sent event; a line break of the data breaks no event."""
    data = body_of(content_type, messages)
    lines = _LINES.split(data) if is_text(content_type) else [base64.b64encode(data)]
    return b"event: data\n" + b"".join(b"data:" + _spaced(line) + b"\n" for line in lines) + b"\n"


def _spaced(line: bytes) -> bytes:
    """A reader takes one space away."""
    return b" " + line if line.startswith(b" ") else line


def control_event(partition: int, at: Page, cursor: str) -> bytes:
    """Where to read on after the data before it."""
    said: dict[str, Any] = {"streamNextOffset": offset_of(partition, at.place)}
    if at.closed and at.up_to_date:
        said |= {"streamClosed": True, "upToDate": True}
    else:
        said |= {"streamCursor": cursor} | ({"upToDate": True} if at.up_to_date else {})
    text = compact_ascii(said)
    return b"event: control\ndata:" + text.encode() + b"\n\n"


def cursor_of(given: str | None, now_s: float, jitter_s: int) -> str:
    """The cursor to give: of this interval, or, for who has it already, of a later one."""
    interval = int(now_s) // CURSOR_S
    if given is None or not given.isdecimal() or len(given) > 18 or int(given) < interval:
        return str(interval)
    return str(int(given) + max(1, jitter_s // CURSOR_S))
