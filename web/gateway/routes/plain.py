"""The gateway's own API: JSON, and server-sent events for live updates.

docs/gateway.md shows how to use it, and /openapi.json has the schemas. A POST waits for the fold's
ruling and returns it; a refusal is 409 with its code and detail.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from ....client.commands import DEFAULT_AGENT, Commands
from ....client.history import Frame, Place, history
from ....client.outcomes import Decision
from ....client.printable import plain
from ....client.show import summary
from ....client.transcript_stream import LineAdded
from ....processors.fold.projections.turn_view import Call, is_open
from ....producers.checks import Invalid, an_id, content_json
from ....producers.options import REMEMBER, WHEN_BUSY, Option
from ....producers.sessions import Receipt, new_session_id
from ....schemas.canonical import compact
from ....schemas.enums import LookKind, Resolution
from ...protocols.plain import frame_text, name_of, thing_json
from .. import answers
from ..access import Caller
from ..answers import ok
from ..cursors import cursor_of
from ..event_stream import EventStream, event
from ..gateway import Gateway
from ..json_bodies import JsonRoute
from ..subscriptions import HEARTBEAT_S, Subscription

CHANNEL = "gateway"
"""The channel recorded for messages received by these routes, and for their answers."""

PIECE_BYTES = 16 * 1024
"""Events are joined into one write up to this size. Encoding a larger write would keep other
viewers waiting, and a slow client would hold it in memory."""

PAGE_MAX = 1_000
"""The most sessions in one list."""

DECIDED = ok(answers.Decided)

LastEventId = Annotated[str | None, Header(alias="last-event-id")]


class RequestBody(BaseModel):
    """A request body; an unknown field is refused."""

    model_config = ConfigDict(extra="forbid")


class Opening(RequestBody):
    """A session to open. Without an id, one is generated."""

    session_id: str | None = None
    agent: str = DEFAULT_AGENT


def _with_option(option: Option) -> Any:
    """A request body that has this option."""
    words = bool if option.words is None else Literal[tuple(map(str, option.words))]
    fields: Any = {option.name: (words, option.default)}
    return create_model(option.name, __base__=RequestBody, **fields)


class Message(_with_option(WHEN_BUSY)):  # type: ignore[misc]
    """A message to send.

    If the session already has a message with this message_id, this message has no effect. The
    request still succeeds, because the earlier message is in effect.
    """

    text: str
    message_id: str | None = None
    agent: str | None = None


class Cancel(RequestBody):
    """Stop the running turn, unless `turn` or `seen_phase` is given and no longer current."""

    turn: int | None = None
    seen_phase: str | None = None
    mode: Literal["now", "after_step"] = "now"
    reason: str = ""
    cancel_id: str | None = None


class Approval(_with_option(REMEMBER)):  # type: ignore[misc]
    """Allow or deny a call.

    The answer is valid only for arguments with the SHA-256 given here.
    """

    decision: Literal["allow", "deny"]
    args_sha256: str | None = None
    like: dict[str, str] | None = Field(None, alias="remember_like")


class Report(RequestBody):
    """A person's report on what happened to a call in doubt."""

    outcome: Literal["happened", "did_not_happen"]
    report: str = ""


class Phase(RequestBody):
    """The phase transition to trigger."""

    trigger: str
    command_id: str | None = None


class Project(RequestBody):
    """The project to lock a session to; this can be done once."""

    project_id: str
    command_id: str | None = None


class Ending(RequestBody):
    """The reason for ending a session."""

    reason: str = ""


def decision_json(decision: Decision, **more: Any) -> dict[str, Any]:
    """The response to a command that is in effect, accepted just now or earlier."""
    return {
        "session_id": decision.session_id,
        "offset": decision.offset,
        "verdict": decision.verdict,
        "turn": decision.views.turn.number,
        "phase": decision.views.state.phase,
        **more,
    }


def router(gateway: Gateway) -> APIRouter:
    """The routes, for a gateway."""
    routes = APIRouter(prefix="/v1", route_class=JsonRoute)
    _reading_routes(routes, gateway)
    _session_routes(routes, gateway)
    _decision_routes(routes, gateway)
    return routes


