"""Sends one answer on one connection: the stream, its pace and gates, and the faults that break it.

The caller journals what happened, from the `Outcome` that `deliver` returns or from the exception:
`ClientGone` if the client disconnected first.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import random
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ...schemas.canonical import compact_ascii
from .answer import Answer, Event, wire
from .distort import middle
from .errors import ApiError
from .faults import Fault, Stage
from .script import Reply

# The announced length of the HTTP chunk that a `cut` or `reset` leaves unfinished.
_TORN_CHUNK_BYTES = 4096
# How long a reset waits for a client to empty its buffer.
_FLUSH_S = 2.0
_POLL_S = 0.001
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ClientGone(Exception):
    """The client closed the connection before the end of the answer."""


class Gates:
    """Named gates at which an answer can wait. An open gate stays open. Use the gates in one event
    loop only.
    """

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def _event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    def open(self, name: str) -> None:
        self._event(name).set()

    def is_open(self, name: str) -> bool:
        return self._event(name).is_set()

    async def passed(self, name: str) -> None:
        await self._event(name).wait()


@dataclass(slots=True)
class Outcome:
    """How an answer ended.

    kind: answered or faulted.
    facts: the fields of its journal entry.
    """

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Delivery:
    """One answer to one HTTP request.

    waiting: called before the answer waits at a gate, with the gate's name and the number of events
        sent.
    split: whether a write may end inside an event, a JSON escape or a character.
    """

    http: web.Request
    reply: Reply
    answer: Answer
    request_id: str
    pace_s: float
    gates: Gates
    waiting: Callable[[str, int], None]
    split: bool = True
    sent: int = 0

    @property
    def fault(self) -> Fault | None:
        return self.reply.made_fault

    async def deliver(self, stream: bool) -> tuple[web.StreamResponse, Outcome]:
        """Send the whole answer, or the part of it that its fault allows.

        Raises ClientGone if the client disconnected, or ConnectionResetError if the fault closed
        the connection.
        """
        if self.reply.think_s:
            await asyncio.sleep(self.reply.think_s)
        if self.reply.gate is not None and self.reply.gate_after <= 0:
            await self._at_gate(self.reply.gate)
        fault = self.fault
        if fault is not None and fault.stage is Stage.BEFORE:
            return await self._instead(fault)
        if stream:
            return await self._stream()
        return await self._whole()

    async def _at_gate(self, name: str) -> None:
        if not self.gates.is_open(name):
            self.waiting(name, self.sent)
            await self.gates.passed(name)

    # before the stream ------------------------------------------------------------------------

    async def _instead(self, fault: Fault) -> tuple[web.StreamResponse, Outcome]:
        facts = {"fault": fault.name, "events": 0}
        if fault.name == "no_answer":
            await self._silence(None)
        if fault.name == "accepted_then_lost":
            return self._drop(rst=fault["how"] == "rst"), Outcome("faulted", facts)
        status = fault["status"]
        facts["status"] = status
        if fault.name == "html_error":
            page = f"<html><body><h1>{status} Bad Gateway</h1></body></html>"
            return web.Response(status=status, text=page, content_type="text/html"), Outcome(
                "faulted", facts
            )
        error = ApiError(
            status,
            fault["message"],
            type=fault["type"],
            code=fault["error_code"],
            headers=_retry_headers(fault),
        )
        return error_response(error, self.request_id), Outcome("faulted", facts)

    def _drop(self, *, rst: bool) -> web.StreamResponse:
        """Close the connection now. aiohttp discards the response that this returns."""
        transport = self.http.transport
        if transport is not None:
            if rst:
                sock = transport.get_extra_info("socket")
                # A zero linger time makes close() send RST instead of FIN.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                transport.abort()
            else:
                transport.close()
        return web.Response(status=204)

    async def _flushed(self) -> None:
        """Wait until the client's kernel has received all that was written.

        A reset discards data that is still queued on this side, so without this wait the client
        would get fewer events than the fault specifies.
        """
        transport = self.http.transport
        polls_left = int(_FLUSH_S / _POLL_S)
        while transport is not None and not transport.is_closing() and polls_left:
            sock = transport.get_extra_info("socket")
            unsent = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
            if not struct.unpack("i", unsent)[0]:
                return
            polls_left -= 1
            await asyncio.sleep(_POLL_S)

    async def _silence(self, seconds: float | None) -> None:
        """Send nothing for `seconds`, or until the client leaves, which cancels the handler."""
        if seconds is not None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.get_running_loop().create_future()

    # not streamed -----------------------------------------------------------------------------

    async def _whole(self) -> tuple[web.StreamResponse, Outcome]:
        body = json.dumps(self.answer.message(), ensure_ascii=False).encode()
        fault = self.fault
        facts = {"status": 200, "stop_reason": self.answer.stop_reason}
        response = web.Response(
            body=body, content_type="application/json", headers={"request-id": self.request_id}
        )
        if fault is None or fault.stage is not Stage.BREAK:
            return response, Outcome("answered", facts)
        facts = {"fault": fault.name, "status": 200}
        if fault.name == "error_event":
            error = _error_of(fault)
            return error_response(error, self.request_id), Outcome(
                "faulted", {**facts, "status": error.status}
            )
        if fault.name in ("stall", "stall_with_pings", "half_open"):
            await self._silence(fault.params.get("s"))
        self._write_raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body[: len(body) // 2]
        )
        return self._drop(rst=fault.name == "reset"), Outcome("faulted", facts)

    def _write_raw(self, data: bytes) -> None:
        transport = self.http.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        transport.write(data)

    # streamed ---------------------------------------------------------------------------------

    async def _stream(self) -> tuple[web.StreamResponse, Outcome]:
        response = web.StreamResponse(headers={**_STREAM_HEADERS, "request-id": self.request_id})
        await response.prepare(self.http)
        fault = self.fault if self.fault and self.fault.stage is Stage.BREAK else None
        end = self._breaking_point(fault) if fault else len(self.answer.events)
        for event in self.answer.events[:end]:
            await self._gate_in_stream(end)
            await self._send(response, event)
        await self._gate_in_stream(end)
        if fault:
            how = fault.params.get("how", fault.name)
            await self._break(response, fault, how)
            facts = {"fault": fault.name, "status": 200, "events": self.sent}
            return response, Outcome("faulted", facts)
        await response.write_eof()
        facts = {
            "status": 200,
            "events": self.sent,
            "stop_reason": self.answer.stop_reason,
            "message_id": self.answer.message_id,
        }
        return response, Outcome("answered", facts)

    def _breaking_point(self, fault: Fault) -> int:
        events = self.answer.events
        types = [event["type"] for event in events]
        if fault.name == "eof_before_message_delta":
            return types.index("message_delta")
        if fault.name == "eof_before_message_stop":
            return types.index("message_stop")
        if fault.name == "cut_in_tool_input":
            inside = [
                i
                for i, event in enumerate(events)
                if event.get("delta", {}).get("type") == "input_json_delta"
            ]
            if not inside:
                raise ValueError("fault 'cut_in_tool_input' needs a tool_use with input")
            # Breaks off before the block's last delta, so the block is not stopped either.
            first = events[inside[0]]["index"]
            return [i for i in inside if events[i]["index"] == first][-1]
        return middle(events, fault["k"])

    async def _gate_in_stream(self, end: int) -> None:
        name, after = self.reply.gate, self.reply.gate_after
        if name is not None and after > 0 and self.sent == min(after, end):
            await self._at_gate(name)

    async def _send(self, response: web.StreamResponse, event: Event) -> None:
        await self._write(response, wire(event))
        self.sent += 1
        if self.pace_s and event["type"] == "content_block_delta":
            await asyncio.sleep(self.pace_s)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        try:
            for piece in self._writes(data):
                await response.write(piece)
        except ConnectionError as error:
            raise ClientGone from error

    def _writes(self, data: bytes) -> list[bytes]:
        if not self.split:
            return [data]
        # Seeded by position and length, so that a run is repeatable; an event is cut once.
        cut = random.Random(self.sent * 1_000_003 + len(data)).randrange(1, len(data))
        inside = next((i for i in range(cut, len(data)) if data[i] & 0xC0 == 0x80), cut)
        return [data[:inside], data[inside:]]

    async def _break(self, response: web.StreamResponse, fault: Fault, how: str) -> None:
        if how == "error_event":
            error = _error_of(fault)
            body = compact_ascii(error.body(self.request_id))
            await self._write(response, f"event: error\ndata: {body}\n\n".encode())
        elif how in ("cut", "reset"):
            torn = wire(self.answer.events[self.sent])
            self._write_raw(b"%x\r\n" % _TORN_CHUNK_BYTES + torn[: len(torn) // 2])
            await self._flushed()
            self._drop(rst=how == "reset")
            return
        elif how == "half_open":
            transport = self.http.transport
            if isinstance(transport, asyncio.ReadTransport):
                transport.pause_reading()
            await self._silence(None)
        elif how == "stall":
            await self._silence(fault.params.get("s"))
        elif how == "stall_with_pings":
            await self._pings(response, fault)
        await response.write_eof()

    async def _pings(self, response: web.StreamResponse, fault: Fault) -> None:
        elapsed_s = 0.0
        while fault["s"] is None or elapsed_s < fault["s"]:
            await self._write(response, wire({"type": "ping"}))
            await asyncio.sleep(fault["every_s"])
            elapsed_s += fault["every_s"]


def _retry_headers(fault: Fault) -> dict[str, str]:
    headers = {
        "retry-after": fault["retry_after"],
        "retry-after-ms": fault["retry_after_ms"],
        "x-should-retry": fault["should_retry"],
    }
    return {name: str(value) for name, value in headers.items() if value is not None}


def _error_of(fault: Fault) -> ApiError:
    kind = fault["type"]
    status = 529 if kind == "overloaded_error" else 500
    return ApiError(status, fault["message"], type=kind, code=fault["error_code"])


def error_response(error: ApiError, request_id: str) -> web.Response:
    """An error as the API sends it."""
    return web.json_response(
        error.body(request_id),
        status=error.status,
        headers={**error.headers, "request-id": request_id},
    )
