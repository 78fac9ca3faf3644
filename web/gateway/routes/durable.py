"""Durable Streams over HTTP: sessions, as streams to read.

GET and HEAD of /v1/stream/SESSION return the session's transcript from an offset on. The response
is sent at once (catch-up), waits for new data (long-poll), or streams new data (SSE). Read
docs/durable-streams.md.
"""

import random
import time
from collections.abc import AsyncIterator
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....processors.fold.views import SessionViews
from ....producers.checks import Invalid
from ....schemas.enums import LookKind
from ...protocols.durable import reading as durable
from ...protocols.durable.reading import BadOffset, Page, SessionStream
from ..access import Caller
from ..event_stream import EventStream
from ..gateway import Gateway
from ..subscriptions import HEARTBEAT_S, Subscription

LONG_POLL_S = 15.0
"""How long a long-poll waits, in seconds; shorter than the timeouts of proxies."""

SSE_S = 60.0
"""How long one event stream lasts, in seconds; readers then reconnect, so caches can merge them."""

JITTER_S = 3_600
PRIVATE = "private, no-cache"
"""A session is private, so only the reader's own cache may store it, and must revalidate it by the
ETag.
"""

READ_ONLY = {
    "code": "read_only",
    "detail": "a stream is a session, which is read-only here: nothing was done. Send the session "
    "a message instead: POST /v1/sessions/SESSION/messages",
}


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/v1/stream")

    @routes.head("/{name}")
    async def head(request: Request, name: str) -> Response:
        """Return the end offset of a stream, and whether the stream is closed."""
        source = await _source(gateway, request, name)
        headers = {"cache-control": "no-store", "content-type": durable.JSON}
        return Response(headers=headers | source.end_headers())

    @routes.get("/{name}")
    async def get(request: Request, name: str) -> Response:
        """Return a stream from `offset` on (-1: from its start, now: from its end).

        `live`: long-poll or sse.
        """
        query = request.query_params
        offset, live = query.get("offset"), query.get("live")
        if len(query.getlist("offset")) > 1 or (live in ("long-poll", "sse") and not offset):
            raise Invalid("invalid_offset", "give exactly one `offset`, which live reading needs: "
                          "nothing was sent")
        source = await _source(gateway, request, name)
        start = durable.START if offset is None else offset
        try:
            place = durable.place_of(start, source.partition, source.stream.tail)
        except BadOffset as error:
            raise Invalid("invalid_offset", str(error)) from None
        cursor = query.get("cursor")
        if live == "sse":
            return await _live(gateway, source, place, cursor)
        found = source.page(place)
        if live == "long-poll":
            if not found.appends and not found.closed:
                subscription = await source.subscribe()
                try:
                    found = await source.next_page(subscription, place, LONG_POLL_S)
                finally:
                    gateway.hub.unsubscribe(subscription)
            return _polled(source, start, found, cursor, request)
        if start == durable.NOW:
            headers = {"cache-control": "no-store", **source.headers(found)}
            return Response(durable.body_of([]), headers=headers)
        return _caught_up(source, start, found, request, {})

    @routes.api_route(
        "/{name}", methods=["PUT", "POST", "PATCH", "DELETE"], include_in_schema=False
    )
    async def write(name: str) -> Response:
        """Refuse a request that would write."""
        return JSONResponse(READ_ONLY, 405, {"allow": "GET, HEAD"})

    return routes


