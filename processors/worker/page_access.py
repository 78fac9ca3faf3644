"""Decides which requests may read the pages of `pages.py`.

Two kinds of clients may read the pages: clients on this machine whose Host header is a loopback
name, and other clients that send the token. The check of the Host header rejects web pages whose
domain resolves to loopback, because their requests name that domain. `/healthz` and `/readyz` need
no token, because an orchestrator's probes have none and both pages have only one word.
"""

import contextlib
import hmac
import ipaddress
from typing import NamedTuple

PROBES = ("/healthz", "/readyz")
TEXT, JSON = "text/plain; charset=utf-8", "application/json"


class Answer(NamedTuple):
    """The response of a page. `headers`: further headers."""

    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


def text(words: str, status: int = 200) -> Answer:
    """A response with one line of plain text."""
    return Answer(f"{words}\n".encode(), status)


class Caller(NamedTuple):
    """The address of a client, the headers that authorize its request, and the query in its URL."""

    peer: str
    host: str
    authorization: str
    query: str = ""


def refusal(path: str, caller: Caller, token: str | None) -> Answer | None:
    """The error response for a request that is not allowed, or None."""
    sent = caller.authorization.removeprefix("Bearer ").encode()
    if token and caller.authorization and hmac.compare_digest(sent, token.encode()):
        return None
    if is_loopback(caller.peer):
        if is_loopback(host_name(caller.host)):
            return None
        return text("403: request this page by a loopback name, such as 127.0.0.1", 403)
    if path in PROBES:
        return None
    return text("401: send `Authorization: Bearer` with the web token of this worker", 401)


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


def is_loopback(name: str) -> bool:
    """Whether a name or an address can only mean this machine."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback
    return name.lower() == "localhost"
