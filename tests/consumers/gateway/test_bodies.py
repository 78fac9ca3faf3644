"""C: bodies take no memory from others: a stranger's are not read, a user's are bounded.

Real sockets; a body is left unfinished, so that an answer can only come of what was sent before.
"""

import asyncio
import json
import socket
from contextlib import ExitStack

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.app import BODY_BYTES_MAX
from foldlog.consumers.gateway.bodies import PER_USER_MAX, Bodies
from foldlog.log.errors import Retry
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import memory_log, settings_in

SECRET = "s" * 40
PATIENCE_S = 20


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    place = tmp_path_factory.mktemp("bodies")
    log = memory_log(threaded=True)
    with served(log, settings_in(place), place / "gateway", secret=SECRET) as it:
        yield it


def begun(running, path, *headers):
    """A request whose body does not come whole."""
    made = socket.create_connection(("127.0.0.1", running.port), PATIENCE_S)
    head = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers)
    made.sendall("\r\n".join((*head, "", "")).encode() + b"{" * 8)
    return made


def answer(connection):
    """Status, headers and body of the first answer."""
    with connection, connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        lines = iter(lambda: file.readline().decode().strip(), "")
        headers = dict(line.split(": ", 1) for line in lines)
        return status, headers, json.loads(file.read(int(headers["content-length"])))


@pytest.mark.parametrize("size", ["content-length: 1000", "transfer-encoding: chunked"])
@pytest.mark.parametrize("path", ["/v1/sessions", "/api/chat", "/agui", "/v1/stream/s"])
@pytest.mark.parametrize("token", ["", "authorization: Bearer no.such.token"])
def test_nothing_of_a_strangers_body_is_read(running, path, size, token):
    status, headers, body = answer(begun(running, path, size, *filter(None, [token])))
    assert (status, body["code"]) == (401, "unauthenticated")
    assert headers["www-authenticate"] == "Bearer"
    assert headers["content-security-policy"]


@pytest.mark.parametrize(("version", "lengths"), [
    ("1.1", b"content-length: 4\r\ntransfer-encoding: chunked"),
    ("1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 39"),
    ("1.0", b"transfer-encoding: chunked"),
])
@pytest.mark.parametrize("request_line", ["POST /v1/sessions", "GET /healthz", "OPTIONS /healthz"])
def test_a_body_that_may_end_in_two_places_is_refused_and_nothing_after_it_is_read(
    running, request_line, version, lengths
):
    """A proxy that believed the other length would take the second request for another user's."""
    head = f"{request_line} HTTP/{version}\r\nhost: 127.0.0.1\r\nconnection: keep-alive\r\n"
    smuggled = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), PATIENCE_S) as made:
        made.sendall(head.encode() + lengths + b"\r\n\r\n0\r\n\r\n" + smuggled)
        with made.makefile("rb") as file:
            answers = file.read()  # until the gateway closes
    assert answers.startswith(b"HTTP/1.1 400 ") and answers.count(b"HTTP/1.1 ") == 1, answers
    told = json.loads(answers.partition(b"\r\n\r\n")[2])
    assert told["code"] == "invalid" and "not both" in told["detail"]


def test_bodies_of_one_user_are_bounded_together(running):
    """The fold of what came is not asked: all of them are still being sent."""
    token = f"authorization: Bearer {token_for('bob', SECRET)}"
    length = f"content-length: {BODY_BYTES_MAX}"
    held = []
    try:
        while len(held) * BODY_BYTES_MAX <= PER_USER_MAX:
            held.append(begun(running, "/v1/sessions", token, length))
            held[-1].sendall(b" " * (BODY_BYTES_MAX - 100))
        status, _, body = answer(held.pop())
        assert (status, body["code"]) == (429, "too_many_bodies")
        ana = token_for("ana", SECRET)
        with running.http(ana) as http:
            assert http.post("/v1/sessions", json={"session_id": "a"}).status_code == 201
    finally:
        for connection in held:
            connection.close()


def test_what_a_request_held_is_free_when_it_ends():
    bodies = Bodies(all_max=15, per_user=5)

    async def five():
        return {"type": "http.request", "body": b"12345", "more_body": False}

    async def requests():
        for _ in range(3):
            with ExitStack() as open_ones:
                for user in ("ana", "bob", "eve"):
                    receive = open_ones.enter_context(bodies.count(user, five))
                    await receive()
                    with pytest.raises(Retry):
                        await receive()
                with bodies.count("joe", five) as receive, pytest.raises(Retry):
                    await receive()

    asyncio.run(requests())
    assert not bodies.bytes
