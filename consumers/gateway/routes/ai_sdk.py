"""The Vercel AI SDK 7 over HTTP: what `DefaultChatTransport` asks for, and what it has no word for.

A chat is a session, and a response is one turn as its message stream. What is posted is an event of
the log before anything streams, so that a lost connection loses nothing, and to leave is not to
stop: /stop is. Read docs/ai-sdk.md.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....processors.fold.views import SessionViews
from ....producers.checks import Invalid
from ....schemas.attachments import reference_of
from ....schemas.events.parts import BlobRef
from ....schemas.ids import parse_call_key
from ...calls import call_named
from ...contents import blocks_of, whole
from ...protocols.ai_sdk.input import Answer, Posted, answer_of, content_of, posted
from ...protocols.ai_sdk.messages import messages
from ...protocols.ai_sdk.stream import Chunk, State, begin, encode, paused, steered_in
from ...transcript_stream import Shown, Told
from ..event_stream import EventStream, TooSlow, event
from ..json_bodies import JsonRoute
from ..parts import Gateway
from ..watching import Seat
from .plain import cancelled, decision_json, said

CHANNEL = "ai-sdk"
"""What messages that come by here are said to come by, and what has their answers."""

HEADERS = {"x-vercel-ai-ui-message-stream": "v1", "connection": "keep-alive"}
DONE = event("[DONE]")

Pieces = AsyncIterator[bytes | None]
TurnOf = Callable[[SessionViews], int | None]
"""Which turn is to be shown, by what the log says until now; None: not known yet."""


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/api/chat", route_class=JsonRoute)
    _streaming(routes, gateway)
    _beside(routes, gateway)
    return routes


def _streaming(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("", response_class=EventStream)
    async def chat(request: Request) -> Response:
        """Say the newest message, or answer approvals, and stream the turn that follows.

        `messages` may be the whole list or its last message; `when_busy` and `agent` may be added.
        """
        wanted = posted(await request.json())
        session_id = gateway.named(gateway.who(request), wanted.session_id)
        if wanted.trigger == "regenerate-message":
            session_id, turn = await _regenerated(gateway, request, wanted)
            return await _stream(gateway, request, session_id, lambda _views: turn)
        open_ones = await _answered(gateway, request, wanted)
        if wanted.message is not None:
            message_id = await _said(gateway, request, wanted)
            return await _stream(gateway, request, session_id, _turn_of(message_id))
        if not open_ones:
            raise Invalid("nothing_said", "the last message is not the user's, and no approval is "
                          "answered: nothing was done")
        turn, _, _ = parse_call_key(open_ones[0])
        calls = frozenset(open_ones)
        return await _stream(gateway, request, session_id, lambda _views: turn, calls)

    @routes.get("/{session_id}/stream", response_class=EventStream)
    async def resume(request: Request, session_id: str) -> Response:
        """The turn that is open, from its beginning on; 204 where none is, or no session."""
        views = gateway.seen_by(gateway.who(request), session_id)
        if views is None or not views.turn.open:
            return Response(status_code=204)  # nothing was said in a new chat, which is no error
        turn = views.turn.number
        return await _stream(gateway, request, views.session_id, lambda _views: turn)


def _beside(routes: APIRouter, gateway: Gateway) -> None:
    @routes.get("/{session_id}/messages")
    def listed(request: Request, session_id: str) -> Any:
        """What was said until now, as UIMessages; nothing in a chat that is new."""
        views = gateway.seen_by(gateway.who(request), session_id)
        found = [] if views is None else messages(views, gateway.shown_blob)
        return {"id": session_id, "messages": found}

    @routes.get("/{session_id}/files/{sha256}")
    def file(request: Request, session_id: str, sha256: str) -> Response:
        """An attachment of a message of this session."""
        ref = _attached(gateway, gateway.owned(request, session_id), sha256)
        if ref is None:
            detail = "no message of this session has that attachment"
            return JSONResponse({"code": "unknown_attachment", "detail": detail}, 404)
        headers = {
            "cache-control": "private, immutable, max-age=86400",
            "content-disposition": "attachment",  # an <img> shows it all the same
        }
        return Response(gateway.read_blob(ref), media_type=ref.media_type, headers=headers)

    @routes.post("/{session_id}/stop")
    async def stop(request: Request, session_id: str) -> Any:
        """Cancel the turn that was seen: `turn`, or `messageId` of its answer; else the open one.

        To leave the stream is not to stop.
        """
        body = await request.json() if await request.body() else {}
        views = gateway.owned(request, session_id)
        open_turn = views.turn
        seen = _named_turn(body) or (open_turn.number if open_turn.open else None)
        if seen is None:
            return {"session_id": views.session_id, "stopped": False, "turn": None}
        decision = await cancelled(gateway, request, session_id, turn=seen, reason="stop")
        return decision_json(decision, stopped=True) | {"turn": seen}

    @routes.post("/{session_id}/approvals")
    async def approve(request: Request, session_id: str) -> Any:
        """Answer requests for approval: {approvals: [{id, approved, remember}]}."""
        views = gateway.owned(request, session_id)
        body = await request.json()
        wanted = body.get("approvals") if isinstance(body, Mapping) else None
        if not isinstance(wanted, list) or not all(isinstance(a, Mapping) for a in wanted):
            raise Invalid("invalid", "`approvals` must be a list of {id, approved}")
        answers = [answer_of(approval) for approval in wanted]
        for answer in answers:
            await _decide(gateway, request, session_id, answer)
        return {"session_id": views.session_id, "calls": [answer.call for answer in answers]}


# -- what is asked for -----------------------------------------------------------------------------


async def _said(gateway: Gateway, request: Request, wanted: Posted) -> str:
    """Have the newest message decided; its id. Said before, it is a repetition."""
    assert wanted.message is not None
    content = await gateway.blocking(content_of, wanted.message, gateway.attach)
    options = {"agent": wanted.agent, "when_busy": wanted.when_busy, "channel": CHANNEL}
    message_id = wanted.message["id"]
    await said(
        gateway, gateway.who(request), wanted.session_id, content, message_id=message_id, **options
    )
    return message_id


async def _answered(gateway: Gateway, request: Request, wanted: Posted) -> list[str]:
    """Have the answers to approvals decided; their calls. With a message behind them, only what
    still asks is answered: the rest is the client's memory."""
    if not wanted.answers:
        return []
    calls = []
    for answer in wanted.answers:
        views = gateway.owned(request, wanted.session_id)
        if wanted.message is not None and not _asks(views, answer.call):
            continue
        if not _was_decided(views, answer):
            await _decide(gateway, request, wanted.session_id, answer)
        calls.append(answer.call)
    return calls


