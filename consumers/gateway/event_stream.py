"""Server-sent events: one response that writes what an iterator gives, and lets go of who is slow.

A client that never reads keeps a write waiting; after a while the connection is closed, and the
client comes back with its cursor. Silence is filled with comments, which every client ignores.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

WRITE_S = 20.0
"""How long one write may wait for a client that does not read."""

KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",  # proxies that would wait for more
}


class EventStream(Response):
    """Writes byte pieces as they come; None is a silence. `at_end` is called whatever happens."""

    media_type = "text/event-stream"

    def __init__(
        self,
        pieces: AsyncIterator[bytes | None],
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(status_code=status_code, headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces, self._at_end = pieces, at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)
            self._at_end()
        if writing.done() and not writing.cancelled() and (error := writing.exception()):
            raise error

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await _sent(send, {**start, "headers": self.raw_headers})
        try:
            async for piece in self._pieces:
                body = KEEP_ALIVE if piece is None else piece
                await _sent(send, {"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.sleep(0)  # a write that need not wait gives nobody else a turn
        except TooSlow:
            return  # the connection is cut: nobody reads it
        finally:
            close = getattr(self._pieces, "aclose", None)
            if close is not None:
                await close()
        await _sent(send, {"type": "http.response.body", "body": b""})


class TooSlow(Exception):
    """A client did not read in time."""


async def _sent(send: Send, message: dict) -> None:
    try:
        async with asyncio.timeout(WRITE_S):
            await send(message)
    except TimeoutError:
        raise TooSlow from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(data: str, *, id: str | None = None, name: str | None = None) -> bytes:
    """One event; `data` without line breaks, as compact JSON is."""
    assert "\n" not in data and "\r" not in data, "a line break would end the event"
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {data}\n\n".encode()
