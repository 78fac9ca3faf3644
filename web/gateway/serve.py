"""Serves the gateway with uvicorn until a signal arrives, and limits what clients may use. Only
this file imports uvicorn.

A client has a deadline for the head of a request, then for the body, because a slow client cannot
be distinguished from a client that never sends. Connections are bounded, in total and for each
address, so that the log and the stores always have some file descriptors.
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

from .app import INERT

BACKLOG = 256
IDLE_S = 75
"""How long an idle connection is kept, in seconds."""
HEAD_S = 10.0
"""Deadline for the head of a request in seconds, counted from the head's first byte, or for the
first request from the start of the connection.
"""
BODY_S = 60.0
"""Deadline for the body in seconds, enough for the largest body at 140 KB/s."""
CONNECTIONS_MAX = 6_000
"""The most connections of one process, viewers included."""
DESCRIPTORS_MAX = 65_536
"""How many file descriptors are requested from the system."""
DESCRIPTORS_KEPT = 256
"""Descriptors reserved for blobs and for what the log and the stores open later. In addition,
BACKLOG descriptors are reserved for connections that are accepted before they can be refused.
"""
SEND_BYTES_MAX = 256 * 1024
"""Size of the send buffer for a client that does not read; the system's default is some megabytes.
"""
UNREAD_MS = 60_000
"""How long sent data may stay unacknowledged before the system closes the connection. A viewer that
never reads is disconnected sooner, but without this limit its unsent data would stay in the kernel
as long as the viewer lives.
"""
SITE_BITS = 64
"""Prefix length of the IPv6 network that counts as one address; providers give a customer at least
this network.
"""
DRAIN_S = 3
"""How long open requests may take when the gateway ends, in seconds. Streams end at once, and their
clients reconnect.
"""


_INERT = "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in INERT.items())


class Limits(NamedTuple):
    """Limits for clients: connections in total and of one address, and deadlines."""

    connections: int = CONNECTIONS_MAX
    per_address: int = CONNECTIONS_MAX // 2
    head_s: float = HEAD_S
    body_s: float = BODY_S


def limits_here(per_address: int | None = None) -> Limits:
    """The limits of this process, from its descriptor limit and the descriptors in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    available = DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    connections = connections_of(available, _open_now())
    return Limits(connections, min(per_address or connections // 2, connections))


def connections_of(descriptors: int, in_use: int) -> int:
    """How many connections may be open. The file descriptors that are in use now are subtracted
    twice, because the log and the stores may open as many again.
    """
    return max(16, min(CONNECTIONS_MAX, descriptors - 2 * in_use - DESCRIPTORS_KEPT - BACKLOG))


def _open_now() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:  # this system does not report it
        return 64


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit these options.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES_MAX)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # clients that connect before the server is up wait
    except OSError:
        listening.close()
        raise
    return listening


def site_of(address: str) -> str:
    """The key by which connections are counted: an IPv4 address, or an IPv6 network."""
    try:
        given = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if given.version == 4 or given.ipv4_mapped is not None:
        return str(getattr(given, "ipv4_mapped", None) or given)
    return str(ipaddress.ip_network((given, SITE_BITS), strict=False))


class RequestPart(StrEnum):
    """The part of a request that the client must send next."""

    HEAD = "head"
    BODY = "body"


class GuardedConnection(H11Protocol):
    """A connection that has deadlines for its client, and is refused if there are too many."""

    def __init__(self, limits: Limits, addresses: Counter[str], **options) -> None:
        super().__init__(**options)
        self._limits, self._addresses = limits, addresses
        self._awaited: RequestPart | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as in uvicorn: the base has BaseTransport
        self, transport: asyncio.Transport
    ) -> None:
        """Accept the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self._address = site_of(self.client[0]) if self.client else ""
        self._addresses[self._address] += 1
        if len(self.connections) > self._limits.connections:
            detail = "this gateway is at its limit of connections: nothing was done. Try again soon"
            self._refuse(503, "too_many_connections", detail)
        elif self._addresses[self._address] > self._limits.per_address:
            detail = "your address is at its limit of connections: nothing was done. Close some"
            self._refuse(429, "too_many_connections", detail)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the counts."""
        self._addresses[self._address] -= 1
        if not self._addresses[self._address]:
            del self._addresses[self._address]
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the client."""
        super().data_received(data)
        self._watch()

    def shutdown(self) -> None:
        """Close the connection, unless it has a complete request whose response has not begun."""
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # the stream sees a disconnected client
        elif self._awaits() is RequestPart.BODY:
            self._refuse(503, "stopping", "this gateway is stopping, and the body of this request "
                         "is incomplete: nothing was done. Send it again")
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Respond to bytes that are not an HTTP request."""
        self._refuse(400, "invalid", "this is not a valid HTTP request: nothing was done")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _awaits(self) -> RequestPart | None:
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.SEND_BODY:
            return RequestPart.BODY
        between = self.timeout_keep_alive_task is not None  # then uvicorn's idle timeout applies
        return RequestPart.HEAD if self.conn.their_state is h11.IDLE and not between else None

    def _watch(self) -> None:
        """Set the deadline for the part that the client must send next. Receiving some bytes of
        this part does not extend the deadline.
        """
        awaited = self._awaits()
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
        timeouts = {RequestPart.HEAD: self._limits.head_s, RequestPart.BODY: self._limits.body_s}
        self._deadline = (
            self.loop.call_later(timeouts[awaited], self._too_late) if awaited else None
        )

    def _too_late(self) -> None:
        detail = f"the {self._awaited} of this request did not arrive in time: nothing was done"
        self._refuse(408, "too_slow", detail)
        self._watch()

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Send an error, unless a response has begun, and close the connection."""
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


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether a log line of uvicorn is worth printing. Lines about requests that were cut off when
    the gateway shut down are not, because each of them has a traceback.
    """
    cut = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cut and "timeout graceful shutdown exceeded" not in record.getMessage()


class Server(uvicorn.Server):
    """Calls `at_end` before it waits for open requests.

    uvicorn raises the signal again after the shutdown, which makes an orderly end look like a
    failure. This class does not raise the signal again.
    """

    at_end: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture SIGTERM and SIGINT while the block runs."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down."""
        self.at_end()
        await super().shutdown(sockets)


def server(
    app: ASGIApp, limits: Limits | None = None, at_end: Callable[[], None] = lambda: None
) -> Server:
    """A server of an app. `run(sockets=[...])` serves until SIGTERM or SIGINT. `at_end` ends the
    requests that wait for events.
    """
    protocol = partial(GuardedConnection, limits or Limits(), Counter())
    config = uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # any factory of protocols works
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    logging.getLogger("uvicorn.error").addFilter(is_worth_logging)  # adding it again has no effect
    serving = Server(config)
    serving.at_end = at_end
    return serving
