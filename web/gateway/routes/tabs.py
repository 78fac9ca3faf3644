"""The routes for tabs: each tab of a page has its own session, and lists its user's other sessions.

Browsers have no cookies per tab, so the session id is in a cookie whose name contains the tab's id.
The page generates the tab's id once and keeps it in sessionStorage, which is per tab and survives a
reload.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....client.commands import DEFAULT_AGENT, Commands
from ....producers.sessions import new_session_id
from ....schemas.canonical import compact
from .. import answers
from ..access import Caller, NotYours
from ..answers import ok
from ..event_stream import EventStream, event
from ..gateway import Gateway
from ..json_bodies import JsonRoute
from ..subscriptions import HEARTBEAT_S
from ..tabs import Change, Tabs
from ..tail import NotReady
from .plain import RequestBody, create_session, decision_json

COOKIE = "foldlog_tab_"
QUEUE_MAX = 256
"""The most changes queued for a tab that does not read; then the tab is disconnected, and
reconnects.
"""

TAB_ID = r"^[A-Za-z0-9-]{1,64}$"


class OfTab(RequestBody):
    """The request of a tab for its session. `tab`: the id that the page keeps in sessionStorage."""

    tab: str = Field(pattern=TAB_ID)
    agent: str = DEFAULT_AGENT


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(route_class=JsonRoute)

    @routes.get("/api/tabs", responses=ok(answers.Tabs))
    def tabs(request: Request) -> Any:
        """The user's open sessions, newest first."""
        found = _ready(gateway).open_sessions(gateway.user(request))
        return {"tabs": [tab._asdict() for tab in found]}

    @routes.get("/api/tabs/events", response_class=EventStream)
    async def changes(request: Request) -> Response:
        """The user's open sessions (`tabs`), then the changes: session_open, phase, session_close.

        A client that reconnects gets the open sessions again, so it needs no cursor.
        """
        caller, tabs = gateway.caller(request), _ready(gateway)
        return EventStream(_changes(tabs, caller), at_end=gateway.hub.reserve(caller.user))

    @routes.post(
        "/api/tabs", responses={**ok(answers.TabSession), **ok(answers.TabSession, 201)}
    )
    async def tab(request: Request, body: OfTab) -> Any:
        """The tab's previous session, or a new one. Sets the tab's cookie."""
        user, name = gateway.user(request), COOKIE + body.tab
        session_id, fresh = _previous(gateway, request, name), False
        if session_id is None:
            session_id, fresh = new_session_id(), True
            await create_session(gateway, user, session_id, body.agent)
        answer = JSONResponse({"session_id": session_id, "new": fresh}, 201 if fresh else 200)
        secure = request.url.scheme == "https"
        answer.set_cookie(name, session_id, httponly=True, samesite="strict", secure=secure)
        return answer

    @routes.post("/cancel", responses=ok(answers.Decided))
    async def cancel(
        request: Request, session_id: str = Query(), seen_phase: str | None = None
    ) -> Any:
        """Stop the running turn of a session, which may be in another tab of the same user."""
        on = gateway.commands(request, session_id)
        return decision_json(await gateway.rule(on, Commands.cancel, seen_phase=seen_phase))

    return routes


def _previous(gateway: Gateway, request: Request, cookie: str) -> str | None:
    """The tab's previous session if the user may continue it, else None."""
    views = None
    with suppress(NotYours):  # or there are none: the session belongs to a user of before
        views = gateway.views_or_none(gateway.caller(request), request.cookies.get(cookie, ""))
    return views.session_id if views is not None and not views.turn.terminated else None


def _ready(gateway: Gateway) -> Tabs:
    if not gateway.tabs.caught_up.is_set() or gateway.tabs.failed is not None:
        raise NotReady("this gateway has not read the list of tabs yet: nothing was done. Try "
                       "again in a moment")
    return gateway.tabs


async def _changes(tabs: Tabs, caller: Caller) -> AsyncIterator[bytes | None]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Change | None] = asyncio.Queue()

    def listener(change: Change | None) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, change)

    now = tabs.listen(caller.user, listener)
    try:
        yield event(compact({"tabs": [tab._asdict() for tab in now]}), name="tabs")
        while queue.qsize() <= QUEUE_MAX and time.time() < caller.until:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    change = await queue.get()
            except TimeoutError:
                yield None
                continue
            if change is None:
                return
            data = {"event": change.kind, **change.tab._asdict()}
            yield event(compact(data), name=change.kind)
    finally:
        tabs.leave(caller.user, listener)
