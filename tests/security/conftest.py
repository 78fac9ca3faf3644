"""A secured Kafka node for the tests of a file. An idle node costs CPU, so it ends with them."""

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from foldlog.tests.kit.waiting import joined
from foldlog.tests.security.secured import Secured, password_of, secured_broker


@pytest.fixture(scope="module")
def secured(broker_cache_dir: Path) -> Iterator[Secured]:
    """A node with a listener for every login mechanism, and with its authorizer switched on."""
    with secured_broker(broker_cache_dir) as running:
        yield running


class _TokenEndpoint(BaseHTTPRequestHandler):
    """An identity provider, which issues a token to clients with the right secret.

    The token is an unsecured JWS, which the node accepts without further jars.
    """

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        client, _, secret = login.partition(":")
        if secret != password_of(client):
            self.send_error(401)
            return
        now = int(time.time())
        claims = {"sub": client, "iat": now, "exp": now + 3600, "scope": "kafka"}
        parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                 for part in ({"alg": "none"}, claims)]
        body = json.dumps({"access_token": ".".join([*parts, ""]), "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def token_endpoint() -> Iterator[str]:
    """The address of a token endpoint on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _TokenEndpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        joined(thread)
        server.server_close()
