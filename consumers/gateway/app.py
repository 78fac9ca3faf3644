"""The gateway as an ASGI app: its parts put together, and what holds for every request.

A request is admitted by origin and size, told who asks, and given to a route; routes are one file
per protocol. Everything a route may use is an attribute of `Gateway`. It holds no truth: killed at
any instant, another one shows the same.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...processors.runtime.chunks_reader import chunks_reader
from ...processors.session import SessionViews
from ...producers.sessions import Receipt
from ..client import Client
from ..outcomes import Decision, demand
from ..show import UnknownSession
from ..tabs import Tabs
from ..telemetry.metrics import Counted
from . import (
    errors,
    routes_ag_ui,
    routes_ai_sdk,
    routes_branching,
    routes_durable,
    routes_inspector,
    routes_metrics,
    routes_plain,
    routes_tabs,
)
from .access import Access, Foreign, Who
from .hub import Hub
from .tail import Tail

T = TypeVar("T")
BODY_BYTES_MAX = 8 * 1024 * 1024 + 64 * 1024
"""Of a request: the largest message, and what is around it."""

ROUTERS = (
    routes_plain.router,
    routes_tabs.router,
    routes_branching.router,
    routes_inspector.router,
    routes_metrics.router,
    routes_ag_ui.router,
    routes_ai_sdk.router,
    routes_durable.router,
)
"""What is served; each makes its routes for a gateway."""

ALLOWED_HEADERS = (
    b"authorization, content-type, last-event-id, if-none-match, stream-closed, stream-seq, "
    b"stream-ttl, stream-expires-at, producer-id, producer-epoch, producer-seq"
)
"""What pages of an allowed origin may send, and see of an answer beside what all may."""
EXPOSED_HEADERS = (
    b"etag, location, stream-next-offset, stream-up-to-date, stream-closed, stream-cursor, "
    b"stream-sse-data-encoding, stream-ttl, stream-expires-at, producer-epoch, producer-seq, "
    b"producer-expected-seq, producer-received-seq"
)

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}


class Gateway:
    """The parts of one gateway process. Raises as Client and Tail do."""

    def __init__(
        self, client: Client, access: Access, directory: Path, say: Callable[[str], None]
    ) -> None:
        self.client, self.access, self.say = client, access, say
        self.settings = client.settings
        self.read_blob = client.read_blob
        self.answers: Counter[str] = Counter()  # by HTTP status
        self.tail = Tail(client.log, directory, say, client.read_blob)
        self.tabs = Tabs(client.log, say)
        self.hub = Hub(self.tail, client.read_blob, chunks_reader(client.log))

    def who(self, request: Request) -> Who:
        """Who asks. Raises Unauthenticated."""
        return self.access.who(request.headers, request.cookies)

    def user(self, request: Request) -> str:
        """The user who asks. Raises Unauthenticated."""
        return self.who(request).user

    def owned(self, request: Request, session_id: str) -> SessionViews:
        """The views of a session that the asker may see. Raises Unauthenticated, Foreign,
        UnknownSession."""
        views = self.seen_by(self.who(request), session_id)
        if views is None:
            raise UnknownSession(f"there is no session {session_id[:128]}")
        return views

    def seen_by(self, who: Who, session_id: str) -> SessionViews | None:
        """The views of a session, None if it is not known. Raises Foreign, NotReady."""
        self.tail.ready()
        views = self.tail.views(session_id)
        if views is not None and not who.everything and views.state.user_id != who.user:
            raise Foreign(f"session {session_id} is not yours")
        return views

    async def decided(self, receipt: Receipt) -> Decision:
        """What the fold decided on what was asked for. Raises CommandRefused, NotDecidedYet."""
        return demand(await self.hub.decided(receipt.session_id, receipt.offset))

    async def blocking(self, do: Callable[..., T], *args: Any, **named: Any) -> T:
        """Run what waits for the log or the disk, beside the loop."""
        return await asyncio.to_thread(do, *args, **named)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the log as long as this lasts."""
        self.hub.start()
        self.tail.start()
        self.tabs.start()
        try:
            yield
        finally:
            self.hub.close()
            await asyncio.to_thread(self.tabs.close)
            await asyncio.to_thread(self.tail.close)


def make_app(gateway: Gateway) -> ASGIApp:
    """The app of a gateway."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    # No page of the framework's own: it would load scripts from elsewhere.
    app = FastAPI(
        title="foldlog gateway",
        summary="Sessions of agents, as they happen and as they were.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        max_body_size=BODY_BYTES_MAX,  # also of a body that does not say its length
    )
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router(gateway))
    return Counted(Admission(app, gateway.access), gateway.answers)


class Admission:
    """Admits requests by origin and size, answers preflights, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        allowed = self._allowed(request.headers.get("origin"))
        out = _with_headers(send, {**HEADERS, **allowed})
        try:
            self._access.admit(request.method, request.headers)
        except Foreign as error:
            status, body = errors.answer_to(error)
            await JSONResponse(body, status)(scope, receive, out)
            return
        if int(request.headers.get("content-length", 0)) > BODY_BYTES_MAX:  # uvicorn checked it
            detail = f"a body has at most {BODY_BYTES_MAX} bytes; nothing was read of this one"
            await JSONResponse({"code": "too_large", "detail": detail}, 413)(scope, receive, out)
            return
        if request.method == "OPTIONS" and allowed:
            await Response(status_code=204)(scope, receive, out)
            return
        await self._app(scope, receive, out)

    def _allowed(self, origin: str | None) -> dict[bytes, bytes]:
        if origin is None or origin not in self._access.origins:
            return {}
        return {
            b"access-control-allow-origin": origin.encode(),
            b"access-control-allow-credentials": b"true",
            b"access-control-allow-headers": ALLOWED_HEADERS,
            b"access-control-expose-headers": EXPOSED_HEADERS,
            b"access-control-allow-methods": b"GET, HEAD, POST, PUT, DELETE",
            b"vary": b"origin",
        }


def _with_headers(send: Send, more: dict[bytes, bytes]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name for name, _ in message["headers"]}
            added = [item for item in more.items() if item[0] not in there]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending
