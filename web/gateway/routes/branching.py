"""Routes for branching: fork a session at an offset, or answer again in a fork.

All routes create a new session and leave the old session unchanged. `client/branching.py`
checks whether a session may be forked.
"""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from ....producers.sessions import Receipt
from ..answers import Forked, ok
from ..gateway import Gateway
from ..json_bodies import JsonRoute
from .plain import RequestBody, decision_json


class Fork(RequestBody):
    """Fork right after the offset `at`, by default at the session's end. `name`: the new session's
    id, by default a generated one.
    """

    at: int | None = None
    name: str | None = None


class Regenerate(RequestBody):
    """The turn whose messages are sent again in a fork, by default the last turn."""

    turn: int | None = None
    name: str | None = None


class Rerun(RequestBody):
    """The new text of a message, by default the last one right after the offset `at`, by default
    now, or the new result of `call`. Only with `call`: `error` marks the result as that of a failed
    call, and `reason` tells people why it was replaced.
    """

    text: str
    message_id: str | None = None
    call: str | None = None
    at: int | None = None
    error: bool = False
    reason: str = ""
    name: str | None = None


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/v1", route_class=JsonRoute)

    async def branch(
        request: Request, command: str, session_id: str, name: str | None, *args: Any, **more: Any
    ) -> Any:
        caller, views = gateway.caller(request), gateway.views(request, session_id)
        method = getattr(gateway.client.branching(caller.user), command)
        new_id = None if name is None else gateway.session_id(caller, name)
        forked = await gateway.blocking(method, views.session_id, *args, name=new_id, **more)
        partition, _ = gateway.tail.cursor(forked.session_id)
        # Respond only when this gateway has folded the fork too.
        await gateway.decision(Receipt(forked.session_id, partition, forked.decision.offset))
        return decision_json(
            forked.decision,
            parent_session=forked.parent,
            parent_offset=forked.offset,
            message_id=forked.message_id,
        )

    @routes.post(
        "/sessions/{session_id}/fork", status_code=201, responses=ok(Forked, 201)
    )
    async def fork(request: Request, session_id: str, body: Fork) -> Any:
        """Open a new session that begins with this session's history.

        This session continues unchanged.
        """
        return await branch(request, "fork", session_id, body.name, body.at)

    @routes.post(
        "/sessions/{session_id}/regenerate", status_code=201, responses=ok(Forked, 201)
    )
    async def regenerate(request: Request, session_id: str, body: Regenerate) -> Any:
        """Fork before a turn, and send its messages to the fork again. Both answers are kept."""
        return await branch(request, "regenerate", session_id, body.name, body.turn)

    @routes.post("/sessions/{session_id}/rerun", status_code=201, responses=ok(Forked, 201))
    async def rerun(request: Request, session_id: str, body: Rerun) -> Any:
        """Edit the last message or the result of a call, and answer again in a fork. No tool runs
        again, and both answers are kept.
        """
        edit = body.model_dump(exclude={"name", "text"})
        return await branch(request, "rerun", session_id, body.name, body.text, **edit)

    return routes
