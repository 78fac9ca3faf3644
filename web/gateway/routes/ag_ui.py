"""AG-UI 1.0 over HTTP: POST /agui streams one run; POST /agui/connect streams a thread from its
start.

A client's request is written to the log before the response streams. The stream is a projection of
the session, so a lost connection loses nothing. Read docs/ag-ui.md.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ....client.calls import UnknownCall, call_named, key_of
from ....client.commands import Commands
from ....client.history import Frame
from ....client.outcomes import demand
from ....processors.fold.projections.transcript import Line
from ....processors.fold.projections.turn_view import TurnView
from ....processors.fold.views import SessionViews
from ....producers.checks import Invalid
from ....producers.sessions import Receipt
from ....schemas.canonical import compact
from ....schemas.enums import LookKind
from ...protocols.ag_ui.answers import awaits, decided_by, reason_of
from ...protocols.ag_ui.calls import APPROVAL, DOUBT
from ...protocols.ag_ui.events import Encoder
from ...protocols.ag_ui.input import (
    SHOWN,
    Answer,
    RunInput,
    answer_to,
    content_of,
    newest,
    run_input,
)
from ...protocols.ag_ui.messages import Event, Message, event as event_of
from ..event_stream import EventStream, event
from ..gateway import Gateway, known
from ..json_bodies import JsonRoute
from ..subscriptions import Subscription
from .plain import demand_report, ended_now, post_message

CHANNEL = "ag-ui"
"""The channel recorded for messages received by these routes, and for their answers."""

TURN_OVER = "turn_over"
"""The code of the ruling on an answer to a call whose turn is ending."""

Pieces = AsyncIterator[bytes | None]


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/agui", route_class=JsonRoute)

    @routes.post("", response_class=EventStream)
    async def run(request: Request) -> Response:
        """Send the new messages of a RunAgentInput and its answers to interrupts. Then stream the
        run that follows.
        """
        wanted, caller = run_input(await request.json()), gateway.caller(request)
        views = gateway.seen_or_none(caller, wanted.thread, None)
        is_new = any(_sent_at(views, message) is None for message in newest(wanted.messages))
        if is_new or not wanted.resume:
            gateway.views_or_none(caller, wanted.thread)  # an operator may only answer
        rulings = await _answer_interrupts(gateway, request, wanted)
        messages = await _send_messages(gateway, request, wanted)
        turn = known(gateway.seen_or_none(caller, wanted.thread, None), wanted.thread).turn
        if not rulings and not messages and not turn.open:
            raise Invalid("nothing_said", "the last message is not the user's, no interrupt is "
                          "answered, and no run is open: nothing was done. Send a user message, or "
                          "answer an interrupt")
        begin = _begin(rulings, messages, turn)
        message = next(reversed(messages), None)
        subscription = await _subscribe(gateway, request, wanted)
        pieces = _run(gateway, subscription, wanted, begin, message, rulings)
        return _stream(gateway, subscription, pieces)

    @routes.post("/connect", response_class=EventStream)
    async def connect(request: Request, follow: bool = False) -> Response:
        """Stream all runs of a RunAgentInput's thread. The stream ends with the open run; with
        `follow`, it continues with all later runs. A client that already has messages gets only the
        missing ones.
        """
        wanted = run_input(await request.json())
        subscription = await _subscribe(gateway, request, wanted)
        return _stream(gateway, subscription, _thread(gateway, subscription, wanted, follow))

    return routes


class _Ruling(NamedTuple):
    """What became of one answer: the offset of the line that decided the call, and, if the call was
    decided before, the fields of the event that reports this.
    """

    offset: int
    earlier: dict[str, Any] | None = None


async def _answer_interrupts(
    gateway: Gateway, request: Request, wanted: RunInput
) -> list[_Ruling]:
    """Send the answers to interrupts and wait for the rulings on them. An answer to a call that was
    decided before is not sent. If one answer is invalid, none is sent.
    """
    if not wanted.resume:
        return []
    rulings, answers, on = [], [], await gateway.answering(request, wanted.thread)
    views = on.views
    for interrupt, payload in wanted.resume:
        key = key_of(views, interrupt)
        reason = reason_of(views, key, payload)
        if reason is None:
            status = call_named(views, interrupt).status
            raise UnknownCall(f"call {key} never waited for a person ({status}). Nothing was done. "
                              "Answer the interrupts of the thread's last run")
        decided, answer = decided_by(views, key, reason), answer_to(key, payload, reason)
        if decided is not None:
            rulings.append(_earlier(answer or Answer(key), decided))
            continue
        call_named(views, interrupt)
        if answer is not None:
            demand_report(answer.outcome, answer.options.get("report", ""))
            answers.append(answer)
    for answer in answers:
        rulings.append(await _send_answer(gateway, on, answer))
    return rulings


async def _send_answer(gateway: Gateway, on: Commands, answer: Answer) -> _Ruling:
    """Send one answer. Another person may decide the call, or end the turn, at the same moment."""
    write: Callable[..., Receipt] = on.resolve if answer.decision is None else on.decide
    receipt = await gateway.blocking(write, answer.call, answer.word, **answer.options)
    decision = await gateway.hub.decision(receipt.session_id, receipt.offset)
    reason = DOUBT if answer.decision is None else APPROVAL
    decided = decided_by(decision.views, answer.call, reason)
    if decided is not None and decided.offset != receipt.offset:
        return _earlier(answer, decided)
    closing = decision.views.turn.closing
    if decision.code == TURN_OVER and closing is not None:
        return _Ruling(receipt.offset, _report(answer, closing.reason, receipt.offset))
    demand(decision)
    return _Ruling(receipt.offset)


def _earlier(answer: Answer, decided: Line) -> _Ruling:
    """The ruling on an answer to a call that `decided` has decided."""
    counts = decided.name if decided.kind == "ended" else decided.text
    return _Ruling(decided.offset, _report(answer, counts, decided.offset))


def _report(answer: Answer, counts: str, offset: int) -> dict[str, Any]:
    return {"call": answer.call, "sent": answer.word, "counts": counts, "offset": offset}


def _begin(rulings: list[_Ruling], messages: dict[str, int], turn: TurnView) -> tuple[int, int]:
    """The offset and the turn of the first line to stream. If a queued message opens the next turn,
    the line that ends a turn has the offset at which the next turn opens.
    """
    sent = [ruling.offset for ruling in rulings if ruling.earlier is None]
    if sent:
        return max(sent), 0
    if messages:
        return min(messages.values()), 0
    if rulings:
        return max(ruling.offset for ruling in rulings), 0
    return turn.opened_offset, turn.number


async def _send_messages(gateway: Gateway, request: Request, wanted: RunInput) -> dict[str, int]:
    """Send the user's newest messages and wait for the rulings on them. Returns the offset of each
    message. A message that was sent before keeps its offset, so a repeated request gets the same
    run again.
    """
    caller, offsets = gateway.caller(request), {}
    for new in newest(wanted.messages):
        sent_at = _sent_at(gateway.seen_or_none(caller, wanted.thread, None), new)
        if sent_at is not None:
            offsets[new["id"]] = sent_at
            continue
        content = await gateway.blocking(content_of, new, gateway.store_attachment)
        options = {"message_id": new["id"], "channel": CHANNEL, **wanted.options}
        _, receipt = await post_message(gateway, caller, wanted.thread, content, **options)
        offsets[new["id"]] = receipt.offset
    return offsets


def _sent_at(views: SessionViews | None, message: Message) -> int | None:
    """The offset of a message that was sent before."""
    received = None if views is None else views.messages.received.last(message["id"])
    return None if received is None else received.offset


# -- streams ---------------------------------------------------------------------------------------


async def _subscribe(gateway: Gateway, request: Request, wanted: RunInput) -> Subscription:
    caller = gateway.caller(request)
    views = await gateway.read(gateway.seen, caller, wanted.thread, LookKind.STREAM)
    return await gateway.hub.subscribe(views.session_id, None, "start", caller.user, caller.until)


def _stream(gateway: Gateway, subscription: Subscription, pieces: Pieces) -> Response:
    return EventStream(pieces, at_end=lambda: gateway.hub.unsubscribe(subscription))


async def _run(
    gateway: Gateway,
    subscription: Subscription,
    wanted: RunInput,
    begin: tuple[int, int],
    message: str | None,
    rulings: list[_Ruling],
) -> Pieces:
    """The response to a POST: from the line at `begin` until the run that answers `message` ends,
    the run waits for a person, or the user's token expires."""
    encoder, has_begun = Encoder(wanted.thread, gateway.shown_blob), False
    async for frame in subscription:
        if frame is None:
            yield None
            continue
        line = getattr(frame.shown, "line", None)
        if has_begun:
            events = encoder.show(frame.shown, subscription.views)
        elif line is not None and (line.offset, line.turn) >= begin:
            events, has_begun = encoder.enter(frame.shown, subscription.views, _known(wanted)), True
            events[1:1] = [event_of("CUSTOM", name="already_answered", value=ruling.earlier)
                           for ruling in rulings if ruling.earlier is not None]
        else:
            encoder.show(frame.shown, subscription.views)
            continue
        async for piece in _pieces(gateway, subscription, frame, events):
            yield piece
        if encoder.run is None and not _waits(message, encoder, subscription):
            return
    async for piece in _pieces(gateway, subscription, None, encoder.close() if has_begun else []):
        yield piece


