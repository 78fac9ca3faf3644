"""The Vercel AI SDK 7 over HTTP: the routes that `DefaultChatTransport` uses, and some others.

A chat is a session, and a response is one turn as a message stream. A posted message is written to
the log before the response streams, so a lost connection loses nothing. Closing the stream does not
stop the turn; /stop does. Read docs/ai-sdk.md.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....client.commands import Commands
from ....client.outcomes import UnknownMessage
from ....client.printable import blocks_of, whole
from ....client.transcript_stream import LineAdded, Shown
from ....processors.fold.calls import CallStatus
from ....processors.fold.projections.message_sha import message_sha
from ....processors.fold.projections.messages import Received
from ....processors.fold.views import SessionViews
from ....producers.checks import Invalid, an_id, content_json
from ....schemas.attachments import reference_of
from ....schemas.canonical import compact_ascii
from ....schemas.enums import LookKind
from ....schemas.events.parts import BlobRef
from ....schemas.ids import ID_CHARS_MAX
from ...protocols.ai_sdk.input import (
    FORK,
    Answer,
    ChatRequest,
    answer_of,
    chat_request,
    content_of,
)
from ...protocols.ai_sdk.messages import messages
from ...protocols.ai_sdk.stream import Chunk, State, begin, encode, paused, steered_in
from ..event_stream import EventStream, TooSlow, event
from ..gateway import Gateway, known
from ..json_bodies import JsonRoute
from ..names import edited_id
from ..subscriptions import Subscription
from .plain import decision_json, post_message

REGENERATE = "regenerate-message"
"""The trigger of a request for another answer."""

CHANNEL = "ai-sdk"
"""The channel recorded for messages received by these routes, and for their answers."""

HEADERS = {"x-vercel-ai-ui-message-stream": "v1", "connection": "keep-alive"}
DONE = event("[DONE]")

Pieces = AsyncIterator[bytes | None]
TurnOf = Callable[[SessionViews], int | None]
"""Returns the turn to show from the views so far, or None if it is not known yet."""


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/api/chat", route_class=JsonRoute)
    _streaming(routes, gateway)
    _other_routes(routes, gateway)
    return routes


def _streaming(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("", response_class=EventStream)
    async def chat(request: Request) -> Response:
        """Send the newest message, or answer approvals, and stream the turn that follows. An edited
        message is sent to a fork, if the client follows forks (`on_edit`: `fork`).

        `messages` may be the whole list or only its last message; `when_busy`, `agent` and
        `on_edit` are optional.
        """
        wanted = chat_request(await request.json())
        session_id = await _session_id(gateway, request, wanted)
        _demand_no_fork(gateway, request, session_id, wanted.answer, wanted.about)
        if wanted.trigger == REGENERATE:
            session_id, turn = await _regenerate(gateway, request, wanted)
            return await _stream(gateway, request, session_id, lambda _views: turn)
        if await _edits(gateway, request, wanted):
            session_id, message_id = await _edit(gateway, request, wanted)
            return await _stream(gateway, request, session_id, _turn_of(message_id))
        calls = await _answer_approvals(gateway, request, wanted)
        if wanted.message is not None:
            message_id = await _send_message(gateway, request, wanted)
            return await _stream(gateway, request, session_id, _turn_of(message_id))
        if not calls:
            raise Invalid("nothing_said", "the last message is not the user's, and no approval is "
                          "answered: nothing was done. Send a user message, or answer an approval")
        turn = int(calls[0].split(".")[0])
        answered = frozenset(calls)
        return await _stream(gateway, request, session_id, lambda _views: turn, answered)

    @routes.get("/{session_id}/stream", response_class=EventStream)
    async def resume(request: Request, session_id: str) -> Response:
        """Stream the open turn from its beginning; 204 if there is no open turn or no session."""
        caller = gateway.caller(request)
        views = await gateway.read(gateway.seen_or_none, caller, session_id, LookKind.STREAM)
        if views is None or not views.turn.open:
            return Response(status_code=204)  # a new chat without messages is not an error
        turn = views.turn.number
        return await _stream(gateway, request, views.session_id, lambda _views: turn)


def _other_routes(routes: APIRouter, gateway: Gateway) -> None:
    @routes.get("/{session_id}/messages")
    def listed(request: Request, session_id: str) -> Any:
        """The messages so far, as UIMessages; empty for a new chat."""
        caller = gateway.caller(request)
        views = gateway.seen_or_none(caller, session_id, LookKind.TRANSCRIPT)
        found = [] if views is None else messages(views, gateway.shown_blob)
        return {"id": session_id, "messages": found}

    @routes.get("/{session_id}/files/{sha256}")
    def file(request: Request, session_id: str, sha256: str) -> Response:
        """An attachment of a message of this session."""
        views = gateway.seen(gateway.caller(request), session_id, LookKind.FILE)
        ref = _attached(gateway, views, sha256)
        if ref is None:
            detail = "no message of this session has that attachment: nothing was sent"
            return JSONResponse({"code": "unknown_attachment", "detail": detail}, 404)
        headers = {
            "cache-control": "private, immutable, max-age=86400",
            "content-disposition": "attachment",  # an <img> still shows it
        }
        return Response(gateway.read_blob(ref), media_type=ref.media_type, headers=headers)

    @routes.post("/{session_id}/stop")
    async def stop(request: Request, session_id: str) -> Any:
        """Cancel a turn, given by `turn` or by the `messageId` of its answer, or else the open
        turn.

        Closing the stream does not stop the turn.
        """
        body = await request.json() if await request.body() else {}
        views = gateway.views(request, session_id)
        open_turn = views.turn
        _demand_no_fork(gateway, request, views.session_id, _message_id(body))
        turn = _named_turn(body) or (open_turn.number if open_turn.open else None)
        if turn is None:
            return {"session_id": views.session_id, "stopped": False, "turn": None}
        on = gateway.commands(request, session_id)
        decision = await gateway.rule(on, Commands.cancel, turn=turn, reason="stop")
        return decision_json(decision, stopped=True) | {"turn": turn}

    @routes.post("/{session_id}/approvals")
    async def approve(request: Request, session_id: str) -> Any:
        """Answer requests for approval: {approvals: [{id, approved, remember}]}."""
        on = await gateway.answering(request, session_id)
        body = await request.json()
        wanted = body.get("approvals") if isinstance(body, Mapping) else None
        if not isinstance(wanted, list) or not all(isinstance(a, Mapping) for a in wanted):
            raise Invalid("invalid", "`approvals` must be a list of {id, approved}: nothing was "
                          "done")
        answers = [answer_of(approval) for approval in wanted]
        for answer in answers:
            await _decide(gateway, request, session_id, answer)
        return {"session_id": on.views.session_id, "calls": [answer.call for answer in answers]}


# -- requests --------------------------------------------------------------------------------------


async def _session_id(gateway: Gateway, request: Request, wanted: ChatRequest) -> str:
    """The id of a chat to which the caller may send this request: an operator may only answer, and
    is then shown the turn. Raises NotYours.
    """
    caller, name = gateway.caller(request), wanted.session_id
    if wanted.message is not None or not wanted.answers or wanted.trigger == REGENERATE:
        return gateway.session_id(caller, name)
    await gateway.answering(request, name)
    views = await gateway.read(gateway.seen, caller, name, LookKind.STREAM)
    return views.session_id


async def _send_message(gateway: Gateway, request: Request, wanted: ChatRequest) -> str:
    """Send the newest message, wait until the fold has accepted it, and return its id. If a message
    with this id was sent before, it is not sent again.
    """
    assert wanted.message is not None
    content = await gateway.blocking(content_of, wanted.message, gateway.store_attachment)
    message_id, caller = wanted.message["id"], gateway.caller(request)
    options = {"message_id": message_id, "channel": CHANNEL, **wanted.options}
    await post_message(gateway, caller, wanted.session_id, content, agent=wanted.agent, **options)
    return message_id


async def _answer_approvals(gateway: Gateway, request: Request, wanted: ChatRequest) -> list[str]:
    """Send the person's approvals and denials, wait until the fold has accepted them, and return
    their calls. If a new message follows them, only pending approvals are answered, because the
    other answers are repetitions of earlier ones.
    """
    if not wanted.answers:
        return []
    calls, caller, name = [], gateway.caller(request), wanted.session_id
    for answer in wanted.answers:
        views = known(gateway.seen_or_none(caller, name, None), name)
        if wanted.message is not None and not _is_pending(views, answer.call):
            continue
        if not _was_decided(views, answer):
            await _decide(gateway, request, wanted.session_id, answer)
        calls.append(answer.call)
    return calls


async def _decide(gateway: Gateway, request: Request, session_id: str, answer: Answer) -> None:
    on = await gateway.answering(request, session_id)
    options = {"args_sha256": answer.args_sha256, **answer.options}
    await gateway.rule(on, Commands.decide, answer.call, answer.decision, **options)


def _is_pending(views: SessionViews, key: str) -> bool:
    return any(call.key == key and call.status == CallStatus.ASKS for call in views.turn.calls)


def _was_decided(views: SessionViews, answer: Answer) -> bool:
    """Whether the call was given this answer before. If so, the answer is not sent again, and the
    repeated request gets the same response.
    """
    return any(
        (line.kind, line.call, line.code) == ("approval", answer.call, answer.decision)
        for line in views.transcript.lines
    )


async def _regenerate(gateway: Gateway, request: Request, wanted: ChatRequest) -> tuple[str, int]:
    """Fork before a turn and send its message to the fork again.

    Returns the new session and its turn.
    """
    views = gateway.views(request, wanted.session_id)
    of_message = views.messages.progress.last(wanted.about)
    turn = of_message.turn if of_message is not None else _answered_turn(wanted.about)
    if turn is None and wanted.about:
        raise UnknownMessage(f"the chat has no message {wanted.about[:ID_CHARS_MAX]} whose turn "
                             "has begun: nothing was done. Name an answer or its message")
    branching = gateway.client.branching(views.state.user_id)
    forked = await gateway.blocking(branching.regenerate, views.session_id, turn)
    decision = await gateway.hub.decision(forked.session_id, forked.decision.offset)
    return forked.session_id, decision.views.turn.number


async def _edits(gateway: Gateway, request: Request, wanted: ChatRequest) -> bool:
    """Whether a request edits an earlier message. It does not if `messageId` names the newest
    message, new or repeated, or the answer whose approvals are answered.
    """
    if wanted.message is None or not wanted.about:
        return False
    views = gateway.views_or_none(gateway.caller(request), wanted.session_id)
    if wanted.message["id"] != wanted.about:
        return not wanted.answers or views is None or not _is_answer(views, wanted.about)
    if views is None or not views.messages.received:
        return False
    last = views.messages.received[-1]
    if last.message_id == wanted.about:
        return not await gateway.blocking(_repeats, gateway, wanted.message, last)
    is_known = views.messages.received.last(wanted.about) is not None
    return is_known or wanted.before not in (last.message_id, _answer_id(views))


def _repeats(gateway: Gateway, message: Mapping[str, Any], received: Received) -> bool:
    """Whether a message has the content of a message that was received. Blocking."""
    body = gateway.client.writer.body(content_json(content_of(message, gateway.store_attachment)))
    return message_sha("user", body) == received.sha256


async def _edit(gateway: Gateway, request: Request, wanted: ChatRequest) -> tuple[str, str]:
    """Fork before the turn of a message, and send the edited message to the fork. The same edit
    gives the same fork.

    Returns the fork and the id of the edited message there.
    """
    assert wanted.message is not None
    views, new_id = gateway.views(request, wanted.session_id), wanted.message["id"]
    _demand_editable(views, wanted)
    content = await gateway.blocking(content_of, wanted.message, gateway.store_attachment)
    data = content_json(content)
    an_id("message_id", new_id)
    name = edited_id(views.session_id, wanted.about, new_id, data.decode())
    branching = gateway.client.branching(views.state.user_id)
    forked = await gateway.blocking(branching.edit, views.session_id, wanted.about, new_id, name)
    await gateway.hub.decision(forked.session_id, forked.decision.offset)
    edited = {**wanted.message, "id": forked.message_id}
    there = wanted._replace(session_id=forked.session_id, message=edited, agent=None)
    return forked.session_id, await _send_message(gateway, request, there)


def _demand_editable(views: SessionViews, wanted: ChatRequest) -> None:
    """Check that an edit names a user's message, and that the client follows the fork. Raises
    Invalid, UnknownMessage.
    """
    about = wanted.about[:ID_CHARS_MAX]
    if _is_answer(views, wanted.about):
        raise Invalid("not_a_user_message", f"message {about} is an answer, which cannot be "
                      "edited: nothing was done. Edit the user's message, or use the trigger "
                      "regenerate-message")
    if views.messages.received.last(wanted.about) is None:
        raise UnknownMessage(f"the chat has no message {about}: nothing was done. Edit a message "
                             "of the chat, or send a new message without `messageId`")
    if not wanted.forks:
        raise Invalid("edits_a_message", f"message {about} is part of the session's history, "
                      "which does not change: nothing was done. An edited message is answered in "
                      f"a fork: send it with `on_edit`: {FORK!r}, and use the fork's id "
                      "(`metadata.session` of the answer) as the id of the chat from then on")


def _demand_no_fork(gateway: Gateway, request: Request, session_id: str, *answers: str) -> None:
    """Check that the answers that a client names are not of a fork of this session: a client that
    shows a fork must use the fork's id. Raises Invalid.
    """
    for answer in answers:
        name = answer.rpartition(":")[0]
        if not name or name == session_id or _answered_turn(answer) is None:
            continue
        views = gateway.views_or_none(gateway.caller(request), name)
        origin = None if views is None else views.origin
        while origin is not None:
            if origin.session_id == session_id:
                raise Invalid("other_session", f"the chat shows an answer of session {name}, a "
                              f"fork of this session: nothing was done. Use {name} as the id of "
                              "the chat")
            views = gateway.views_or_none(gateway.caller(request), origin.session_id)
            origin = None if views is None else views.origin


def _is_answer(views: SessionViews, message_id: str) -> bool:
    is_users = views.messages.received.last(message_id) is not None
    return not is_users and _answered_turn(message_id) is not None


def _answer_id(views: SessionViews) -> str:
    """The id of the newest turn's answer."""
    return f"{views.session_id}:{views.turn.number}"


