"""Server-sent events: a response that streams an iterator and disconnects slow clients.

A client that never reads blocks a write; after WRITE_S the connection is closed, and the client
reconnects with its cursor. While the iterator has nothing to send, the response sends comments,
which every client ignores.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .deadline import Deadline

WRITE_S = 20.0
"""How long one write may block on a client that does not read, in seconds."""

KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",  # or proxies would buffer
}


class EventStream(Response):
    """Writes pieces of bytes as the iterator yields them; for None it writes a keep-alive comment.
    `at_end` is called when the response ends for any reason.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        pieces: AsyncIterator[bytes | None],
        status_code: int = 200,  # FastAPI reads this default for its OpenAPI document
        headers: Mapping[str, str] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(status_code=status_code, headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces, self._at_end = pieces, at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = asyncio.ensure_future(self._write(send))
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({write, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (write, disconnect):
                task.cancel()
            await asyncio.gather(write, disconnect, return_exceptions=True)
            self._at_end()
        if write.done() and not write.cancelled() and (error := write.exception()):
            raise error

    async def _write(self, send: Send) -> None:
        """Write the response. This call's task is cancelled if the client does not read in time."""
        task = asyncio.current_task()
        assert task is not None
        deadline = Deadline(WRITE_S, task.cancel)

        async def write(message: Message) -> None:
            deadline.begin()
            await send(message)
            deadline.end()

        start = {"type": "http.response.start", "status": self.status_code}
        try:
            await write({**start, "headers": self.raw_headers})
            try:
                async for piece in self._pieces:
                    body = KEEP_ALIVE if piece is None else piece
                    await write({"type": "http.response.body", "body": body, "more_body": True})
                    await asyncio.sleep(0)  # yields to other tasks, since writes may never block
            finally:
                close = getattr(self._pieces, "aclose", None)
                if close is not None:
                    await close()
            await write({"type": "http.response.body", "body": b""})
        except TooSlow:
            return  # the connection is closed
        finally:
            deadline.close()


class TooSlow(Exception):
    """The iterator of a response ends it, because the client did not keep up."""


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(data: str, *, id: str | None = None, name: str | None = None) -> bytes:
    """The bytes of one event. `data` must not have line breaks; compact JSON has none."""
    assert "\n" not in data and "\r" not in data, "a line break would end the event"
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {data}\n\n".encode()
