"""C: request bodies use no memory of other users. The gateway does not read unauthenticated bodies,
and limits those of each user.

The tests use real sockets. They leave bodies incomplete, so a response can depend only on what was
sent before.
"""

import asyncio
import json
import socket
from contextlib import ExitStack

import pytest

from foldlog.log.errors import Retry
from foldlog.tests.web.gateway.served import SECRET
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.app import BODY_BYTES_MAX
from foldlog.web.gateway.bodies import PER_USER_MAX, Bodies

PATIENCE_S = 90


def begin(gateway, path, *headers):
    """Send a request with an incomplete body."""
    made = socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S)
    head = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers)
    made.sendall("\r\n".join((*head, "", "")).encode() + b"{" * 8)
    return made


def response_to(connection):
    """The status, the headers and the body of the first response."""
    with connection, connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        lines = iter(lambda: file.readline().decode().strip(), "")
        headers = dict(line.split(": ", 1) for line in lines)
        return status, headers, json.loads(file.read(int(headers["content-length"])))


@pytest.mark.parametrize("size", ["content-length: 1000", "transfer-encoding: chunked"])
@pytest.mark.parametrize("path", ["/v1/sessions", "/api/chat", "/agui", "/v1/stream/s"])
@pytest.mark.parametrize("token", ["", "authorization: Bearer no.such.token"])
def test_no_part_of_an_unauthenticated_body_is_read(gateway, path, size, token):
    status, headers, body = response_to(begin(gateway, path, size, *filter(None, [token])))
    assert (status, body["code"]) == (401, "unauthenticated")
    assert headers["www-authenticate"] == "Bearer"
    assert headers["content-security-policy"]


@pytest.mark.parametrize(("version", "lengths"), [
    ("1.1", b"content-length: 4\r\ntransfer-encoding: chunked"),
    ("1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 39"),
    ("1.0", b"transfer-encoding: chunked"),
])
@pytest.mark.parametrize("request_line", ["POST /v1/sessions", "GET /healthz", "OPTIONS /healthz"])
def test_a_body_of_ambiguous_length_is_refused_and_nothing_after_it_is_read(
    gateway, request_line, version, lengths
):
    """A proxy that used the other length would take the second request for a request of another
    user."""
    head = f"{request_line} HTTP/{version}\r\nhost: 127.0.0.1\r\nconnection: keep-alive\r\n"
    smuggled = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as made:
        made.sendall(head.encode() + lengths + b"\r\n\r\n0\r\n\r\n" + smuggled)
        with made.makefile("rb") as file:
            data = file.read()  # until the gateway closes
    assert data.startswith(b"HTTP/1.1 400 ") and data.count(b"HTTP/1.1 ") == 1, data
    body = json.loads(data.partition(b"\r\n\r\n")[2])
    assert body["code"] == "invalid" and "not both" in body["detail"]


def test_the_bodies_of_one_user_are_bounded_in_total(gateway):
    """No body reaches a route, because all of them are still incomplete."""
    token = f"authorization: Bearer {token_for('bob', SECRET)}"
    length = f"content-length: {BODY_BYTES_MAX}"
    connections = []
    try:
        while len(connections) * BODY_BYTES_MAX <= PER_USER_MAX:
            connections.append(begin(gateway, "/v1/sessions", token, length))
            connections[-1].sendall(b" " * (BODY_BYTES_MAX - 100))
        status, _, body = response_to(connections.pop())
        assert (status, body["code"]) == (429, "too_many_bodies")
        with gateway.http("ana") as http:
            assert http.post("/v1/sessions", json={"session_id": "a"}).status_code == 201
    finally:
        for connection in connections:
            connection.close()


def test_the_bytes_of_a_request_are_released_when_it_ends():
    bodies = Bodies(all_max=15, per_user=5)

    async def five():
        return {"type": "http.request", "body": b"12345", "more_body": False}

    async def requests():
        for _ in range(3):
            with ExitStack() as requests_in_progress:
                for user in ("ana", "bob", "eve"):
                    receive = requests_in_progress.enter_context(bodies.count(user, five))
                    await receive()
                    with pytest.raises(Retry):
                        await receive()
                with bodies.count("joe", five) as receive, pytest.raises(Retry):
                    await receive()

    asyncio.run(requests())
    assert not bodies.bytes
