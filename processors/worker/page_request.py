"""Parses one HTTP request to `pages.py` and sends the response. `pages.py` imports this file at the
first request."""

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from .page_access import Answer, Caller, text


class PageRequest(BaseHTTPRequestHandler):
    """The request handler, which responds only to GET. `page` gets a path without a trailing
    slash."""

    server_version, sys_version = "foldlog", ""

    def __init__(self, page: Callable[[str, Caller], Answer], *args: Any) -> None:
        self._page = page
        super().__init__(*args)  # handles the request

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        caller = Caller(
            str(self.client_address[0]),
            self.headers.get("Host", ""),
            self.headers.get("Authorization", ""),
            query,
        )
        self._say(self._page(unquote(path).rstrip("/"), caller))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send as plain text an error that http.server detected.
        The library itself would send HTML."""
        self.close_connection = True
        self._say(text(f"{code}: {HTTPStatus(code).phrase}", code))

    def _say(self, found: Answer) -> None:
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in found.headers:
            self.send_header(name, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a probe sends a request every few seconds."""
