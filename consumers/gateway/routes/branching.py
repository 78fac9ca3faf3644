"""Routes for branching: a session forked at an offset, an answer asked for anew in a fork.

Both make a new session and leave the old one as it is. What may be forked is branching.py's word.
"""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from ....producers.sessions import Receipt
from ...branching import Forked
from ..json_bodies import JsonRoute
from ..parts import Gateway
from .plain import Asked, decision_json


class Fork(Asked):
    """Where to fork: right after the offset `at`, by default as the session is now. `name`: the
    new session's id, made here if it is not given."""

    at: int | None = None
    name: str | None = None


class Regenerate(Asked):
    """Which turn's messages to say again in a fork, by default the last one's."""

    turn: int | None = None
    name: str | None = None


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/v1", route_class=JsonRoute)

    async def answered(
        request: Request, command: str, session_id: str, at: int | None, name: str | None
    ) -> Any:
        who, views = gateway.who(request), gateway.owned(request, session_id)
        do = getattr(gateway.client.branching(who.user), command)
        new_id = None if name is None else gateway.named(who, name)
        forked = await gateway.blocking(do, views.session_id, at, new_id)
        return await _told(gateway, forked)

    @routes.post("/sessions/{session_id}/fork", status_code=201)
    async def fork(request: Request, session_id: str, body: Fork) -> Any:
        """A new session that begins as this one was; this one goes on."""
        return await answered(request, "fork", session_id, body.at, body.name)

    @routes.post("/sessions/{session_id}/regenerate", status_code=201)
    async def regenerate(request: Request, session_id: str, body: Regenerate) -> Any:
        """A fork before a turn, and its messages said again there; both answers are kept."""
        return await answered(request, "regenerate", session_id, body.turn, body.name)

    return routes


async def _told(gateway: Gateway, forked: Forked) -> dict[str, Any]:
    """The answer, once this gateway has the fork as well."""
    decision = forked.decision
    partition, _ = gateway.tail.cursor(forked.session_id)
    await gateway.decided(Receipt(forked.session_id, partition, decision.offset))
    return decision_json(
        decision,
        parent_session=forked.parent,
        parent_offset=forked.offset,
        message_id=forked.message_id,
    )