def _message_id(body: Any) -> str:
    return str(body.get("messageId") or "") if isinstance(body, Mapping) else ""


def _named_turn(body: Any) -> int | None:
    """The turn that a body gives by its number or by the id of its message."""
    if not isinstance(body, Mapping):
        raise Invalid("invalid", "the body must be a JSON object: nothing was done")
    turn = body.get("turn")
    if isinstance(turn, int) and not isinstance(turn, bool):
        return turn
    return _answered_turn(_message_id(body))


def _answered_turn(answer_id: str) -> int | None:
    """The turn in the id of an answer, SESSION:TURN; None for another id."""
    _, _, number = answer_id.rpartition(":")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def _attached(gateway: Gateway, views: SessionViews, sha256: str) -> BlobRef | None:
    """The blob of an attachment, if a message of the session contains it."""
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
    """Stream a turn as a response. `calls`: the calls just answered; the client already has the
    turn up to their approval requests, so that part is not repeated.
    """
    caller = gateway.caller(request)

    async def subscribe(since: str) -> Subscription:
        return await gateway.hub.subscribe(session_id, None, since, caller.user, caller.until)

    subscription = await subscribe("now")

    def unsubscribe() -> None:
        gateway.hub.unsubscribe(subscription)

    async def pieces() -> Pieces:
        nonlocal subscription
        turn = turn_of(subscription.views)
        while turn is None:  # the message is queued for a later turn or the next step
            frame = await anext(subscription, _ENDED)
            if frame is _ENDED:
                raise TooSlow
            if frame is None:
                yield None
            turn = turn_of(subscription.views)
        for since in ("turn", "start"):  # from the last turn on, or else from the first
            unsubscribe()
            subscription = await subscribe(since)
            if turn == subscription.views.turn.number:
                break
        async for some in _chunks(gateway, subscription, turn, calls):
            if some is None:
                yield None
            for chunk in some or ():
                yield event(compact_ascii(chunk))
        yield DONE

    return EventStream(pieces(), headers=HEADERS, at_end=unsubscribe)


