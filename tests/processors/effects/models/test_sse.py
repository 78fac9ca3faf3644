"""The events of a body are those of the SDK's decoder, however the body is cut into pieces."""

import asyncio

import pytest
from anthropic import AsyncStream
from hypothesis import example, given, strategies as st

from foldlog.processors.effects.models.sse import EventSplitter, StreamEvent

EVENT = b'event: content_block_delta\ndata: {"text":"\xc3\xa9\xe2\x80\xa8"}\n\n'
LINES = st.sampled_from(
    [b"event: a", b"event:b", b"event", b"data: {}", b"data:{}", b"data", b"data:  x", b"id: 1",
     b"id: \0", b"retry: 5", b": comment", b"other: y", b"", b"", b"", "data: é\u2028".encode()]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
BODIES = st.lists(st.one_of(st.tuples(LINES, ENDS).map(b"".join), st.just(EVENT))).map(b"".join)


class Response:
    """A body in pieces, as the SDK reads it."""

    def __init__(self, pieces):
        self._pieces = pieces

    async def aiter_bytes(self):
        for piece in self._pieces:
            yield piece


async def of_the_sdk(pieces):
    raw = AsyncStream.raw_events(Response(pieces))
    return [StreamEvent(e.event or "", e.data) async for e in raw if e.data]


def cut(body, places):
    at = sorted({place % (len(body) + 1) for place in places})
    return [body[start:end] for start, end in zip([0, *at], [*at, len(body)], strict=True)]


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=6))
@example(EVENT + b"\r\n" + EVENT, [])
@example(b"event: a\n\ndata: x\n\n\ndata: y\n\n", [9])
@example(b"data: cut off at the end", [])
def test_the_events_are_those_of_the_sdk(body, places):
    pieces, splitter = cut(body, places), EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    events += splitter.end()
    assert events == asyncio.run(of_the_sdk(pieces))


def test_events_before_invalid_bytes_are_received():
    events = EventSplitter().feed(EVENT + b"event: a\ndata: \xff\n\n")
    assert next(events).name == "content_block_delta"
    with pytest.raises(UnicodeDecodeError):
        next(events)
