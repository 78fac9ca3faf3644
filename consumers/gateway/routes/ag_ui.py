"""AG-UI 1.0 over HTTP: POST /agui is one run, POST /agui/connect a thread from its beginning.

What a client asks for is an event of the log before anything streams; what streams is a projection
of the session, so a connection that is lost loses nothing. Read docs/ag-ui.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ....processors.fold.projections.transcript import Line
from ....producers.checks import Invalid
from ...calls import call_named
from ...history import Frame
from ...protocols.ag_ui.calls import APPROVAL, DOUBT
from ...protocols.ag_ui.events import Encoder
from ...protocols.ag_ui.input import SHOWN, Asked, answer_to, asked, content_of, newest
from ...protocols.ag_ui.messages import Event, Message
from ..event_stream import EventStream, event
from ..json_bodies import JsonRoute
from ..parts import Gateway
from ..watching import Seat
from .plain import compact, ended_now, said

CHANNEL = "ag-ui"
"""What messages that come by here are said to come by, and what has their answers."""

Pieces = AsyncIterator[bytes | None]


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/agui", route_class=JsonRoute)

    @routes.post("", response_class=EventStream)
    async def run(request: Request) -> Response:
        """A RunAgentInput: says what is new, answers interrupts, streams the run that follows."""
        wanted = asked(await request.json())
        answered = await _answered(gateway, request, wanted)
        heard = await _heard(gateway, request, wanted)
        turn = gateway.owned(request, wanted.thread).turn
        if answered is None and not heard and not turn.open:
            raise Invalid("nothing_said", "the last message is not the user's, no interrupt is "
                          "answered, and no run is open: nothing was done")
        begin = min(heard.values(), default=turn.opened_offset) if answered is None else answered
        message = next(reversed(heard), None)
        until, seat = gateway.who(request).until, await _seat(gateway, request, wanted)
        return _stream(gateway, seat, _run(gateway, seat, wanted, begin, message, until))

    @routes.post("/connect", response_class=EventStream)
    async def connect(request: Request, follow: bool = False) -> Response:
        """A RunAgentInput: all runs of its thread, the one that is open until it ends; with
        `follow`, all to come. A client that has messages is brought up to date instead."""
        wanted = asked(await request.json())
        until, seat = gateway.who(request).until, await _seat(gateway, request, wanted)
        return _stream(gateway, seat, _thread(gateway, seat, wanted, follow, until))

    return routes


async def _answered(gateway: Gateway, request: Request, wanted: Asked) -> int | None:
    """Have the answers to interrupts decided; the offset of the last, None where there is none."""
    last, sessions = None, gateway.client.sessions
    for interrupt, payload in wanted.resume:
        views = gateway.owned(request, wanted.thread)
        call = call_named(views, interrupt)
        answer = answer_to(call.key, payload, APPROVAL if call.status == "asks" else DOUBT)
        if answer is None:
            continue
        named: dict[str, Any] = {"user": gateway.user(request)}
        if answer.decision is not None:
            named |= {"args_sha256": call.args_sha256, "remember": answer.remember}
            do, word = sessions.decide, answer.decision
        else:
            named |= {"report": answer.report}
            do, word = sessions.resolve, answer.outcome
        receipt = await gateway.blocking(do, views.session_id, call.key, word, **named)
        await gateway.decided(receipt)
        last = receipt.offset
    return last


async def _heard(gateway: Gateway, request: Request, wanted: Asked) -> dict[str, int]:
    """Have the user's newest messages decided; the offset of each, also of those that were said
    before: who asks again gets the same run again."""
    who, heard = gateway.who(request), {}
    for new in newest(wanted.messages):
        views = gateway.seen_by(who, wanted.thread)
        received = None if views is None else views.messages.received.last(new["id"])
        if received is not None:
            heard[new["id"]] = received.offset
            continue
        content = await gateway.blocking(content_of, new, gateway.attach)
        options = {"agent": wanted.agent, "when_busy": wanted.when_busy, "channel": CHANNEL}
        _, receipt = await said(
            gateway, who, wanted.thread, content, message_id=new["id"], **options
        )
        heard[new["id"]] = receipt.offset
    return heard


# -- streams ---------------------------------------------------------------------------------------


async def _seat(gateway: Gateway, request: Request, wanted: Asked) -> Seat:
    session_id = gateway.owned(request, wanted.thread).session_id
    return await gateway.hub.sit(session_id, None, "start", gateway.user(request))


def _stream(gateway: Gateway, seat: Seat, pieces: Pieces) -> Response:
    return EventStream(pieces, at_end=lambda: gateway.hub.leave(seat))


async def _run(
    gateway: Gateway, seat: Seat, wanted: Asked, begin: int, message: str | None, until: float
) -> Pieces:
    """What answers a POST: from the event at `begin` on, until the run ends in which `message` was
    answered, or which waits for a person; or until the asker's token has expired."""
    encoder, begun = Encoder(wanted.thread, gateway.shown_blob), False
    async for frame in seat:
        if time.time() >= until:
            break
        if frame is None:
            yield None
            continue
        line = getattr(frame.shown, "line", None)
        if begun:
            events = encoder.show(frame.shown, seat.views)
        elif line is not None and line.offset >= begin and not _ends_at(line, begin):
            events, begun = encoder.enter(frame.shown, seat.views, _known(wanted)), True
        else:
            encoder.show(frame.shown, seat.views)
            continue
        async for piece in _pieces(gateway, seat, frame, events):
            yield piece
        if encoder.run is None and (encoder.interrupted or not _waits(message, encoder, seat)):
            return
    async for piece in _pieces(gateway, seat, None, encoder.close() if begun else []):
        yield piece


