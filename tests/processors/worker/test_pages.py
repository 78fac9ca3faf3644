"""The monitoring pages: who may read them, and which limits apply to hostile clients."""

import http.client
import socket

import pytest

from foldlog.log.errors import SettingsError
from foldlog.processors.worker import pages as pages_module
from foldlog.processors.worker.page_access import Caller, refusal, text
from foldlog.processors.worker.pages import Pages

TOKEN = "a-token-of-the-test"


@pytest.fixture
def pages():
    server = Pages(("127.0.0.1", 0), None, {"/status": text("numbers")}.get)
    yield server
    server.close()


def get(pages: Pages, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*pages.server_address, timeout=90)
    try:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_trailing_slash_and_a_query_are_ignored(pages):
    assert get(pages, "/status") == get(pages, "/status/?x=1") == (200, "numbers\n")
    assert get(pages, "/users/ana")[0] == 404, "no worker lists sessions"


def test_a_foreign_name_that_resolves_to_loopback_reads_nothing(pages):
    """In an attack by DNS rebinding, a page of evil.example sends requests to a worker on 127.0.0.1
    under the name evil.example."""
    for name in ("evil.example", f"evil.example:{pages.server_address[1]}", "127.0.0.1.evil", ""):
        assert get(pages, "/status", name)[0] == 403, name
    for name in ("localhost:1", "127.0.0.1", "[::1]:80"):
        assert get(pages, "/status", name)[0] == 200, name


@pytest.mark.parametrize("begin", ["POST /status HTTP/1.1", "GET / HTTP/9.9", "<b>\r\n"])
def test_invalid_requests_get_a_plain_text_error(pages, begin):
    """The defect: the errors of the library were HTML without `nosniff`, and repeated the request's
    content."""
    with socket.create_connection(pages.server_address, 20) as connection:
        connection.sendall(f"{begin}\r\nHost: evil.example\r\n\r\n".encode())
        with connection.makefile("rb") as file:
            answer = file.read().decode()
    assert "<" not in answer and begin.split()[0] not in answer
    head, _, body = answer.rpartition("\r\n\r\n")
    assert body.split(":")[0] in ("400", "501", "505")
    assert not head or "X-Content-Type-Options: nosniff" in head


@pytest.mark.parametrize(
    ("path", "peer", "host", "authorization", "status"),
    [
        ("/status", "10.0.0.7", "worker-1:9464", "", 401),
        ("/status", "10.0.0.7", "127.0.0.1", "", 401),
        ("/status", "10.0.0.7", "worker-1:9464", "Bearer wrong", 401),
        ("/status", "10.0.0.7", "worker-1:9464", f"Bearer {TOKEN}", None),
        ("/healthz", "10.0.0.7", "worker-1:9464", "", None),
        ("/readyz", "10.0.0.7", "10.0.0.9:9464", "", None),
        ("/readyz", "::ffff:127.0.0.1", "evil.example", "", 403),
        ("/status", "::ffff:127.0.0.1", "localhost:9464", "", None),
        ("/status", "::1", "[::1]:9464", "", None),
    ],
)
def test_other_machines_need_the_token_and_probes_do_not(path, peer, host, authorization, status):
    found = refusal(path, Caller(peer, host, authorization), TOKEN)
    assert (found and found.status) == status
    if status is None and authorization:
        assert refusal(path, Caller(peer, host, authorization), None) is not None, "no token is set"


def test_a_public_address_is_not_bound_without_a_token():
    with pytest.raises(SettingsError, match="FOLDLOG_WEB_TOKEN"):
        Pages(("0.0.0.0", 0), None, {}.get)
    Pages(("0.0.0.0", 0), TOKEN, {}.get).close()


def test_an_address_in_use_is_a_settings_error(pages):
    with pytest.raises(SettingsError, match="cannot be bound: Address already in use"):
        Pages(pages.server_address, None, {}.get)


def test_half_sent_requests_hold_connections_for_a_bounded_time(
    pages, monkeypatch
):
    monkeypatch.setattr(pages_module, "REQUEST_S", 0.2)
    connections = [socket.create_connection(pages.server_address) for _ in range(40)]
    try:
        for each in connections:
            each.sendall(b"GET /status HTTP/1.1\r\nHost: 127.")
            each.settimeout(20)
        assert {each.recv(1) for each in connections} == {b""}, "each is closed unanswered"
    except ConnectionError:
        pass  # closed while the request was being sent
    finally:
        for each in connections:
            each.close()
    assert get(pages, "/status")[0] == 200


def test_one_machine_cannot_block_the_probes_of_another(pages):
    """The defect: 32 incomplete requests of one client took every connection, and the next probe
    was rejected."""
    connections = [socket.create_connection(pages.server_address, 20) for _ in range(40)]
    try:
        assert connections[-1].recv(1) == b"", "this machine has too many connections"
        other = http.client.HTTPConnection(
            *pages.server_address, timeout=20, source_address=("127.0.0.2", 0)
        )
        other.request("GET", "/status")
        assert other.getresponse().status == 200
        other.close()
    finally:
        for each in connections:
            each.close()
