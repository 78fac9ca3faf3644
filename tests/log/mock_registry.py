"""A schema registry on loopback that serves the three kinds of request that the client sends."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from foldlog.tests.kit.waiting import joined


class MockRegistry:
    """A registry that records its requests.

    answer: if set, the status and the body for every request. users: the accepted users and their
    passwords (None: no login). Schemas are returned with sorted keys, as a registry may do.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.schemas: dict[int, dict] = {}
        self.subjects: dict[str, list[int]] = {}
        self.users: dict[str, str] | None = None
        self.answer: tuple[int, str] | None = None
        self.compatible = True
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, schema: dict | str, **more: object) -> int:
        """The id of a schema. A new schema gets a new id."""
        text = schema if isinstance(schema, str) else json.dumps(schema, sort_keys=True)
        stored = {"schema": text, **more}
        for number, known in self.schemas.items():
            if known == stored:
                return number
        self.schemas[100_000 + len(self.schemas)] = stored
        return 100_000 + len(self.schemas) - 1

    def reply(self, method: str, path: str, body: bytes, auth: str | None) -> tuple[int, str]:
        self.requests.append(f"{method} {path}")
        if self.answer is not None:
            return self.answer
        if self.users is not None:
            pairs = [f"{user}:{password}".encode() for user, password in self.users.items()]
            if auth not in {f"Basic {base64.b64encode(pair).decode()}" for pair in pairs}:
                return 401, json.dumps({"error_code": 40101, "message": f"no access: {auth}"})
        match [method, *path.strip("/").split("/")]:
            case ["GET", "schemas", "types"]:
                return 200, '["AVRO"]'
            case ["GET", "schemas", "ids", number]:
                stored = self.schemas.get(int(number))
                if stored is None:
                    return 404, '{"error_code": 40403, "message": "Schema not found"}'
                return 200, json.dumps(stored)
            case ["POST", "subjects", subject, "versions"]:
                if not self.compatible:
                    return 409, '{"error_code": 409, "message": "incompatible"}'
                found = self.add(json.loads(json.loads(body)["schema"]))
                versions = self.subjects.setdefault(unquote(subject), [])
                versions += [found] if found not in versions else []
                return 200, json.dumps({"id": found})
        return 404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'

    @contextmanager
    def serving(self) -> Iterator["MockRegistry"]:
        """Serve until the block ends. A later call serves on the same port."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                auth = self.headers.get("Authorization")
                status, text = registry.reply(self.command, self.path, body, auth)
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                """Write no access log into the test's output."""

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            joined(thread)
