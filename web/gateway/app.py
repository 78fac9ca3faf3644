"""The gateway as an ASGI app: joins its parts, and applies the rules for every request.

The app checks the origin, the user and the size of a request and passes it to a route. Each
protocol has one file of routes; gateway.py has what routes may use.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .access import Access, Foreign, Unauthenticated
from .answers import PROBLEMS
from .bodies import Bodies
from .event_stream import EventStream
from .gateway import Gateway
from .metrics import Counted
from .routes import (
    ag_ui,
    ai_sdk,
    branching,
    durable,
    home,
    inspector,
    metrics,
    plain,
    tabs,
)

BODY_BYTES_MAX = 8 * 1024 * 1024 + 64 * 1024
"""Size limit of a request body: the largest message plus the JSON around it."""

Router = Callable[[Gateway], APIRouter]

ROUTERS: tuple[Router, ...] = (
    plain.router,
    tabs.router,
    branching.router,
    inspector.router,
    home.router,
    metrics.router,
    ag_ui.router,
    ai_sdk.router,
    durable.router,
)
"""Each function returns routes for a gateway."""

ALLOWED_HEADERS = b"authorization, content-type, last-event-id, if-none-match"
"""Headers that pages of an allowed origin may send, in addition to those that CORS always allows.
EXPOSED_HEADERS are the headers that these pages may read in responses.
"""
EXPOSED_HEADERS = b"etag, stream-next-offset, stream-up-to-date, stream-closed, stream-cursor"

INERT = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"sandbox; default-src 'none'; frame-ancestors 'none'",
    b"x-frame-options": b"DENY",
}
"""The headers that keep browsers from treating a response as an active page. All routes send them,
and so do refused connections, because most responses contain text written by users. The inspector's
own files send a different policy.
"""

HEADERS = {
    **INERT,
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}

AMBIGUOUS = {
    "code": "invalid",
    "detail": "the length of this request's body is ambiguous: nothing was done and the "
    "connection is closed. Send Content-Length or, with HTTP/1.1, Transfer-Encoding, not both",
}

WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
"""Methods whose routes read no body. Some routes with these methods need no token."""

PASSIVE = (b"application/json", b"text/event-stream", b"text/plain")
"""Media types that no browser renders as a page. Any other type is downloaded, unless the response
has a content security policy of its own."""
ATTACHMENT = (b"content-disposition", b"attachment")


def make_app(gateway: Gateway, routers: Sequence[Router] = ROUTERS) -> ASGIApp:
    """The app of a gateway, with the routes of `routers`."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    # The framework's own pages are off, because they load scripts from other hosts.
    app = Documented(
        title="foldlog gateway",
        summary="Agent sessions, live and as they were.",
        lifespan=lifespan,
        responses=PROBLEMS,
        docs_url=None,
        redoc_url=None,
        max_body_size=BODY_BYTES_MAX,  # also without Content-Length
    )
    errors.install(app, gateway.print_line)
    for router in routers:
        app.include_router(router(gateway))
    return Counted(Admission(app, gateway.access), gateway.answers)


class Documented(FastAPI):
    """An app whose /openapi.json says that refusals are JSON also where the answer is a stream."""

    def openapi(self) -> dict[str, Any]:
        """The document. FastAPI declares every answer of a route with one media type."""
        document = super().openapi()
        for methods in document["paths"].values():
            for operation in methods.values():
                for status, response in operation["responses"].items():
                    content = response.get("content", {})
                    if not status.startswith("2") and EventStream.media_type in content:
                        content["application/json"] = content.pop(EventStream.media_type)
        return document


class Admission:
    """Checks the origin, the user and the size of each request, answers CORS preflights, and adds
    headers to every response. Reads bodies only from authenticated users.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access, self._bodies = app, access, Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        allowed = self._cors_headers(request.headers.get("origin"))
        out = _with_headers(send, {**HEADERS, **allowed})
        if is_ambiguous(scope["http_version"], request.headers):
            await JSONResponse(AMBIGUOUS, 400, {"connection": "close"})(scope, receive, out)
            return
        try:
            self._access.admit(request.headers)
            sends = request.method not in WITHOUT_BODY
            caller = self._access.caller_of(request) if sends else None
        except (Foreign, Unauthenticated) as error:
            await errors.response_to(error)(scope, receive, out)
            return
        if int(request.headers.get("content-length", 0)) > BODY_BYTES_MAX:  # uvicorn validated it
            detail = f"a body has at most {BODY_BYTES_MAX} bytes: nothing was done. Send less"
            await JSONResponse({"code": "too_large", "detail": detail}, 413)(scope, receive, out)
            return
        if request.method == "OPTIONS" and allowed:
            await Response(status_code=204)(scope, receive, out)
            return
        if caller is None:
            await self._app(scope, receive, out)
            return
        with self._bodies.count(caller.user, receive) as counted:
            await self._app(scope, counted, out)

    def _cors_headers(self, origin: str | None) -> dict[bytes, bytes]:
        if origin is None or origin not in self._access.origins:
            return {}
        return {
            b"access-control-allow-origin": origin.encode(),
            b"access-control-allow-credentials": b"true",
            b"access-control-allow-headers": ALLOWED_HEADERS,
            b"access-control-expose-headers": EXPOSED_HEADERS,
            b"access-control-allow-methods": b"GET, HEAD, POST",
            b"vary": b"origin",
        }


def is_ambiguous(version: str, headers: Mapping[str, str]) -> bool:
    """Whether a proxy could disagree about where this request ends (request smuggling), because it
    has two lengths, or an encoding that its HTTP version lacks.
    """
    return "transfer-encoding" in headers and ("content-length" in headers or version == "1.0")


def _with_headers(send: Send, more: dict[bytes, bytes]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = dict(message["headers"])
            added = [item for item in more.items() if item[0] not in present]
            kind = present.get(b"content-type", PASSIVE[0]).partition(b";")[0].strip().lower()
            own = b"content-security-policy" in present or ATTACHMENT[0] in present
            if kind not in PASSIVE and not own:
                added.append(ATTACHMENT)
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers
