"""The push channel of the crash tests, in the test's process, and its invariants for sessions at
rest."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.processors.effects.delivery import signature
from foldlog.processors.fold.projections.delivery import text_of
from foldlog.schemas import events as ev
from foldlog.tests.kit.waiting import joined

CHANNEL, SECRET_ENV, SECRET = "push:desk", "DESK_SECRET", "of the crash tests"


class Received(NamedTuple):
    """One request that the receiver answered with 204."""

    key: str
    body: bytes
    signed: bool


class PushReceiver:
    """An HTTP receiver of deliveries, which responds to every third request with 503."""

    def __init__(self, directory: Path) -> None:
        receiver = self
        self.received: list[Received] = []
        self._requests = 0
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(self.headers, body))
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_port}/"
        (directory / "foldlog.toml").write_text(
            f'[channels.desk]\nurl = "{url}"\nsecret_env = "{SECRET_ENV}"\n'
            'networks = ["127.0.0.0/8"]\n'
        )

    def take(self, headers: Any, body: bytes) -> int:
        """Record a request, and return the status of the response."""
        signed = signature(SECRET, headers["Foldlog-Timestamp"], body)
        with self._lock:
            self._requests += 1
            if self._requests % 3 == 0:
                return 503
            key = headers["Idempotency-Key"]
            self.received.append(Received(key, body, signed == headers["Foldlog-Signature"]))
            return 204

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        joined(self._thread)


def channels_have_every_answer(case: Any) -> Iterator[str]:
    """S2.4: the channel received each answer to its messages, signed, under one idempotency key, in
    order; and exactly the received answers are marked as sent."""
    watched = case.watched
    session = watched.session_id
    received = [r for r in case.stage.push_receiver.received if r.key.startswith(f"{session}/")]
    yield from (f"{r.key} is not signed" for r in received if not r.signed)
    bodies = {}
    for request in received:
        if bodies.setdefault(request.key, request.body) != request.body:
            yield f"{request.key} came with two bodies"
    pushed = case.person.scene.channel == CHANNEL
    expected = {
        f"{session}/{event.turn}/{event.step}/{CHANNEL}": text
        for event in watched.counted(ev.GenComplete)
        if pushed and (text := text_of(case.stage.blobs.resolve(event.content)))
    }
    if list(bodies) != list(expected):
        yield f"the channel has {list(bodies)}, the answers are {list(expected)}"
    for key, body in bodies.items():
        if json.loads(body)["text"] != expected.get(key):
            yield f"{key} came as {body!r}"
    sent = watched.counted(ev.GenSent)
    if len(sent) != len(expected):
        yield f"{len(sent)} answers are sent, of {len(expected)}"


WITNESSES = (channels_have_every_answer,)