class Source:
    """A stream that the user may read, as of the views last passed to `update`."""

    def __init__(self, gateway: Gateway, caller: Caller, views: SessionViews) -> None:
        self._gateway, self.caller = gateway, caller
        self.update(views)

    def update(self, views: SessionViews) -> None:
        """Continue with newer views of the session."""
        self.session_id = views.session_id
        self.partition, _ = self._gateway.tail.cursor(self.session_id)
        self.stream = SessionStream(views, self._gateway.shown_blob)

    def page(self, place: int) -> Page:
        """The appends of the stream from a place on."""
        return durable.page(self.stream, place)

    def headers(self, found: Page) -> dict[str, str]:
        """The headers for a page."""
        out = {
            "content-type": durable.JSON,
            "content-disposition": "attachment",
            "stream-next-offset": durable.offset_of(self.partition, found.place),
        }
        if found.up_to_date:
            out["stream-up-to-date"] = "true"
        if found.up_to_date and found.closed:
            out["stream-closed"] = "true"
        return out

    def end_headers(self) -> dict[str, str]:
        """The headers for the end of the stream."""
        end = durable.offset_of(self.partition, self.stream.tail)
        return {"stream-next-offset": end} | (
            {"stream-closed": "true"} if self.stream.closed else {}
        )

    async def subscribe(self) -> Subscription:
        """A subscription to the session's next events. Raises TooManyViewers."""
        hub = self._gateway.hub
        return await hub.subscribe(self.session_id, None, "now", self.caller.user)

    async def next_page(self, subscription: Subscription, place: int, wait_s: float) -> Page:
        """Wait at most `wait_s` seconds for appends after a place, and return the page."""
        deadline = time.monotonic() + wait_s
        while True:
            self.update(subscription.views)
            found, left = self.page(place), deadline - time.monotonic()
            if found.appends or found.closed or subscription.ended or left <= 0:
                return found
            await subscription.wait_for_event(left)


async def _source(gateway: Gateway, request: Request, name: str) -> Source:
    """Raises Unauthenticated, UnknownSession, LookNotRecorded."""
    caller = gateway.caller(request)
    views = await gateway.read(gateway.seen, caller, name, LookKind.STREAM)
    return Source(gateway, caller, views)


def _cursor(given: str | None) -> str:
    return durable.cursor_of(given, time.time(), random.randint(1, JITTER_S))


def _caught_up(
    source: Source, start: str, found: Page, request: Request, more: dict[str, str]
) -> Response:
    tag = durable.etag_of(source.session_id, start, found, source.partition)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    headers = {"cache-control": PRIVATE, "etag": tag, **more, **source.headers(found)}
    messages = [message for _, several in found.appends for message in several]
    return Response(durable.body_of(messages), headers=headers)


def _polled(
    source: Source, start: str, found: Page, cursor: str | None, request: Request
) -> Response:
    more = {"stream-cursor": _cursor(cursor)}
    if found.appends:
        return _caught_up(source, start, found, request, more)
    headers = {"cache-control": "no-store", **more, **source.headers(found)}
    del headers["content-type"], headers["content-disposition"]
    return Response(status_code=204, headers=headers)


async def _live(gateway: Gateway, source: Source, place: int, cursor: str | None) -> Response:
    subscription = await source.subscribe()
    headers = {"content-type": "text/event-stream"}
    pieces = _pieces(source, subscription, place, cursor)
    unsubscribe = partial(gateway.hub.unsubscribe, subscription)
    return EventStream(pieces, headers=headers, at_end=unsubscribe)


async def _pieces(
    source: Source, subscription: Subscription, place: int, cursor: str | None
) -> AsyncIterator[bytes | None]:
    """Yield each append, followed by a control event with the next offset. Without appends, yield
    only the control event.
    """
    partition = source.partition
    # The stream must not outlive the token that opened it.
    deadline = time.monotonic() + min(SSE_S, source.caller.until - time.time())
    found = source.page(place)
    while True:
        for number, (after, messages) in enumerate(found.appends, 1):
            is_last = number == len(found.appends)
            at = found if is_last else Page([], after, False, False)
            control = durable.control_event(partition, at, _cursor(cursor))
            yield durable.data_event(messages) + control
        if not found.appends:
            yield durable.control_event(partition, found, _cursor(cursor))
        if found.up_to_date and found.closed:
            return
        place, has_sent = found.place, True
        while has_sent or not (found.appends or found.closed):
            left = deadline - time.monotonic()
            if subscription.ended or left <= 0:
                return
            if not has_sent:
                yield None
            found = await source.next_page(subscription, place, min(left, HEARTBEAT_S))
            has_sent = False
