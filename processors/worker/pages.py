"""The HTTP pages that a process serves for monitoring: numbers and states, never content.

`page_access.py` decides who may read the pages.
"""

import contextlib
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from ...log.errors import SettingsError
from .page_access import Answer, Caller, is_loopback, refusal, text

CONNECTIONS_MAX = 32  # for a scraper, a probe and `doctor`; further connections are closed
PER_PEER_MAX = CONNECTIONS_MAX // 2  # so that one machine cannot block the probes of another
REQUEST_S = 10.0  # maximum life of a connection, however slowly its request arrives


class Pages(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A threaded HTTP server. `answer` returns the page for a path without a trailing slash.

    Raises SettingsError if the address cannot be bound, or if it is not loopback and no token is
    set.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self,
        address: tuple[str, int],
        token: str | None,
        answer: Callable[[str], Answer | None],
    ) -> None:
        host = address[0]
        if token is None and not is_loopback(host):
            raise SettingsError(
                f"--web {host}:{address[1]} can be reached from other machines, and no web_token "
                "is set. Nothing was started. Set FOLDLOG_WEB_TOKEN, which a scraper then sends "
                "as a bearer token, or bind a loopback address."
            )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._token, self._answer = token, answer
        self._open: Counter[str] = Counter()  # connections by peer
        self._counting = threading.Lock()
        try:
            super().__init__(address, socketserver.BaseRequestHandler)
        except OSError as error:
            raise SettingsError(
                f"--web {host}:{address[1]} cannot be bound: {error.strerror or error}. Nothing "
                "was started. Name another address, or port 0 for a free one."
            ) from error
        threading.Thread(target=self.serve_forever, name="pages", daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the pages on this machine."""
        host, port = self.server_address[:2]
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))
        return f"http://[{own}]:{port}" if ":" in own else f"http://{own}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._counting:
            taken, peer = self._open, str(client_address[0])
            has_room = taken.total() < CONNECTIONS_MAX and taken[peer] < PER_PEER_MAX
            if has_room:
                taken[peer] += 1
        if not has_room:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(REQUEST_S, _cut, (request,))
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            with self._counting:
                self._open[str(client_address[0])] -= 1
                self._open += Counter()  # drops the peers whose count is 0

    def finish_request(self, request: Any, client_address: Any) -> None:
        from .page_request import PageRequest  # takes 30 ms, which must not delay a start

        PageRequest(self._page, request, client_address, self)

    def _page(self, path: str, caller: Caller) -> Answer:
        found = refusal(path, caller, self._token)
        if found is not None:
            return found
        try:
            return self.answer_to(path, caller.query) or text("404: no such page", 404)
        except Exception as error:  # only the class, because a message may contain an address
            return text(f"500: {type(error).__name__}", 500)

    def answer_to(self, path: str, query: str) -> Answer | None:
        """The page for a path. A subclass may use the query of the URL."""
        return self._answer(path)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing, because the client disconnected or its connection timed out."""

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
