"""The HTTP server as one aiohttp application: routes, headers, body limits, validation, journal.

A request is read completely, then recorded as accepted in the journal and fsynced, before the first
byte of its answer is sent. So a call that is missing in the journal was never answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .answer import make_answer
from .binding import Transformation, check_binding
from .cache import PromptCache, positions_of
from .conversation import check_conversation
from .delivery import ClientGone, Delivery, Gates, error_response
from .distort import noisy, shaped
from .errors import SCRIPT_ENDED, ApiError, invalid
from .faults import Stage
from .journal import Journal
from .request import ATTEMPT_HEADER, Request, canaries_of, canary_of
from .script import Reply, Script, Speaker, rule_from_json
from .seal import make_id
from .shape import check_shape

API_VERSIONS = ("2023-06-01", "2026-10-21")
# The documented limit of a request body; a longer one is read and discarded, up to four times it.
BODY_BYTES_MAX = 32 * 1024 * 1024
_OVERSIZE_FACTOR = 4
# The newest bodies are kept in memory for tests that check what was sent.
BODIES_BYTES_MAX = 64 * 1024 * 1024


@dataclass
class ServerState:
    """The state of a running server."""

    script: Script
    journal: Journal
    speakers: dict[str, Speaker] = field(default_factory=dict)
    pace_s: float = 0.0
    split: bool = True
    body_bytes_max: int = BODY_BYTES_MAX
    api_keys: frozenset[str] | None = None
    gates: Gates = field(default_factory=Gates)
    cache: PromptCache = field(default_factory=PromptCache)
    ordinals: Counter[str] = field(default_factory=Counter)
    bodies: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    bodies_bytes: int = 0
    stopping: bool = False

    def __post_init__(self) -> None:
        # A server restarted with its journal continues to count each session's requests.
        for entry in self.journal.entries("accepted"):
            self.ordinals[entry["canary"]] = entry["ordinal"]

    def keep(self, n: int, body: bytes) -> None:
        """Keep a body, and drop the oldest bodies above BODIES_BYTES_MAX."""
        self.bodies[n] = body
        self.bodies_bytes += len(body)
        while self.bodies_bytes > BODIES_BYTES_MAX and len(self.bodies) > 1:
            self.bodies_bytes -= len(self.bodies.popitem(last=False)[1])


STATE = web.AppKey("state", ServerState)


def make_app(state: ServerState) -> web.Application:
    """The application. Run it with `handler_cancellation=True`, so that a stall ends when the
    client disconnects."""
    app = web.Application()
    app[STATE] = state
    app.on_shutdown.append(_stopping)
    app.router.add_post("/v1/messages", messages)
    app.router.add_post("/v1/messages/count_tokens", count_tokens)
    app.router.add_post("/_gate/{name}", open_gate)
    app.router.add_post("/_rules", add_rules)
    app.router.add_get("/_journal", show_journal)
    app.router.add_route("*", "/{tail:.*}", not_found)
    return app


async def _stopping(app: web.Application) -> None:
    app[STATE].stopping = True


# control ----------------------------------------------------------------------------------------


async def open_gate(http: web.Request) -> web.Response:
    """POST /_gate/NAME: open a gate permanently."""
    http.app[STATE].gates.open(http.match_info["name"])
    return web.json_response({"open": http.match_info["name"]})


async def add_rules(http: web.Request) -> web.Response:
    """POST /_rules: a JSON list of rules to insert before all others."""
    state = http.app[STATE]
    try:
        rules = [rule_from_json(data, state.speakers) for data in await http.json()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return web.json_response({"error": f"not a rule: {error}"}, status=400)
    state.script.add(*rules)
    return web.json_response({"added": len(rules)})


async def show_journal(http: web.Request) -> web.Response:
    """GET /_journal: every fact so far."""
    return web.json_response(http.app[STATE].journal.entries())


async def not_found(http: web.Request) -> web.Response:
    """Any other path."""
    known = http.path in ("/v1/messages", "/v1/messages/count_tokens")
    error = ApiError(405, "Method Not Allowed") if known else ApiError(404, "Not Found")
    return error_response(error, make_id("req", http.path, id(http)))


# the API ----------------------------------------------------------------------------------------


@dataclass
class Arrived:
    """A request as received, before validation."""

    n: int
    raw: bytes
    attempt_header: str | None
    request_id: str
    at_s: float
    body: Any = None
    canary: str = "-"

    def identity(self) -> dict[str, Any]:
        return {"canary": self.canary, "attempt": self.attempt_header}

    def facts(self) -> dict[str, Any]:
        body = self.body if isinstance(self.body, dict) else {}
        return {
            **self.identity(),
            "sha256": hashlib.sha256(self.raw).hexdigest(),
            "bytes": len(self.raw),
            "model": body.get("model"),
            "stream": body.get("stream", False),
        }


async def messages(http: web.Request) -> web.StreamResponse:
    """POST /v1/messages."""
    state = http.app[STATE]
    arrived = await _arrive(http, state)
    try:
        dropped = _check(http, state, arrived, counting=False)
    except ApiError as error:
        return _refuse(state, arrived, error)
    request = _request(http, state, arrived)
    try:
        reply = state.script.reply(request)
    except Exception as bug:
        return _fail(state, arrived, bug)
    if reply is None:
        unmatched = invalid(
            f"scripted server: no rule of script {state.script.name!r} matches",
            code=SCRIPT_ENDED,
        )
        return _refuse(state, arrived, unmatched)
    state.journal.note(
        "accepted",
        arrived.n,
        **arrived.facts(),
        canaries=canaries_of(arrived.body),
        ordinal=request.ordinal,
        messages=len(request.messages),
    )
    return await _answer(http, state, request, reply, arrived, dropped)


async def _answer(
    http: web.Request,
    state: ServerState,
    request: Request,
    reply: Reply,
    arrived: Arrived,
    dropped: list[Transformation],
) -> web.StreamResponse:
    try:
        delivery = _delivery(http, state, request, reply, arrived, dropped)
    except Exception as bug:
        return _fail(state, arrived, bug)
    try:
        response, outcome = await delivery.deliver(bool(request.body.get("stream")))
    except (ClientGone, ConnectionError, asyncio.CancelledError) as error:
        kind = "dropped" if state.stopping else "client_gone"
        name = {} if reply.made_fault is None else {"fault": reply.made_fault.name}
        state.journal.note(kind, arrived.n, **arrived.identity(), events=delivery.sent, **name)
        if isinstance(error, asyncio.CancelledError):
            raise
        return web.Response(status=204)  # aiohttp discards it, the client has disconnected
    state.journal.note(outcome.kind, arrived.n, **arrived.identity(), **outcome.facts)
    return response


def _fail(state: ServerState, arrived: Arrived, bug: Exception) -> web.Response:
    """Report a bug of the script in the journal and to the client. The response tells the client
    not to retry."""
    state.journal.note("failed", arrived.n, **arrived.facts(), error=repr(bug))
    error = ApiError(500, f"scripted server: {bug!r}", headers={"x-should-retry": "false"})
    return error_response(error, arrived.request_id)


def _delivery(
    http: web.Request,
    state: ServerState,
    request: Request,
    reply: Reply,
    arrived: Arrived,
    dropped: list[Transformation],
) -> Delivery:
    use = state.cache.use(request.body)
    reply = shaped(reply, request)
    answer = make_answer(request, reply, use)
    if dropped:
        answer.extra["input_transformations"] = dropped
    if "diagnostics" in request.body:
        answer.extra["diagnostics"] = None  # not simulated
    # message_start also contains the extras, so build it again now that they are known.
    answer.events[0] = answer.opening()
    fault = reply.made_fault
    noisy(answer, fault)
    if fault is None or fault.stage is not Stage.BEFORE:
        state.cache.store(use)

    def waiting(gate: str, events: int) -> None:
        state.journal.note("waiting", arrived.n, **arrived.identity(), gate=gate, events=events)

    pace_s = state.pace_s if reply.pace_s is None else reply.pace_s
    return Delivery(
        http, reply, answer, arrived.request_id, pace_s, state.gates, waiting, state.split
    )


async def count_tokens(http: web.Request) -> web.StreamResponse:
    """POST /v1/messages/count_tokens: runs the same checks as a message, and returns the total
    number of input tokens in the cache simulation.
    """
    state = http.app[STATE]
    arrived = await _arrive(http, state)
    try:
        _check(http, state, arrived, counting=True)
    except ApiError as error:
        return _refuse(state, arrived, error)
    tokens = positions_of(arrived.body)[-1].tokens
    state.journal.note("counted", arrived.n, **arrived.facts(), input_tokens=tokens)
    return web.json_response({"input_tokens": tokens}, headers={"request-id": arrived.request_id})


async def _arrive(http: web.Request, state: ServerState) -> Arrived:
    n, at_s = state.journal.next_n(), time.perf_counter()
    raw = bytearray()
    total = 0
    async for piece in http.content.iter_any():
        total += len(piece)
        if len(raw) <= state.body_bytes_max:
            raw += piece
        if total > state.body_bytes_max * _OVERSIZE_FACTOR:
            break
    body = bytes(raw)
    state.keep(n, body)
    request_id = make_id("req", n, hashlib.sha256(body).hexdigest())
    return Arrived(n, body, http.headers.get(ATTEMPT_HEADER), request_id, at_s)


def _check(
    http: web.Request, state: ServerState, arrived: Arrived, *, counting: bool
) -> list[Transformation]:
    """Refuse what the real API would refuse. Sets the body and the canary of `arrived`."""
    if len(arrived.raw) > state.body_bytes_max:
        raise ApiError(413)
    problem: ApiError | None = None
    try:
        arrived.body = json.loads(arrived.raw)
    except ValueError as error:
        problem = invalid(f"The request body is not valid JSON: {error}")
    if isinstance(arrived.body, dict):
        arrived.canary = canary_of(arrived.body, arrived.attempt_header)
    _check_headers(http, state)
    if problem is not None:
        raise problem
    betas = _betas(http)
    check_shape(arrived.body, betas, counting=counting)
    check_conversation(arrived.body)
    return check_binding(arrived.body, betas)


def _check_headers(http: web.Request, state: ServerState) -> None:
    scheme, _, key = http.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise ApiError(401, "Authentication failed: `Authorization: Bearer` header is required")
    if state.api_keys is not None and key.strip() not in state.api_keys:
        raise ApiError(401)
    version = http.headers.get("anthropic-version")
    if version is None:
        raise invalid("anthropic-version: header is required")
    if version not in API_VERSIONS:
        raise invalid(f'anthropic-version: "{version}" is not a valid version')


def _betas(http: web.Request) -> frozenset[str]:
    values = http.headers.getall("anthropic-beta", [])
    return frozenset(name.strip() for value in values for name in value.split(",") if name.strip())


def _request(http: web.Request, state: ServerState, arrived: Arrived) -> Request:
    state.ordinals[arrived.canary] += 1
    return Request(
        n=arrived.n,
        body=arrived.body,
        canary=arrived.canary,
        ordinal=state.ordinals[arrived.canary],
        sha256=hashlib.sha256(arrived.raw).hexdigest(),
        attempt_header=arrived.attempt_header,
        betas=_betas(http),
        arrived_s=arrived.at_s,
    )


def _refuse(state: ServerState, arrived: Arrived, error: ApiError) -> web.Response:
    facts = arrived.facts()
    state.journal.note(
        "refused", arrived.n, **facts, status=error.status, type=error.type, error=str(error)
    )
    return error_response(error, arrived.request_id)