def _waits(message: str | None, encoder: Encoder, subscription: Subscription) -> bool:
    """Whether a later run follows the answers to the interrupts, or will answer a message."""
    if encoder.interrupted and not awaits(subscription.views, encoder.interrupts):
        return True
    if message is None or encoder.interrupted or subscription.views.turn.terminated:
        return False
    progress = subscription.views.messages.progress.last(message)
    return progress is None or progress.turn > encoder.turn


async def _thread(
    gateway: Gateway, subscription: Subscription, wanted: RunInput, follow: bool
) -> Pieces:
    """Every run so far, and the open run until it ends."""
    encoder, known = Encoder(wanted.thread, gateway.shown_blob), _known(wanted)
    before, views = subscription.drain(), subscription.views
    events: list[Event] = []
    for missed in before:
        events += encoder.show(missed.shown, views)
        await asyncio.sleep(0)  # yields: a thread may be long
    events = encoder.join(known) if known else events
    async for piece in _pieces(gateway, subscription, None, events):
        yield piece
    is_running = encoder.run is not None or (views.turn.open and not encoder.interrupted)
    while is_running or follow:
        try:
            frame = await subscription.__anext__()
        except StopAsyncIteration:
            break
        if frame is None:
            yield None
            continue
        events = encoder.show(frame.shown, subscription.views)
        async for piece in _pieces(gateway, subscription, frame, events):
            yield piece
        is_running = encoder.run is not None
    async for piece in _pieces(gateway, subscription, None, encoder.close()):
        yield piece


def _known(wanted: RunInput) -> list[Message]:
    """The client's messages that the session may have. An app may also have messages with other
    roles, which the session does not have.
    """
    return [message for message in wanted.messages if message["role"] in SHOWN]


async def _pieces(
    gateway: Gateway, subscription: Subscription, frame: Frame | None, events: list[Event]
) -> AsyncIterator[bytes]:
    """Encode events as server-sent events; after the end of a turn, record that it was shown."""
    for one in events:
        yield event(compact(one))
    if frame is not None and (turn := ended_now(frame, subscription)) is not None:
        await gateway.note_shown(subscription, turn, CHANNEL)
