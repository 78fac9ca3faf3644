"""A chat with approval in one FastAPI file. docs/embed.md explains it; a test runs it.

python -m uvicorn app:app --port 8100 --timeout-graceful-shutdown 5
"""

import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

from agent import shop
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

import foldlog

USERS = {"token-of-ana": "ana", "token-of-bob": "bob"}  # put your own login here
BEGIN = "0.0"  # the cursor before the first event of every chat


def user_of(request: Request) -> str | None:
    """The user of a request; None if it has no valid token. A browser sends it in a cookie."""
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    return USERS.get(given or request.cookies.get("token", ""))


worker = None if os.environ.get("WORKERS_ELSEWHERE") else foldlog.Worker([shop])
gateway = foldlog.asgi(authenticate=user_of)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start and stop everything that the application needs."""
    async with AsyncExitStack() as stack:
        if worker is not None:
            await stack.enter_async_context(worker)
        await stack.enter_async_context(gateway)
        app.state.log = await stack.enter_async_context(foldlog.aconnect())
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/foldlog", gateway)


async def session_of(request: Request, chat: str) -> AsyncIterator[foldlog.AsyncSession]:
    """The session of a chat, new or continued, if it is the user's own."""
    user = user_of(request)
    if user is None:
        raise HTTPException(401, "sign in")
    try:
        session = await request.app.state.log.open(chat, agent=shop.name, user=user)
    except foldlog.CommandRefused:
        raise HTTPException(404, "there is no such chat") from None
    async with session:
        yield session


Chat = Annotated[foldlog.AsyncSession, Depends(session_of)]


class Message(BaseModel):
    """A user's message. The page chooses the `id`, so that a message sent twice counts once."""

    id: str
    text: str


class Decision(BaseModel):
    """Whether a call may run."""

    call: str
    allow: bool


class SignIn(BaseModel):
    """What a person enters to sign in."""

    token: str


@app.get("/")
def page() -> FileResponse:
    """The page of the chat."""
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/sign-in")
def sign_in(given: SignIn) -> Response:
    """Set the cookie by which `user_of` knows the browser. Pages of other sites cannot send it."""
    if given.token not in USERS:
        raise HTTPException(401, "unknown token")
    response = Response(status_code=204)
    response.set_cookie("token", given.token, httponly=True, samesite="strict")
    return response


@app.post("/chats/{chat}/messages")
async def send(session: Chat, message: Message) -> StreamingResponse:
    """Send a message and stream its answer; an approval in between keeps the stream open."""
    reply = await session.send(message.text, message_id=message.id).begin()
    return StreamingResponse(sse(reply), media_type="text/event-stream")


@app.get("/chats/{chat}/events")
async def events(
    session: Chat, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Stream the history and all that follows or, when a page reconnects, what follows the event
    with this id."""
    past = [] if last_event_id else await session.history()
    after = last_event_id or (past[-1].cursor if past else BEGIN)
    stream = await session.events(after).begin()
    return StreamingResponse(sse(stream, past), media_type="text/event-stream")


async def sse(
    stream: foldlog.AsyncStream, past: Iterable[foldlog.SessionEvent] = ()
) -> AsyncIterator[str]:
    """Server-sent events whose ids are cursors."""
    async with stream:
        for event in past:
            yield sent(event)
        async for event in stream:
            yield sent(event)


def sent(event: foldlog.SessionEvent) -> str:
    """An event as a server-sent event."""
    data = json.dumps(jsonable_encoder(event))
    return f"id: {event.cursor}\nevent: {type(event).__name__}\ndata: {data}\n\n"


@app.get("/chats/{chat}")
async def history(session: Chat) -> list[str]:
    """The events so far, one line each."""
    return [str(event) for event in await session.history()]


@app.post("/chats/{chat}/decisions")
async def decide(session: Chat, decision: Decision) -> None:
    """Allow or deny a call that waits for approval."""
    for ask in (await session.state()).approvals:
        if ask.call == decision.call:
            await (session.approve(ask) if decision.allow else session.deny(ask))
            return
    raise HTTPException(409, f"call {decision.call} does not wait for approval")


@app.get("/readyz")
def ready() -> str:
    """Whether the worker is ready. FastAPI runs it in a thread, because it queries the broker."""
    if worker is not None and (why := worker.why_not_ready()):
        raise HTTPException(503, why)
    return "ready"


@app.exception_handler(foldlog.Refused)
async def refused(_request: Request, error: Exception) -> JSONResponse:
    """The response to what foldlog refuses, such as a message to a chat that has ended."""
    return JSONResponse({"detail": str(error)}, 409)


@app.exception_handler(foldlog.BadCursor)
async def bad_cursor(_request: Request, error: Exception) -> JSONResponse:
    """A Last-Event-ID that no event of this chat had."""
    return JSONResponse({"detail": str(error)}, 400)


@app.exception_handler(foldlog.LogUnreachable)
async def unreachable(_request: Request, _error: Exception) -> JSONResponse:
    """The response while the log is unreachable.

    Users do not get the details, which are for operators.
    """
    return JSONResponse({"detail": "try again with the same message id: it counts once"}, 503)
