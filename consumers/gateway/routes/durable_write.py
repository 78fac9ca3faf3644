"""Durable Streams over HTTP, the writing side: create, append, close, delete.

Each request is stored as one item of a session without an agent. The fold of the stream rules on
each item, and the response reports the ruling. Agents' sessions are read-only here.
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
from ...protocols.durable.writing import AGENT, Verdict, encoded
from ..durable_streams import StreamCache
from ..json_bodies import demand_few
from ..parts import Gateway
from .plain import create_session

DEFAULT_TYPE = "application/octet-stream"
INTEGER_MAX = 2**53 - 1
"""The largest integer that JavaScript represents exactly."""

_TYPE = re.compile(r"[\w-]+/[\w-]+.*")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")
FORKS = ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset")
READ_ONLY = {
    "code": "read_only",
    "detail": "this stream is an agent's session, which is read-only here: nothing was done. "
    "Send it a message instead: POST /v1/sessions/SESSION/messages",
}


def writing(routes: APIRouter, gateway: Gateway, streams: StreamCache) -> None:
    """Add the routes that write."""
    items = Items(gateway.client.sessions)

    async def perform(request: Request, name: str, op: dict[str, Any]) -> Response:
        """Write an operation to the log, unless it would have no effect, and return the response.
        """
        caller = gateway.caller(request)
        session_id = gateway.session_id(caller, an_id("stream", name))
        views = gateway.views_or_none(caller, name)
        if views is not None and views.turn.agent != AGENT:
            return JSONResponse(READ_ONLY, 405, {"allow": "GET, HEAD"})
        if op["op"] != "delete":
            streams.demand_room(caller.user)
        if views is None and op["op"] == "create":
            await create_session(gateway, caller.user, session_id, AGENT)
        elif views is None:
            return _response(Verdict(404, "there is no such stream"), 0, op, request)
        partition, _ = gateway.tail.cursor(session_id)
        written = streams.refold(gateway.views(request, name))
        expected = written.judge(op, time.time_ns() // 1_000_000)
        if expected.status >= 300 or expected.why == "known":
            return _response(expected, partition, op, request)
        options = {"item_id": uuid4().hex, "user": caller.user}
        receipt = await gateway.blocking(items.add, session_id, [op], **options)
        decision = await gateway.decision(receipt)
        written = streams.refold(decision.views)
        return _response(written.verdicts[receipt.offset], partition, op, request)

    @routes.put("/{name}")
    async def create(request: Request, name: str) -> Response:
        """Create a stream, or confirm that the same stream exists."""
        headers = request.headers
        if any(header in headers for header in FORKS):
            raise Invalid("no_forks", "streams cannot be forked: nothing was created. Sessions "
                          "can, with `foldlog fork`")
        given = headers.get("content-type", "").strip()
        kind = given if _TYPE.fullmatch(given) else DEFAULT_TYPE
        op = {"op": "create", "type": kind, **_expiry(headers), "close": _closes(headers)}
        body = await request.body()
        return await perform(request, name, op | _content(kind, body, may_be_empty=True))

    @routes.post("/{name}")
    async def append(request: Request, name: str) -> Response:
        """Append to a stream, close it, or both."""
        headers, body = request.headers, await request.body()
        kind, closes = headers.get("content-type", ""), _closes(headers)
        if not body and not closes:
            raise Invalid("empty_body", "an append needs a body, or Stream-Closed: true: nothing "
                          "was appended")
        if body and not kind:
            raise Invalid("invalid", "an append needs a Content-Type: nothing was appended")
        op = {"op": "append", "type": kind, "seq": headers.get("stream-seq"), "close": closes,
              "producer": _producer(headers)}
        return await perform(request, name, op | (_content(kind, body) if body else {}))

    @routes.delete("/{name}")
    async def delete(request: Request, name: str) -> Response:
        """Delete a stream. Its name becomes free, and its records stay in the log."""
        return await perform(request, name, {"op": "delete"})


def _response(verdict: Verdict, partition: int, op: dict[str, Any], request: Request) -> Response:
    expected, received = verdict.gap or (None, None)
    values = {
        "stream-next-offset": None if verdict.tail is None else offset_of(partition, verdict.tail),
        "stream-closed": "true" if verdict.closed else None,
        "producer-epoch": verdict.epoch,
        "producer-seq": verdict.seq,
        "producer-expected-seq": expected,
        "producer-received-seq": received,
    }
    headers = {name: str(value) for name, value in values.items() if value is not None}
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
        raise Invalid("invalid", "give Stream-TTL or Stream-Expires-At, not both: nothing was "
                      "created")
    if ttl is not None and not _NUMBER.fullmatch(ttl):
        raise Invalid("invalid", "Stream-TTL must be a number of seconds, in decimal digits: "
                      "nothing was created")
    at = None
    if expires is not None:
        try:
            at = datetime.fromisoformat(expires)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise Invalid("invalid", "Stream-Expires-At must be an RFC 3339 time with a time "
                          "zone: nothing was created")
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
        raise Invalid("invalid", "send Producer-Id, Producer-Epoch and Producer-Seq together, or "
                      "none: nothing was appended")
    numbers = [int(n) for n in (epoch, seq) if n.isascii() and n.isdecimal() and len(n) <= 16]
    if len(numbers) < 2 or max(numbers) > INTEGER_MAX:
        raise Invalid("invalid", "Producer-Epoch and Producer-Seq must be from 0 to 2^53 - 1: "
                      "nothing was appended")
    return [name, *numbers]


def _content(kind: str, body: bytes, *, may_be_empty: bool = False) -> dict[str, Any]:
    """A body as it is stored in an item.

    A JSON array is split into its elements, one message each.
    """
    if not body:
        return {}
    if not is_json(kind):
        return encoded(kind, [body])
    demand_few(body)
    try:
        value = msgspec.json.decode(body)
        several = isinstance(value, list)
        messages = msgspec.json.decode(body, type=list[msgspec.Raw]) if several else [body.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("invalid_json", "the body is not valid JSON: nothing was appended") from None
    if not messages and not may_be_empty:
        raise Invalid("empty_body", "an empty array has nothing to append: nothing was appended")
    return encoded(kind, [bytes(message) for message in messages])
