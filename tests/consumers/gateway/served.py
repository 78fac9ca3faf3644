"""A gateway that really serves, on a port of its own, over any log; for tests of what it shows."""

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from foldlog.consumers.client import Client
from foldlog.consumers.gateway.access import Access
from foldlog.consumers.gateway.app import Gateway, make_app
from foldlog.consumers.gateway.serve import Limits, listen, server
from foldlog.log import Log, Settings
from foldlog.log.errors import Retry
from foldlog.schemas.topics import SESSION_EVENTS

READY_S = 20
READ_ON_S = 10  # what a gateway needs to read on, on a machine that is busy elsewhere


@contextmanager
def disk_full():
    """No file of this process grows any more: the system refuses, as where a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Served:
    """A running gateway, where it is, and the thread of its loop."""

    def __init__(self, gateway: Gateway, port: int, serving, thread, log: Log, said) -> None:
        self.gateway, self.port, self.thread, self._log = gateway, port, thread, log
        self.said: list[str] = said
        self.serving = serving
        self.url = f"http://127.0.0.1:{port}"

    def http(self, token: str | None = None, **more) -> httpx.Client:
        """A client of it, for whoever has this token. What it gets is as of all that the log has
        when it asks: tests write to the log beside the gateway, which reads it in its own time."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        hooks = {"request": [self._read_on]}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=20, event_hooks=hooks, **more
        )

    def _read_on(self, request: httpx.Request) -> None:
        if request.method != "GET":
            return
        try:
            ends = self._log.end_offsets(SESSION_EVENTS)
        except Retry:
            return  # nobody can read on: the log is away
        places, until = self.gateway.tail.places, time.monotonic() + READ_ON_S
        while any(places().get(p, end) < end for p, end in ends.items()):
            if time.monotonic() > until:
                return  # it is held up, and the test asks what it says then
            time.sleep(0.002)


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
    """A gateway over a log, until the block ends. `directory`: where its store lies. `port`: that
    of one that ended, to take its place."""
    client = Client(settings, log, channel="gateway")
    said: list[str] = []
    gateway = Gateway(client, Access(settings.user, secret, origins), directory, said.append)
    listening = listen("127.0.0.1", port)
    serving = server(make_app(gateway), limits, gateway.hub.close)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    running = Served(gateway, listening.getsockname()[1], serving, thread, log, said)
    try:
        with running.http() as http:
            http.get("/openapi.json").raise_for_status()
        yield running
    finally:
        serving.should_exit = True
        thread.join(READY_S)
        listening.close()
        client.close()
        assert not thread.is_alive(), "the gateway did not end"
