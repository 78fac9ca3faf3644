"""The JSON for the inspector's home page: sessions, agents, charts, search. Each response is for
one user.

The list and the charts come from the fleet; while there is none, from the gateway's overview, which
the gateway's reader keeps up to date. Search uses the index, which reads only new records.
"""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request

from ....client.printable import encodable
from ....reports.search.search_index import Found
from ....schemas.enums import LookKind
from ...inspector.overview import HOURS_MAX, ROWS_MAX
from ..finder import Behind
from ..gateway import Gateway
from ..json_bodies import INT_MAX, JsonRoute

ROWS = 1_000
FOUND_MAX = 100
WORDS_CHARS_MAX = 500
EXCERPT_CHARS = 90
"""Characters of a hit shown on each side of its first match."""


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(
        prefix="/inspector/api", include_in_schema=False, route_class=JsonRoute
    )

    @routes.get("/home")
    def home(
        request: Request,
        since: Annotated[str, Query(max_length=60)] = "",
        limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = ROWS,
    ) -> Any:
        """The user's sessions: all of them, or those that changed since the `version` of an earlier
        response.
        """
        user = gateway.listed(gateway.caller(request))
        gateway.tail.ready()
        return {
            **gateway.fleet.home(user, since, limit),
            "agents": gateway.overview.agents(user, gateway.tail.partitions()),
            "now": time.time_ns() // 1_000_000,
        }

    @routes.get("/charts")
    def charts(
        request: Request,
        hours: Annotated[int, Query(ge=1, le=HOURS_MAX)] = 24,
        step: Annotated[int, Query(ge=1, le=24)] = 1,
        until: Annotated[int | None, Query(ge=0, le=INT_MAX)] = None,
    ) -> Any:
        """Cost, tokens, errors and times of the user's sessions, by interval."""
        user = gateway.listed(gateway.caller(request))
        gateway.tail.ready()
        end = time.time_ns() // 1_000_000 if until is None else until
        return gateway.fleet.charts(user, end, hours - hours % step or step, step)

    @routes.get("/search")
    def search(
        request: Request,
        q: Annotated[str, Query(min_length=1, max_length=WORDS_CHARS_MAX)],
        limit: Annotated[int, Query(ge=1, le=FOUND_MAX)] = 20,
    ) -> Any:
        """The messages, answers and results that match, best first, or the progress of the index.
        """
        user = gateway.listed(gateway.caller(request), LookKind.SEARCH)
        gateway.tail.ready()
        found = gateway.finder.search(q, user, limit)
        if isinstance(found, Behind):
            return {"found": [], "behind": found.progress._asdict()}
        hits = [hit for hit in found if _is_listed(gateway, hit, user)]
        titles = [gateway.overview.title(hit.document.session_id) for hit in hits]
        return {
            "found": [_hit(hit, title) for hit, title in zip(hits, titles, strict=True)],
            "behind": None,
        }

    return routes


def _is_listed(gateway: Gateway, found: Found, user: str | None) -> bool:
    """Whether the gateway knows the session, as a session of this user."""
    owner = gateway.tail.user_of(found.document.session_id)
    return owner is not None and user in (None, owner)


def _hit(found: Found, title: str) -> dict[str, Any]:
    document = found.document
    before, match, after = _excerpt(found)
    return {
        "id": document.session_id,
        "title": title,
        "kind": document.kind,
        "who": document.who,
        "at": document.at,
        "offset": document.at_offset,
        "turn": document.turn,
        "before": encodable(before),
        "match": encodable(match),
        "after": encodable(after),
    }


def _excerpt(found: Found) -> tuple[str, str, str]:
    """The text before the first match, the match, and the text after it, on one line."""
    text, marks = found.snippet
    start, end = marks[0] if marks else (0, 0)
    before, after = text[max(0, start - EXCERPT_CHARS) : start], text[end : end + EXCERPT_CHARS]
    left = "…" if start > EXCERPT_CHARS else ""
    right = "…" if end + EXCERPT_CHARS < len(text) else ""
    return left + _flat(before), _flat(text[start:end]), _flat(after) + right


def _flat(text: str) -> str:
    """The text on one line; a blank at either end is kept."""
    return " ".join(text.split()).join((" " * text[:1].isspace(), " " * text[-1:].isspace()))
