"""Durable Streams over HTTP, the reading side: sessions and written streams.

GET and HEAD of /v1/stream/SESSION return the session's transcript, or what clients wrote there,
from an offset on: at once (catch-up), when there is more (long-poll), or as it arrives (SSE).
Writing is in routes/durable_write.py. Read docs/durable-streams.md.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ....processors.fold.views import SessionViews
from ....producers.checks import Invalid
from ...protocols.durable import reading as durable
from ...protocols.durable.reading import BadOffset, Page, Stream
from ...protocols.durable.session import SessionStream
from ...protocols.durable.writing import AGENT
from ...show import UnknownSession
from ..durable_streams import Streams, TooManyStreams
from ..event_stream import EventStream
from ..parts import Gateway
from ..watching import HEARTBEAT_S, Seat
from .durable_write import writing

LONG_POLL_S = 15.0
"""How long a long-poll waits: shorter than the timeouts of proxies."""

SSE_S = 60.0
"""How long one event stream lasts; readers reconnect, which lets caches merge them."""

JITTER_S = 3_600
PRIVATE = "private, no-cache"
"""A session is private: no cache may keep it. The ETag avoids sending it again."""


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/v1/stream")
    streams = Streams(gateway)
    writing(routes, gateway, streams)

    @routes.head("/{name}")
    async def head(request: Request, name: str) -> Response:
        """The end of a stream, and whether it is closed."""
        reading = await _reading(gateway, streams, request, name)
        headers = {"cache-control": "no-store", "content-type": reading.stream.content_type}
        headers |= reading.tail() | streams.expiry(reading.session_id)
        return Response(headers=headers)

    @routes.get("/{name}")
    async def get(request: Request, name: str) -> Response:
        """A stream from `offset` on (-1: its start, now: its end). `live`: long-poll or sse."""
        query = request.query_params
        offset, live = query.get("offset"), query.get("live")
        if len(query.getlist("offset")) > 1 or (live in ("long-poll", "sse") and not offset):
            raise Invalid("invalid_offset", "give exactly one `offset`, which live reading needs: "
                          "nothing was sent")
        reading = await _reading(gateway, streams, request, name)
        start = durable.START if offset is None else offset
        try:
            place = durable.place_of(start, reading.partition, reading.stream.tail)
        except BadOffset as error:
            raise Invalid("invalid_offset", str(error)) from None
        cursor = query.get("cursor")
        if live == "sse":
            return await _events(gateway, streams, request, name, place, cursor)
        found = reading.page(place)
        if live == "long-poll":
            waits = not found.appends and not found.closed
            if waits:
                with await _bell(gateway, request, reading) as bell:
                    found = await _more(bell, gateway, streams, request, name, place, LONG_POLL_S)
            return _polled(reading, start, found, cursor, request)
        if start == durable.NOW:
            headers = {"cache-control": "no-store", **reading.headers(found)}
            return Response(durable.body_of(reading.stream.content_type, []), headers=headers)
        return _caught_up(reading, start, found, request, {})

    return routes


class Reading:
    """A stream as it is now, with its session and partition."""

    def __init__(self, session_id: str, partition: int, stream: Stream) -> None:
        self.session_id, self.partition, self.stream = session_id, partition, stream

    def page(self, place: int) -> Page:
        """The appends from a place on."""
        return durable.page(self.stream, place)

    def headers(self, found: Page) -> dict[str, str]:
        """The headers for a page."""
        out = {
            "content-type": self.stream.content_type,
            "content-disposition": "attachment",  # the writer also chose the type
            "stream-next-offset": durable.offset_of(self.partition, found.place),
        }
        if found.up_to_date:
            out["stream-up-to-date"] = "true"
        if found.up_to_date and found.closed:
            out["stream-closed"] = "true"
        return out

    def tail(self) -> dict[str, str]:
        """The headers for the end of the stream."""
        end = durable.offset_of(self.partition, self.stream.tail)
        return {"stream-next-offset": end} | (
            {"stream-closed": "true"} if self.stream.closed else {}
        )


async def _reading(gateway: Gateway, streams: Streams, request: Request, name: str) -> Reading:
    """A stream that the user may read. Raises Unauthenticated, UnknownSession."""
    return _as_of(gateway, streams, name, gateway.owned(request, name))


def _as_of(gateway: Gateway, streams: Streams, name: str, views: SessionViews) -> Reading:
    session_id = views.session_id
    partition, _ = gateway.tail.cursor(session_id)
    if views.turn.agent != AGENT:
        return Reading(session_id, partition, SessionStream(views, gateway.shown_blob))
    written = streams.fold(views)
    life = written.alive(time.time_ns() // 1_000_000)
    if life is None:
        raise UnknownSession(f"there is no stream {name}: it was deleted or has expired")
    return Reading(session_id, partition, life)


def _cursor(given: str | None) -> str:
    return durable.cursor_of(given, time.time(), random.randint(1, JITTER_S))


def _caught_up(
    reading: Reading, start: str, found: Page, request: Request, more: dict[str, str]
) -> Response:
    tag = durable.etag_of(reading.session_id, start, found, reading.partition)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    headers = {"cache-control": PRIVATE, "etag": tag, **more, **reading.headers(found)}
    messages = [message for _, several in found.appends for message in several]
    return Response(durable.body_of(reading.stream.content_type, messages), headers=headers)


def _polled(
    reading: Reading, start: str, found: Page, cursor: str | None, request: Request
) -> Response:
    more = {"stream-cursor": _cursor(cursor)}
    if found.appends:
        return _caught_up(reading, start, found, request, more)
    headers = {"cache-control": "no-store", **more, **reading.headers(found)}
    del headers["content-type"], headers["content-disposition"]
    return Response(status_code=204, headers=headers)


# -- waiting ---------------------------------------------------------------------------------------


class Bell(Seat):
    """A viewer that only signals that the session changed. Leaves when its `with` block ends."""

    def __init__(self, gateway: Gateway, seat: Seat) -> None:
        super().__init__(seat.watching, seat.place, seat.user)
        self._gateway, self._seat = gateway, seat
        seat.watching.seats.discard(seat)
        seat.watching.seats.add(self)
        self.rung, self.ended = asyncio.Event(), False

    def put(self, offset: int, shown: Any, *, live: bool = True) -> None:
        """Signal a change of the session."""
        self.rung.set()

    def end(self) -> None:
        """Signal that the gateway closes."""
        self.ended = True
        self.rung.set()

    def __enter__(self) -> "Bell":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop watching; calling it again is harmless."""
        self.watching.seats.discard(self)
        self._gateway.hub.leave(self._seat)


