"""Serving the gateway: uvicorn, with limits, until it is told to end. Only this file imports it.

What a client owes has a deadline, for nothing tells a slow one from one that never sends: the head
of a request, then its body. What it may take is bounded: connections in all, and of one address, so
that some descriptors are always left for the log and the stores.
"""

import asyncio
import ipaddress
import json
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .inert import INERT

BACKLOG = 256
IDLE_S = 75
"""How long a connection without a request is kept."""
HEAD_S = 10.0
"""How long a client may take for the head of a request, from its first byte on; of a connection's
first request, from the connection on."""
BODY_S = 60.0
"""And for its body: the largest one at 140 KB a second."""
CONNECTIONS_MAX = 6_000
"""Of one process, viewers among them."""
DESCRIPTORS_MAX = 65_536
"""As many as are asked of the system, if it gives them."""
DESCRIPTORS_KEPT = 256
"""For blobs, and for what the log and the stores open later. What is accepted at once (BACKLOG)
before it can be refused comes on top."""
SEND_BYTES_MAX = 256 * 1024
"""What the system keeps for a client that does not read: left alone, it takes some megabytes."""
UNREAD_MS = 60_000
"""How long what was sent may lie unread before the system cuts the connection: a viewer that never
reads is let go of sooner, but what it left would wait for it as long as it lives."""
SITE_BITS = 64
"""Of an IPv6 address: what a provider gives to one customer at least."""
DRAIN_S = 3
"""How long requests may take to be answered when the gateway ends. Streams are ended at once: their
clients come back."""


_INERT = "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in INERT.items())


class Limits(NamedTuple):
    """What clients may take: connections in all and of one address, seconds of their own."""

    connections: int = CONNECTIONS_MAX
    per_address: int = CONNECTIONS_MAX // 2
    head_s: float = HEAD_S
    body_s: float = BODY_S


def limits_here(per_address: int | None = None) -> Limits:
    """The limits of this process, by the descriptors that it may have and those it has in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    there = DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    connections = connections_of(there, _open_now())
    return Limits(connections, min(per_address or connections // 2, connections))


def connections_of(descriptors: int, in_use: int) -> int:
    """How many connections may be open; what is in use may double."""
    return max(16, min(CONNECTIONS_MAX, descriptors - 2 * in_use - DESCRIPTORS_KEPT - BACKLOG))


def _open_now() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:  # a system that does not tell
        return 64


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections have these from who listens.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES_MAX)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # whoever comes before the server is up waits for it
    except OSError:
        listening.close()
        raise
    return listening


def site_of(address: str) -> str:
    """Whose connections are counted together: of IPv6 the network, all of which one site has."""
    try:
        given = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if given.version == 4 or given.ipv4_mapped is not None:
        return str(getattr(given, "ipv4_mapped", None) or given)
    return str(ipaddress.ip_network((given, SITE_BITS), strict=False))


class Owed(StrEnum):
    """What a client must send next."""

    HEAD = "head"
    BODY = "body"


class Guarded(H11Protocol):
    """A connection whose client has deadlines, and is refused where there are too many."""

    def __init__(self, limits: Limits, addresses: Counter[str], **given) -> None:
        super().__init__(**given)
        self._limits, self._addresses = limits, addresses
        self._owed: Owed | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or answer that there are too many."""
        super().connection_made(transport)
        self._address = site_of(self.client[0]) if self.client else ""
        self._addresses[self._address] += 1
        if len(self.connections) > self._limits.connections:
            detail = "this gateway has as many connections as it takes: try again in a moment"
            self._refuse(503, "too_many_connections", detail)
        elif self._addresses[self._address] > self._limits.per_address:
            detail = "your address has as many connections as this gateway gives it: close some"
            self._refuse(429, "too_many_connections", detail)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._addresses[self._address] -= 1
        if not self._addresses[self._address]:
            del self._addresses[self._address]
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        self._watch()

    def shutdown(self) -> None:
        """Close the connection, if it waits or streams; else let its answer come first."""
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # the stream sees that its client is gone
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request."""
        self._refuse(400, "invalid", "this is no HTTP request that can be read: nothing was done")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _owes(self) -> Owed | None:
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.SEND_BODY:
            return Owed.BODY
        between = self.timeout_keep_alive_task is not None  # which has a time of its own
        return Owed.HEAD if self.conn.their_state is h11.IDLE and not between else None

    def _watch(self) -> None:
        """One deadline for each thing that is owed, however often a little of it comes."""
        owed = self._owes()
        if owed is self._owed:
            return
        self._owed = owed
        if self._deadline is not None:
            self._deadline.cancel()
        patience = {Owed.HEAD: self._limits.head_s, Owed.BODY: self._limits.body_s}
        self._deadline = owed and self.loop.call_later(patience[owed], self._too_late)

    def _too_late(self) -> None:
        detail = f"the {self._owed} of this request did not come in time: nothing was done"
        self._refuse(408, "too_slow", detail)
        self._watch()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer, unless an answer has begun, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"code": code, "detail": detail}).encode()
            head = (
                f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\n{_INERT}"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


def worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn says anything: that requests are cut when the gateway ends does
    not, and each of them came with a traceback."""
    cut = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cut and "timeout graceful shutdown exceeded" not in record.getMessage()


class Server(uvicorn.Server):
    """Calls `at_end` before it waits for the requests that are being answered.

    The signal that tells it to end has done its work then: raised once more, as uvicorn does, it
    would make an orderly end look like a failure.
    """

    at_end: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT for the block."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self.at_end()
        await super().shutdown(sockets)


def server(
    app: ASGIApp, limits: Limits | None = None, at_end: Callable[[], None] = lambda: None
) -> Server:
    """A server of an app; `run(sockets=[...])` serves until SIGTERM or SIGINT. `at_end` answers
    who waits for something to happen."""
    protocol = partial(Guarded, limits or Limits(), Counter())
    config = uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    logging.getLogger("uvicorn.error").addFilter(worth_a_line)  # once, however often it is added
    serving = Server(config)
    serving.at_end = at_end
    return serving