async def _decide(gateway: Gateway, request: Request, session_id: str, answer: Answer) -> None:
    views = gateway.owned(request, session_id)
    call = call_named(views, answer.call)
    receipt = await gateway.blocking(
        gateway.client.sessions.decide,
        views.session_id,
        call.key,
        answer.decision,
        args_sha256=answer.args_sha256,
        remember=answer.remember,
        user=gateway.user(request),
    )
    await gateway.decided(receipt)


def _asks(views: SessionViews, key: str) -> bool:
    return any(call.key == key and call.status == "asks" for call in views.turn.calls)


def _was_decided(views: SessionViews, answer: Answer) -> bool:
    """Whether a call was answered in just this way before: who asks again is told again."""
    return any(
        (line.kind, line.call, line.text) == ("approval", answer.call, answer.decision)
        for line in views.transcript.lines
    )


async def _regenerated(gateway: Gateway, request: Request, wanted: Posted) -> tuple[str, int]:
    """Fork before a turn and say its message there again; the new session, and its turn."""
    views = gateway.owned(request, wanted.session_id)
    of_message = views.messages.progress.last(wanted.about)
    turn = _named_turn({"messageId": wanted.about}) or (of_message and of_message.turn)
    branching = gateway.client.branching(views.state.user_id)
    forked = await gateway.blocking(branching.regenerate, views.session_id, turn)
    decision = await gateway.hub.decided(forked.session_id, forked.decision.offset)
    return forked.session_id, decision.views.turn.number


