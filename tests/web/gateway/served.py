"""A real gateway on a free port, over any log, for tests of the gateway's responses."""

import resource
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from foldlog.client.log_client import LogClient
from foldlog.log import Log, Settings
from foldlog.log.errors import Retry
from foldlog.schemas.origin import TokenRole
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.web.gateway.declared import Declared
from foldlog.web.gateway.access import Access, token_for
from foldlog.web.gateway.app import Gateway, make_app
from foldlog.web.gateway.serve import Limits, listen, server

SECRET = "s" * 40
"""Signs the tokens of the gateways that need tokens."""

READY_S = allowed(60)  # a gateway takes a second of CPU to start
CATCH_UP_S = allowed(90)  # a limit for a busy machine; it takes less than a second on an idle one


@contextmanager
def disk_full():
    """Until the block ends, writes that make a file larger fail in this process, as on a full
    disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Served:
    """A running gateway: its address, its output, and the thread of its loop."""

    def __init__(self, gateway: Gateway, port: int, serving, thread, log: Log, output) -> None:
        self.gateway, self.port, self.thread, self._log = gateway, port, thread, log
        self.output: list[str] = output
        self.serving = serving
        self.url = f"http://127.0.0.1:{port}"
        self.declared: Declared | None = None

    def http(
        self, user: str | None = None, roles: Collection[TokenRole] = (), **more
    ) -> httpx.Client:
        """A client with a token of this user, or without a token. Each request waits until the
        gateway has folded the present end of the log, because tests write to the log directly."""
        token = token_for(user, SECRET, roles=roles) if user else ""
        headers = {"authorization": f"Bearer {token}"} if user else {}
        hooks = {"request": [self._catch_up], "response": [self._demand_declared]}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=READY_S, event_hooks=hooks, **more
        )

    def _demand_declared(self, response: httpx.Response) -> None:
        if self.declared is not None:
            self.declared.demand(response)

    def _catch_up(self, _request: httpx.Request) -> None:
        try:
            ends = self._log.end_offsets(SESSION_EVENTS)
        except Retry:
            return  # the log is unreachable
        places, until = self.gateway.tail.places, time.monotonic() + CATCH_UP_S
        while any(places().get(p, end) < end for p, end in ends.items()):
            if time.monotonic() > until:
                return  # the gateway is blocked, and the test checks its response
            time.sleep(0.002)


def lines_of(response: httpx.Response, within_s: float = PATIENCE_S) -> Iterator[str]:
    """The lines of a stream, which must end, or be left, within this time: heartbeats would
    continue forever."""
    end = time.monotonic() + within_s
    for line in response.iter_lines():
        assert time.monotonic() < end, f"the stream did not end within {within_s:g} s: {line}"
        yield line


@contextmanager
def served(
    log: Log,
    settings: Settings,
    directory: Path,
    *,
    secret: str | None = None,
    origins: tuple[str, ...] = (),
    port: int = 0,
    limits: Limits | None = None,
) -> Iterator[Served]:
    """Run a gateway over a log until the block ends. `directory`: where the gateway keeps its
    stores. `port`: the port of a stopped gateway to replace."""
    client = LogClient(settings, log, channel="gateway")
    output: list[str] = []
    gateway = Gateway(client, Access(settings.user, secret, origins), directory, output.append)
    listening = listen("127.0.0.1", port)
    serving = server(make_app(gateway), limits, gateway.hub.close)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    running = Served(gateway, listening.getsockname()[1], serving, thread, log, output)
    try:
        with running.http() as http:
            running.declared = Declared(http.get("/openapi.json").raise_for_status().json())
        yield running
    finally:
        serving.should_exit = True
        thread.join(READY_S)
        listening.close()
        client.close()
        assert not thread.is_alive(), "the gateway did not end"
