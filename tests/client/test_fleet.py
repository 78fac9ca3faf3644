"""The client of the fleet, against a server that answers what a member may answer."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from foldlog.client.fleet import FleetClient, FleetUnavailable, find_fleet
from foldlog.tests.kit.played import settings_in

Respond = Callable[[str, dict[str, str]], tuple[int, bytes]]


@pytest.fixture
def served() -> Iterator[Callable[[Respond], str]]:
    """Starts a server, and returns its URL."""
    servers: list[ThreadingHTTPServer] = []

    def serve(respond: Respond) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = respond(self.path, dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_request_has_the_path_the_query_and_the_token(served):
    seen: list[tuple[str, str | None]] = []

    def respond(path, headers):
        seen.append((path, headers.get("Authorization")))
        return 200, b"{}"

    client = FleetClient(served(respond) + "/", "secret-token-123456")
    client.sessions("ana", limit=5, after="9/s1")
    client.sessions()
    client.inbox("a b")
    client.hours("agent", "shop", first=1, last=2)
    client.hours()
    client.agents()
    bearer = "Bearer secret-token-123456"
    assert seen == [
        ("/fleet/users/ana/sessions?limit=5&after=9%2Fs1", bearer),
        ("/fleet/sessions?limit=100", bearer),
        ("/fleet/users/a%20b/inbox?", bearer),
        ("/fleet/hours?scope=agent&value=shop&from=1&to=2", bearer),
        ("/fleet/hours?scope=all", bearer),
        ("/fleet/agents?", bearer),
    ]


def test_a_fleet_that_restores_is_asked_again(served):
    answers = iter([(503, b""), (503, b""), (200, b'{"total": 3}')])
    client = FleetClient(served(lambda *_: next(answers)), patience_s=60)
    assert client.sessions() == {"total": 3}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(503, b"", "restores its tables"), (401, b"", "refuses this web token"),
     (404, b"no", "answers 404"), (200, b"<html>", "does not answer"), (200, b"[]", "not a fleet")],
)  # fmt: skip
def test_what_is_no_answer_is_one_sentence(served, status, body, words):
    client = FleetClient(served(lambda *_: (status, body)))
    with pytest.raises(FleetUnavailable, match=words) as raised:
        client.sessions()
    assert "\n" not in str(raised.value)
    refusal = raised.value.__context__
    assert not isinstance(refusal, HTTPError) or refusal.closed, "its connection is closed"


def test_a_wrong_argument_is_a_value_error(served):
    client = FleetClient(served(lambda *_: (400, b"400: at most 8784 hours\n")))
    with pytest.raises(ValueError, match="at most 8784 hours"):
        client.hours(first=0)


def test_a_dead_fleet_does_not_answer(tmp_path):
    with pytest.raises(FleetUnavailable, match="does not answer"):
        FleetClient("http://127.0.0.1:9").status()


def test_the_fleet_is_found_by_its_url_or_its_directory(tmp_path):
    settings = settings_in(tmp_path)
    assert find_fleet(settings) is None
    (tmp_path / "fleet").mkdir()
    noted = tmp_path / "fleet" / "worker.json"
    noted.write_text("{")
    assert find_fleet(settings) is None
    noted.write_text(json.dumps({"pid": 1, "web": "http://127.0.0.1:7"}))
    assert find_fleet(settings).url == "http://127.0.0.1:7"
    given = settings_in(tmp_path, fleet_url="http://fleet:9465")
    assert find_fleet(given).url == "http://fleet:9465"