def _reading_routes(routes: APIRouter, gateway: Gateway) -> None:
    @routes.get("/sessions", responses=ok(answers.Sessions))
    def sessions(request: Request, limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100) -> Any:
        """The user's sessions, most recently changed first."""
        found = gateway.tail.summaries(gateway.listed(gateway.caller(request)))
        return {"sessions": found[:limit], "more": max(0, len(found) - limit)}

    @routes.get("/sessions/events", response_class=EventStream)
    async def changes(request: Request) -> Response:
        """The user's sessions as they change. Each event `session` contains one session, with the
        same fields as in the list of sessions.
        """
        caller = gateway.caller(request)
        user = await gateway.read(gateway.listed, caller)
        at_end = gateway.hub.reserve(caller.user)
        return EventStream(_changes(gateway, user, caller.until), at_end=at_end)

    @routes.get("/sessions/{session_id}", responses=ok(answers.SessionNow))
    def session(request: Request, session_id: str) -> Any:
        """One session: its state, its open calls, and a cursor to resume from."""
        caller = gateway.caller(request)
        return session_json(gateway, gateway.seen(caller, session_id, LookKind.SESSION))

    @routes.get("/sessions/{session_id}/transcript", responses=ok(answers.Transcript))
    def transcript(request: Request, session_id: str) -> Any:
        """The transcript so far: messages, calls, results."""
        views = gateway.seen(gateway.caller(request), session_id, LookKind.TRANSCRIPT)
        things = [thing_json(thing, gateway.shown_blob)
                  for _, thing in history(views, gateway.shown_blob)]
        return {"session_id": views.session_id, "lines": [t["line"] for t in things if "line" in t]}

    @routes.get("/sessions/{session_id}/stream", response_class=EventStream)
    async def stream(
        request: Request,
        session_id: str,
        cursor: str | None = None,
        since: Literal["start", "turn", "now"] = "start",
        last_event_id: LastEventId = None,
    ) -> Response:
        """The live session as events: `token`, `dropped`, `settled` and `told`.

        To reconnect, send the id of the last event as Last-Event-ID or ?cursor=.
        """
        caller = gateway.caller(request)
        views = await gateway.read(gateway.seen, caller, session_id, LookKind.STREAM)
        # Raise errors before the stream begins.
        subscription = await gateway.hub.subscribe(
            views.session_id, last_event_id or cursor, since, caller.user, caller.until
        )
        unsubscribe = partial(gateway.hub.unsubscribe, subscription)
        return EventStream(_frames(gateway, subscription), at_end=unsubscribe)