def _named_turn(body: Any) -> int | None:
    """The turn that a body names, by its number or by the id of its message."""
    if not isinstance(body, Mapping):
        raise Invalid("invalid", "the body must be an object")
    turn = body.get("turn")
    if isinstance(turn, int) and not isinstance(turn, bool):
        return turn
    _, _, number = str(body.get("messageId") or "").rpartition(":")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def _attached(gateway: Gateway, views: SessionViews, sha256: str) -> BlobRef | None:
    """The reference of an attachment, if a message of the session has it."""
    for received in views.messages.received:
        for block in blocks_of(whole(received.content, gateway.shown_blob)):
            ref = reference_of(block)
            if ref is not None and ref.sha256 == sha256:
                return ref
    return None


# -- streams ---------------------------------------------------------------------------------------


def _turn_of(message_id: str) -> TurnOf:
    def turn_of(views: SessionViews) -> int | None:
        progress = views.messages.progress.last(message_id)
        return None if progress is None else progress.turn

    return turn_of


async def _stream(
    gateway, request: Request, session_id: str, turn_of: TurnOf, calls: frozenset[str] = frozenset()
) -> Response:
    """A turn as a response. `calls`: those that were just answered; what led to their requests is
    what the client has already, and not repeated."""
    who = gateway.who(request)
    user = who.user
    seats = [await gateway.hub.sit(session_id, None, "now", user)]

    def leave() -> None:
        for seat in seats:
            gateway.hub.leave(seat)

    async def pieces() -> Pieces:
        turn = turn_of(seats[0].views)
        while turn is None:  # the message waits for a turn of its own, or for the next step
            frame = await anext(seats[0], _GONE)
            if frame is _GONE or time.time() >= who.until:
                raise TooSlow
            if frame is None:
                yield None
            turn = turn_of(seats[0].views)
        for since in ("turn", "start"):  # the last turn's beginning, or that of all turns
            gateway.hub.leave(seats[-1])
            seats.append(await gateway.hub.sit(session_id, None, since, user))
            if turn == seats[-1].views.turn.number:
                break
        async for some in _chunks(gateway, seats[-1], turn, calls):
            if time.time() >= who.until:
                raise TooSlow  # whoever comes back brings a new token
            if some is None:
                yield None
            for chunk in some or ():
                yield event(json.dumps(chunk, separators=(",", ":")))
        yield DONE

    return EventStream(pieces(), headers=HEADERS, at_end=leave)


async def _chunks(
    gateway, seat: Seat, turn: int, calls: frozenset[str]
) -> AsyncIterator[list[Chunk] | None]:
    """A turn's chunks as they come, until it ends or waits for approvals; None is a silence."""
    state, start = begin(seat.watching.session_id, turn)
    yield start
    silent = bool(calls)
    async for frame in seat:
        if frame is None:
            yield None
            continue
        state, more = encode(state, frame.shown, gateway.shown_blob, steered_in(seat.views))
        if silent:
            answered = _answers_one(frame.shown, calls)
            silent = not answered and not _waited(state, calls)
            more = more if answered else []
        if more:
            yield more
        if state.reason:
            await gateway.noted(seat, turn, CHANNEL)
            return
        if not silent and not _waited(state, calls) and _pauses(state, seat.views):
            yield paused(state)
            return
    raise TooSlow  # the client comes back, and is shown the turn anew


_GONE = object()


def _answers_one(thing: Shown, calls: frozenset[str]) -> bool:
    return isinstance(thing, Told) and thing.line.kind == "approval" and thing.line.call in calls


def _waited(state: State, calls: frozenset[str]) -> bool:
    """Whether this is where the client was left: the turn waits for what it has now answered."""
    return state.waits and any(c.key in calls and c.status == "asks" for c in state.calls)


def _pauses(state: State, views: SessionViews) -> bool:
    """Whether the turn waits for approvals now, and not only did at what is being replayed."""
    return state.waits and any(
        call.status == "asks" and _asks(views, call.key) for call in state.calls
    )
