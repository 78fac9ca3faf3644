"""Durable Streams over HTTP, the writing side: create, append, close, delete.

Each request is one item of a session that no agent answers, judged by the fold of the stream; the
answer is the fold's word. Sessions of agents are read only here.
"""

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....producers.checks import Invalid, an_id
from ....producers.items import Items
from ...protocols.durable.reading import is_json, offset_of
from ...protocols.durable.writing import AGENT, Verdict, held
from ..durable_streams import Streams
from ..json_bodies import demand_few
from ..parts import Gateway
from .plain import opened

DEFAULT_TYPE = "application/octet-stream"
INTEGER_MAX = 2**53 - 1
"""What other languages count to."""

_TYPE = re.compile(r"[\w-]+/[\w-]+.*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")
FORKS = ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset")
READ_ONLY = {
    "code": "read_only",
    "detail": "this stream is a session of an agent: say something to it instead, "
    "POST /v1/sessions/SESSION/messages",
}


def writing(routes: APIRouter, gateway: Gateway, streams: Streams) -> None:
    """The routes that write."""
    items = Items(gateway.client.sessions)

    async def done(request: Request, name: str, op: dict[str, Any]) -> Response:
        """Have an operation in the log, unless it would come to nothing; the answer to it."""
        who = gateway.who(request)
        session_id = gateway.named(who, an_id("stream", name))
        views = gateway.seen_by(who, name)
        if views is not None and views.turn.agent != AGENT:
            return JSONResponse(READ_ONLY, 405, {"allow": "GET, HEAD"})
        if op["op"] != "delete":
            streams.demand_room(who.user)
        if views is None and op["op"] == "create":
            await opened(gateway, who.user, session_id, AGENT)
        elif views is None:
            return _answer(Verdict(404, "there is no such stream"), 0, op, request)
        partition, _ = gateway.tail.cursor(session_id)
        written = streams.refold(gateway.owned(request, name))
        expected = written.judge(op, time.time_ns() // 1_000_000)
        if expected.status >= 300 or expected.why == "known":
            return _answer(expected, partition, op, request)
        named = {"item_id": uuid4().hex, "user": who.user}
        receipt = await gateway.blocking(items.add, session_id, [op], **named)
        decision = await gateway.decided(receipt)
        written = streams.refold(decision.views)
        return _answer(written.verdicts[receipt.offset], partition, op, request)

    @routes.put("/{name}")
    async def create(request: Request, name: str) -> Response:
        """Create a stream, or have it confirmed that it is there and is the same."""
        headers = request.headers
        if any(header in headers for header in FORKS):
            raise Invalid("no_forks", "streams are not forked here; sessions are, by `foldlog "
                          "fork`: nothing was created")
        given = headers.get("content-type", "").strip()
        kind = given if _TYPE.fullmatch(given) else DEFAULT_TYPE
        op = {"op": "create", "type": kind, **_expiry(headers), "close": _closes(headers)}
        body = await request.body()
        return await done(request, name, op | _content(kind, body, may_be_empty=True))

    @routes.post("/{name}")
    async def append(request: Request, name: str) -> Response:
        """Append, close, or both."""
        headers, body = request.headers, await request.body()
        kind, closes = headers.get("content-type", ""), _closes(headers)
        if not body and not closes:
            raise Invalid("empty_body", "an append needs a body, or Stream-Closed: true")
        if body and not kind:
            raise Invalid("invalid", "an append needs a Content-Type")
        op = {"op": "append", "type": kind, "seq": headers.get("stream-seq"), "close": closes,
              "producer": _producer(headers)}
        return await done(request, name, op | (_content(kind, body) if body else {}))

    @routes.delete("/{name}")
    async def delete(request: Request, name: str) -> Response:
        """Delete a stream: its name is free, and its past stays in the log."""
        return await done(request, name, {"op": "delete"})


def _answer(verdict: Verdict, partition: int, op: dict[str, Any], request: Request) -> Response:
    headers: dict[str, str] = {}
    if verdict.tail is not None:
        headers["stream-next-offset"] = offset_of(partition, verdict.tail)
    if verdict.closed:
        headers["stream-closed"] = "true"
    if verdict.epoch is not None:
        headers["producer-epoch"] = str(verdict.epoch)
    if verdict.seq is not None:
        headers["producer-seq"] = str(verdict.seq)
    if verdict.gap is not None:
        headers["producer-expected-seq"] = str(verdict.gap[0])
        headers["producer-received-seq"] = str(verdict.gap[1])
    if verdict.status >= 300:
        body = {"code": "refused", "detail": verdict.why + ": nothing was changed"}
        return JSONResponse(body, verdict.status, headers)
    if op["op"] == "create":
        headers["content-type"] = op["type"]
        if verdict.status == 201:
            headers["location"] = str(request.url)
    return Response(status_code=verdict.status, headers=headers)


def _closes(headers: Mapping[str, str]) -> bool:
    return headers.get("stream-closed") == "true"


def _expiry(headers: Mapping[str, str]) -> dict[str, Any]:
    ttl, expires = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires is not None:
        raise Invalid("invalid", "give Stream-TTL or Stream-Expires-At, not both")
    if ttl is not None and not _NUMBER.fullmatch(ttl):
        raise Invalid("invalid", "Stream-TTL is a number of seconds, in plain decimal digits")
    at = None
    if expires is not None:
        try:
            at = datetime.fromisoformat(expires)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise Invalid("invalid", "Stream-Expires-At is a time as in RFC 3339, with its zone")
    return {
        "ttl": ttl,
        "expires": expires,
        "expires_ms": None if at is None else int(at.timestamp() * 1000),
    }


def _producer(headers: Mapping[str, str]) -> list[Any] | None:
    given = [headers.get(name) for name in _PRODUCER]
    if given == [None, None, None]:
        return None
    name, epoch, seq = given
    if not name or not epoch or not seq:
        raise Invalid("invalid", "Producer-Id, Producer-Epoch and Producer-Seq go together")
    numbers = [int(n) for n in (epoch, seq) if n.isascii() and n.isdecimal() and len(n) <= 16]
    if len(numbers) < 2 or max(numbers) > INTEGER_MAX:
        raise Invalid("invalid", "Producer-Epoch and Producer-Seq count from 0 to 2^53 - 1")
    return [name, *numbers]


def _content(kind: str, body: bytes, *, may_be_empty: bool = False) -> dict[str, Any]:
    """A body as an item holds it: of JSON its messages, one level of an array taken apart."""
    if not body:
        return {}
    if not is_json(kind):
        return held(kind, [body])
    demand_few(body)
    try:
        value = msgspec.json.decode(body)
        several = isinstance(value, list)
        messages = msgspec.json.decode(body, type=list[msgspec.Raw]) if several else [body.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("invalid_json", "the body is no JSON: nothing was appended") from None
    if not messages and not may_be_empty:
        raise Invalid("empty_body", "an empty array holds nothing to append")
    return held(kind, [bytes(message) for message in messages])