def _ends_at(line: Line, begin: int) -> bool:
    """Whether a line is the end of the turn before: what it left waiting opened one there."""
    return line.kind == "ended" and line.offset == begin


def _waits(message: str | None, encoder: Encoder, seat: Seat) -> bool:
    """Whether a message is for a later turn than the last run's."""
    if message is None or seat.views.turn.terminated:
        return False
    progress = seat.views.messages.progress.last(message)
    return progress is None or progress.turn > encoder.turn


async def _thread(
    gateway: Gateway, seat: Seat, wanted: Asked, follow: bool, until: float
) -> Pieces:
    """Every run until now, and the one that is open until it ends."""
    encoder, known = Encoder(wanted.thread, gateway.shown_blob), _known(wanted)
    before, views = seat.ready(), seat.views
    events: list[Event] = []
    for frame in before:
        events += encoder.show(frame.shown, views)
        await asyncio.sleep(0)  # others' turn: a thread may be long
    async for piece in _pieces(gateway, seat, None, encoder.join(known) if known else events):
        yield piece
    goes_on = encoder.run is not None or (views.turn.open and not encoder.interrupted)
    while (goes_on or follow) and time.time() < until:
        try:
            frame = await anext(seat)
        except StopAsyncIteration:
            break
        if frame is None:
            yield None
            continue
        events = encoder.show(frame.shown, seat.views)
        async for piece in _pieces(gateway, seat, frame, events):
            yield piece
        goes_on = encoder.run is not None
    async for piece in _pieces(gateway, seat, None, encoder.close()):
        yield piece


def _known(wanted: Asked) -> list[Message]:
    """The messages of a client that are the session's: an app may have others of its own."""
    return [message for message in wanted.messages if message["role"] in SHOWN]


async def _pieces(
    gateway: Gateway, seat: Seat, frame: Frame | None, events: list[Event]
) -> AsyncIterator[bytes]:
    """Events as server-sent events; behind the end of a turn it is noted that it was shown."""
    for one in events:
        yield event(compact(one))
    if frame is not None and (turn := ended_now(frame, seat)) is not None:
        await gateway.noted(seat, turn, CHANNEL)
