"""Tabs: each tab of a page has its own session, and a user's tabs know of each other (S0.5-S0.7).

A browser has no cookie per tab, so the session id lies in a cookie whose name holds the tab's own
id, which the page makes once and keeps in sessionStorage: that is per tab and outlives a reload.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....producers.sessions import new_session_id
from ...client import DEFAULT_AGENT
from ...tabs import Change, Tabs
from ..access import Who
from ..event_stream import EventStream, event
from ..json_bodies import JsonRoute
from ..parts import Gateway
from ..tail import NotReady
from ..watching import HEARTBEAT_S
from .plain import Asked, cancelled, compact, decision_json, opened

COOKIE = "foldlog_tab_"
QUEUE_MAX = 256
"""Changes that may wait for a tab that does not read; then it is cut off, and comes back."""

TAB_ID = r"^[A-Za-z0-9-]{1,64}$"


class OfTab(Asked):
    """A tab that wants its session. `tab`: the id that the page keeps in its sessionStorage."""

    tab: str = Field(pattern=TAB_ID)
    agent: str = DEFAULT_AGENT


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(route_class=JsonRoute)

    @routes.get("/api/tabs")
    def tabs(request: Request) -> Any:
        """The asker's open sessions, the newest first."""
        found = _ready(gateway).open_sessions(gateway.user(request))
        return {"tabs": [tab._asdict() for tab in found]}

    @routes.get("/api/tabs/events", response_class=EventStream)
    async def changes(request: Request) -> Response:
        """What is open (`tabs`), then what changes: session_open, phase, session_close.

        Whoever comes back is told what is open again: there is no cursor to keep.
        """
        who, tabs = gateway.who(request), _ready(gateway)
        return EventStream(_changes(tabs, who), at_end=gateway.hub.place(who.user))

    @routes.post("/api/tabs")
    async def tab(request: Request, body: OfTab) -> Any:
        """The session of this tab: the one it had, or a new one. Sets its cookie."""
        user, name = gateway.user(request), COOKIE + body.tab
        session_id, fresh = _had(gateway, request, name), False
        if session_id is None:
            session_id, fresh = new_session_id(), True
            await opened(gateway, user, session_id, body.agent)
        answer = JSONResponse({"session_id": session_id, "new": fresh}, 201 if fresh else 200)
        secure = request.url.scheme == "https"
        answer.set_cookie(name, session_id, httponly=True, samesite="strict", secure=secure)
        return answer

    @routes.post("/cancel")
    async def cancel(
        request: Request, session_id: str = Query(), seen_phase: str | None = None
    ) -> Any:
        """Stop what runs in a session, also of another tab; of the same user only (S0.6)."""
        return decision_json(await cancelled(gateway, request, session_id, seen_phase=seen_phase))

    return routes


def _had(gateway: Gateway, request: Request, cookie: str) -> str | None:
    """The session that the tab had and may go on with, or None."""
    session_id = request.cookies.get(cookie, "")
    views = gateway.seen_by(gateway.who(request), session_id)  # None of who was signed in before
    return views.session_id if views is not None and not views.turn.terminated else None


def _ready(gateway: Gateway) -> Tabs:
    if not gateway.tabs.caught_up.is_set() or gateway.tabs.failed is not None:
        raise NotReady("this gateway does not know the tabs yet, or no longer: ask again")
    return gateway.tabs


async def _changes(tabs: Tabs, who: Who) -> AsyncIterator[bytes | None]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Change] = asyncio.Queue()

    def listener(change: Change) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, change)

    now = tabs.listen(who.user, listener)
    try:
        yield event(compact({"tabs": [tab._asdict() for tab in now]}), name="tabs")
        while queue.qsize() <= QUEUE_MAX and time.time() < who.until:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    change = await queue.get()
            except TimeoutError:
                yield None
                continue
            yield event(compact(_told(change)), name=change.kind)
    finally:
        tabs.leave(who.user, listener)


def _told(change: Change) -> dict[str, Any]:
    return {"event": change.kind, **change.tab._asdict()}