async def _bell(gateway: Gateway, request: Request, reading: Reading) -> Bell:
    user = gateway.user(request)
    return Bell(gateway, await gateway.hub.sit(reading.session_id, None, "now", user))


async def _more(
    bell: Bell, gateway, streams: Streams, request: Request, name: str, place: int, wait_s: float
) -> Page:
    """Waits at most `wait_s` for appends after a place; the page at that time."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        bell.rung.clear()
        found = _as_of(gateway, streams, name, bell.watching.views).page(place)
        left = deadline - asyncio.get_running_loop().time()
        if found.appends or found.closed or bell.ended or left <= 0:
            return found
        try:
            async with asyncio.timeout(left):
                await bell.rung.wait()
        except TimeoutError:
            continue


async def _events(
    gateway, streams: Streams, request: Request, name: str, place: int, cursor: str | None
) -> Response:
    reading = await _reading(gateway, streams, request, name)
    bell = await _bell(gateway, request, reading)
    kind = reading.stream.content_type
    headers = {"content-type": "text/event-stream"}
    if not durable.is_text(kind):
        headers["stream-sse-data-encoding"] = "base64"
    pieces = _pieces(gateway, streams, request, bell, name, reading, place, cursor)
    return EventStream(pieces, headers=headers, at_end=bell.leave)


async def _pieces(
    gateway, streams: Streams, request: Request, bell: Bell, name: str, reading: Reading,
    place: int, cursor: str | None,
) -> AsyncIterator[bytes | None]:
    """Each append with a control event that has the next offset; only the control event if there
    are no appends.
    """
    partition, kind = reading.partition, reading.stream.content_type
    # No longer than the token that opened the stream.
    lasts_s = min(SSE_S, gateway.who(request).until - time.time())
    deadline = asyncio.get_running_loop().time() + lasts_s
    found = reading.page(place)
    while True:
        for number, (after, messages) in enumerate(found.appends, 1):
            is_last = number == len(found.appends)
            at = found if is_last else Page([], after, False, False)
            control = durable.control_event(partition, at, _cursor(cursor))
            yield durable.data_event(kind, messages) + control
        if not found.appends:
            yield durable.control_event(partition, found, _cursor(cursor))
        if found.up_to_date and found.closed:
            return
        place, has_sent = found.place, True
        while has_sent or not (found.appends or found.closed):
            left = deadline - asyncio.get_running_loop().time()
            if bell.ended or left <= 0:
                return
            if not has_sent:
                yield None
            try:
                wait_s = min(left, HEARTBEAT_S)
                found = await _more(bell, gateway, streams, request, name, place, wait_s)
            except (UnknownSession, TooManyStreams):
                return
            has_sent = False
