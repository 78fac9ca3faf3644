"""Serving the gateway: uvicorn, with limits, until it is told to end. Only this file imports it."""

import socket

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 256
IDLE_S = 75
"""How long a connection without a request is kept."""
CONNECTIONS_MAX = 6_000
"""Of one process, viewers among them; the rest is answered 503."""
UNREAD_MS = 60_000
"""How long what was sent may lie unread before the system cuts the connection: a viewer that never
reads is let go of sooner, but what it left would wait for it as long as it lives."""
DRAIN_S = 3
"""How long open streams may take to end when the gateway does: their clients come back."""


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections have it from who listens
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # whoever comes before the server is up waits for it
    except OSError:
        listening.close()
        raise
    return listening


def server(app: ASGIApp) -> uvicorn.Server:
    """A server of an app; `run(sockets=[...])` serves until SIGTERM or SIGINT."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )
