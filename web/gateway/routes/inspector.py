"""The routes of the inspector: its page at `/`, the page's static files, and its JSON API.

The page contains no data of a session, so it needs no token. Every request about a session checks
the user. The files come from the package and are read once, so a path in a request is never used as
a path on disk.
"""

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ....client.show import UnknownSession
from ....processors.advice.prices import load_prices
from ....schemas.enums import LookKind
from ...inspector import api
from ...inspector.family import family_json
from ...inspector.timeline import Moment, Timeline, Timelines
from ..gateway import Gateway
from ..json_bodies import INT_MAX, JsonRoute

STATIC = Path(__file__).parents[2] / "inspector" / "static"
INDEX = "index.html"

# The page runs and shows only files of this package, and connects only to this gateway. Trusted
# types prevent a bug of ours from turning text into markup. Attached images are blobs, because an
# <img> cannot send a token.
POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FORK = "/v1/sessions/{session_id}/fork"

Offset = Annotated[int | None, Query(ge=0, le=INT_MAX)]
AtLeast0 = Annotated[int, Query(ge=0, le=INT_MAX)]
Limit = Annotated[int, Query(ge=1, le=api.PAGE_EVENTS)]



class File(NamedTuple):
    """A file of the page. etag: a digest of its bytes, so that browsers notice an upgrade and
    download no file twice.
    """

    data: bytes
    media_type: str
    etag: str


def files() -> dict[str, File]:
    """The files of the page, by their paths below static/."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            media_type = MEDIA_TYPES.get(path.suffix, MEDIA_TYPES[".txt"])
            name = path.relative_to(STATIC).as_posix()
            found[name] = File(data, media_type, f'"{sha256(data).hexdigest()[:32]}"')
    return found


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(include_in_schema=False, route_class=JsonRoute)
    _page(routes, files())
    _api(routes, gateway)
    return routes


def _page(routes: APIRouter, page_files: dict[str, File]) -> None:
    def answer(request: Request, name: str) -> Response:
        file = page_files.get(name)
        if file is None:
            raise HTTPException(404, "the inspector has no such file")
        headers = {
            "etag": file.etag,
            "cache-control": "no-cache",
            "content-security-policy": POLICY,
        }
        if request.headers.get("if-none-match") == file.etag:
            return Response(None, 304, headers)
        return Response(file.data, 200, headers, file.media_type)

    @routes.get("/")
    def index(request: Request) -> Response:
        return answer(request, INDEX)

    @routes.get("/inspector/static/{name:path}")
    def static(request: Request, name: str) -> Response:
        return answer(request, name)


def _api(routes: APIRouter, gateway: Gateway) -> None:
    timelines = Timelines(gateway.client.log, gateway.read_blob)
    prices = load_prices(gateway.settings.prices)
    read = gateway.read_blob

    def timeline_of(request: Request, session_id: str, what: LookKind) -> Timeline:
        caller = gateway.caller(request)
        views = gateway.seen(caller, session_id, what)
        found = timelines.of(views.session_id, caller.user)
        if not found.known:
            raise UnknownSession(f"there is no session {session_id}")
        return found

    def moment_of(
        request: Request, session_id: str, at: int | None, what: LookKind = LookKind.MOMENT
    ) -> tuple[Timeline, Moment]:
        found = timeline_of(request, session_id, what)
        return found, found.at(at)

    @routes.get("/inspector/api/about")
    def about(request: Request) -> Any:
        """The user and the user's roles, and the features of this gateway."""
        caller, paths = gateway.caller(request), request.app.openapi()["paths"]
        return {"user": caller.user, "roles": sorted(caller.roles), "can": {"fork": FORK in paths}}

    session_path = "/inspector/api/sessions/{session_id}"

    @routes.get(f"{session_path}/events")
    def events(
        request: Request, session_id: str, since: AtLeast0 = 0, limit: Limit = api.PAGE_EVENTS
    ) -> Any:
        return api.events_json(timeline_of(request, session_id, LookKind.EVENTS), since, limit)

    @routes.get(f"{session_path}/runs")
    def runs(request: Request, session_id: str, since: AtLeast0 = 0) -> Any:
        return api.runs_of(timeline_of(request, session_id, LookKind.EVENTS), since)

    @routes.get(f"{session_path}/lines")
    def lines(request: Request, session_id: str, since: AtLeast0 = 0) -> Any:
        found = timeline_of(request, session_id, LookKind.TRANSCRIPT)
        return api.lines_json(found, gateway.shown_blob, since)

    @routes.get(f"{session_path}/moment")
    def moment(request: Request, session_id: str, at: Offset = None) -> Any:
        found, at_it = moment_of(request, session_id, at)
        return api.moment_json(found, at_it, read, prices)

    @routes.get(f"{session_path}/request")
    def model_request(request: Request, session_id: str, at: Offset = None) -> Any:
        return api.request_json(*moment_of(request, session_id, at, LookKind.REQUEST), read)

    @routes.get(f"{session_path}/cost")
    def cost(request: Request, session_id: str, at: Offset = None) -> Any:
        return api.cost_of(*moment_of(request, session_id, at), prices)

    @routes.get(f"{session_path}/fills")
    def fills(request: Request, session_id: str, at: Offset = None) -> Any:
        return api.fills_json(*moment_of(request, session_id, at), read)

    @routes.get(f"{session_path}/family")
    def family(request: Request, session_id: str) -> Any:
        """Rows for this session, for the sessions that it was forked from, and for all forks of
        these sessions.
        """
        caller = gateway.caller(request)
        views = gateway.seen(caller, session_id, LookKind.SESSION)
        return family_json(
            views,
            lambda name: gateway.seen_or_none(caller, name, None),
            [row["session_id"] for row in gateway.tail.summaries(gateway.listed(caller))],
            gateway.overview.title,
        )

    @routes.get(f"{session_path}/compare")
    def compare(
        request: Request,
        session_id: str,
        before: AtLeast0,
        after: AtLeast0,
        other: Annotated[str, Query(max_length=500)] = "",
    ) -> Any:
        """Compare the session at two offsets; with `other`, `before` is an offset of that session.
        """
        found = timeline_of(request, session_id, LookKind.COMPARISON)
        if other:
            of_other = timeline_of(request, other, LookKind.COMPARISON)
            return api.compare_sessions_json(
                found, found.at(after), of_other, of_other.at(before), read
            )
        return api.compare_json(found, found.at(before), found.at(after), read)