def _session_routes(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("/sessions", status_code=201, responses=ok(answers.Decided, 201))
    async def open_session(request: Request, body: Opening) -> Any:
        """Open a session for the user; repeating it with the same agent is harmless. The response
        has the session's id, which differs from the given name except in development mode; later
        requests may use either.
        """
        caller = gateway.caller(request)
        given = body.session_id
        session_id = new_session_id() if given is None else gateway.session_id(caller, given)
        return decision_json(await create_session(gateway, caller.user, session_id, body.agent))

    @routes.post("/sessions/{session_id}/messages", responses=ok(answers.Sent))
    async def say(request: Request, session_id: str, body: Message) -> Any:
        """Send a message. Opens the session if it does not exist."""
        options = body.model_dump(exclude={"text"})
        decision, receipt = await post_message(
            gateway, gateway.caller(request), session_id, body.text, channel=CHANNEL, **options
        )
        return decision_json(decision, message_id=receipt.id)

    @routes.post("/sessions/{session_id}/terminate", responses=DECIDED)
    async def terminate(request: Request, session_id: str, body: Ending) -> Any:
        """End a session permanently."""
        on = gateway.commands(request, session_id)
        return decision_json(await gateway.rule(on, Commands.terminate, reason=body.reason))


def _decision_routes(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("/sessions/{session_id}/cancel", responses=DECIDED)
    async def cancel(request: Request, session_id: str, body: Cancel) -> Any:
        """Stop the running turn, if it is the turn that the user saw."""
        on = gateway.commands(request, session_id)
        return decision_json(await gateway.rule(on, Commands.cancel, **body.model_dump()))

    @routes.post("/sessions/{session_id}/calls/{call}/decide", responses=DECIDED)
    async def decide(request: Request, session_id: str, call: str, body: Approval) -> Any:
        """Allow or deny a call that waits for approval."""
        on = await gateway.answering(request, session_id)
        return decision_json(await gateway.rule(on, Commands.decide, call, **body.model_dump()))

    @routes.post("/sessions/{session_id}/calls/{call}/resolve", responses=DECIDED)
    async def resolve(request: Request, session_id: str, call: str, body: Report) -> Any:
        """Report what happened to a call in doubt."""
        on = await gateway.answering(request, session_id)
        demand_report(body.outcome, body.report)
        return decision_json(await gateway.rule(on, Commands.resolve, call, **body.model_dump()))

    @routes.post("/sessions/{session_id}/phase", responses=DECIDED)
    async def phase(request: Request, session_id: str, body: Phase) -> Any:
        """Trigger a phase transition."""
        on = gateway.commands(request, session_id)
        return decision_json(await gateway.rule(on, Commands.trigger, **body.model_dump()))

    @routes.post("/sessions/{session_id}/project", responses=DECIDED)
    async def project(request: Request, session_id: str, body: Project) -> Any:
        """Lock a session to a project."""
        on = gateway.commands(request, session_id)
        return decision_json(await gateway.rule(on, Commands.lock, **body.model_dump()))


# -- used by the other protocols' routes too -------------------------------------------------------


async def create_session(gateway: Gateway, user: str, session_id: str, agent: str) -> Decision:
    """Open a session for a user, and wait for the ruling. Raises CommandRefused, Invalid."""
    receipt = await gateway.blocking(
        gateway.client.writer.open, session_id, agent=agent, user=user
    )
    return await gateway.decision(receipt)


async def post_message(
    gateway, caller: Caller, name: str, content: Any, *, agent: str | None = None, **options: Any
) -> tuple[Decision, Receipt]:
    """Send a user's message to a session, which may be new. Raises NobodyAnswers, CommandRefused.
    """
    session_id = gateway.session_id(caller, name)
    views = gateway.views_or_none(caller, name)
    if views is None:
        # An invalid message does not open a session.
        await gateway.blocking(content_json, content)
        an_id("message_id", options.get("message_id") or "none")
        opened = await create_session(gateway, caller.user, session_id, agent or DEFAULT_AGENT)
        views = opened.views
    on = Commands(gateway.client.writer, views, caller.user, gateway.read_blob)
    receipt = await gateway.blocking(on.say, content, **options)
    return await gateway.decision(receipt), receipt


def demand_report(outcome: str | None, report: str) -> None:
    """Raise Invalid for the outcome `happened` without a report of what happened."""
    if outcome == Resolution.HAPPENED and not report.strip():
        raise Invalid("empty_report", "the report is empty. Nothing was written. State what "
                      "happened: the model gets this text as the call's result.")


def session_json(gateway: Gateway, views) -> dict[str, Any]:
    """Everything about one session except its transcript. `cursor`: where a viewer resumes."""
    partition, offset = gateway.tail.cursor(views.session_id)
    turn, holders = views.turn, gateway.tail.holders(views.session_id)
    return {
        **summary(views, partition, holders),
        "state": plain(views.state),
        "open": turn.open,
        "step": turn.step,
        "waits": [call_json(call) for call in (*turn.calls, *turn.doubts) if is_open(call)],
        "queued": [message.message_id for message in turn.queue],
        "offset": offset,
        "cursor": cursor_of(views.session_id, Place(offset)),
    }


def call_json(call: Call) -> dict[str, Any]:
    """An open call, or a call in doubt, as JSON."""
    fields = ("key", "call_id", "name", "status", "attempt", "args_sha256", "expires_at")
    return {name: getattr(call, name) for name in fields} | {"args": plain(call.args)}


async def _changes(
    gateway: Gateway, user: str | None, until: float
) -> AsyncIterator[bytes | None]:
    async with gateway.hub.changes() as queue:
        while time.time() < until:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    line = await queue.get()
            except TimeoutError:
                yield None
                continue
            if line is None:
                return
            if user in (None, line["user_id"]):
                yield event(compact(line), name="session")


async def _frames(gateway: Gateway, subscription: Subscription) -> AsyncIterator[bytes | None]:
    """Yield the frames of a subscription as events, several in one piece, and record that the end
    of a turn was shown.
    """
    while (frames := await subscription.next_frames()) is not None:
        if not frames:
            yield None
        piece, last = b"", len(frames) - 1
        for number, frame in enumerate(frames):
            piece += _encoded(frame, gateway)
            turn = ended_now(frame, subscription)
            if number == last or turn is not None or len(piece) >= PIECE_BYTES:
                yield piece
                piece = b""
            if turn is not None:
                await gateway.note_shown(subscription, turn, CHANNEL)


def _encoded(frame: Frame, gateway: Gateway) -> bytes:
    """A frame as an event. The first viewer encodes it for all viewers of the session."""
    if frame.encoded is None:
        data = frame_text(frame, gateway.shown_blob)
        frame.encoded = event(data, id=frame.cursor, name=name_of(frame))
    return frame.encoded


def ended_now(frame: Frame, subscription: Subscription) -> int | None:
    """The turn that ends with this frame; None if the frame ends no turn.

    Also None if the frame is not live and the turn is not the session's newest, so that a viewer
    who reads old turns causes no GEN_SENT.
    """
    shown = frame.shown
    if not isinstance(shown, LineAdded) or shown.line.kind != "ended":
        return None
    is_news = frame.live or shown.line.turn == subscription.views.turn.number
    return shown.line.turn if is_news else None