async def _chunks(
    gateway, subscription: Subscription, turn: int, calls: frozenset[str]
) -> AsyncIterator[list[Chunk] | None]:
    """Yield a turn's chunks as they come, until the turn ends or waits for approvals; None is a
    pause.
    """
    state, start = begin(subscription.session.session_id, turn)
    yield start
    silent = bool(calls)
    async for frame in subscription:
        if frame is None:
            yield None
            continue
        state, more = encode(state, frame.shown, gateway.shown_blob, steered_in(subscription.views))
        if silent:
            answered = _answers_one(frame.shown, calls)
            silent = not answered and not _waited(state, calls)
            more = more if answered else []
        if more:
            yield more
        if state.reason:
            await gateway.note_shown(subscription, turn, CHANNEL)
            return
        if not silent and not _waited(state, calls) and _pauses(state, subscription.views):
            yield paused(state)
            return
    raise TooSlow  # the client reconnects, with a new token if needed, and gets the turn again


_ENDED = object()


def _answers_one(thing: Shown, calls: frozenset[str]) -> bool:
    if not isinstance(thing, LineAdded):
        return False
    return thing.line.kind == "approval" and thing.line.call in calls


def _waited(state: State, calls: frozenset[str]) -> bool:
    """Whether the replay has reached the point at which the turn asked for the answered approvals.
    """
    return state.waits and any(c.key in calls and c.status == "asks" for c in state.calls)


def _pauses(state: State, views: SessionViews) -> bool:
    """Whether the turn waits for approvals now, not only at the point being replayed."""
    return state.waits and any(
        call.status == "asks" and _is_pending(views, call.key) for call in state.calls
    )
