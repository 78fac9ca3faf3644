"""Runs the server in a thread of this process. A server that runs as a separate process also uses
`listen`.

A server accepts connections from this machine only: there is no parameter for another address.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from .builtin import SPEAKERS, load_script
from .journal import WAIT_S, Found, Journal
from .script import Reply, Rule, Script, Speaker
from .server import BODY_BYTES_MAX, ServerState, make_app

HOST = "127.0.0.1"
# Running answers are cut off when a server stops; aiohttp waits twice this long.
SHUTDOWN_S = 0.05
_START_S = 20.0

Scriptable = Script | Reply | Rule | Speaker | str | Path | Iterable["Rule | Reply | Speaker"]


def as_script(value: Scriptable) -> Script:
    """A script from its name, a file, a list of rules, one reply, or a callable."""
    if isinstance(value, Script):
        return value
    if isinstance(value, str | Path):
        return load_script(value)
    if isinstance(value, Reply | Rule) or callable(value):
        return Script([value])
    return Script(list(value))


async def listen(state: ServerState, port: int) -> tuple[web.AppRunner, int]:
    """Serve on a loopback port (0: any free one). Returns the runner, for cleanup, and the port."""
    runner = web.AppRunner(
        make_app(state),
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
        access_log=None,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port, reuse_address=True).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, runner.addresses[0][1]


class ScriptedServer:
    """The server in a thread: `with ScriptedServer(script=...) as server: server.base_url`.

    script: a name, a file, rules, replies, one Reply or a callable.
    journal: the path of the journal, which is continued if it exists; without a path the facts stay
        in memory.
    pace_s: pause after each delta for replies that set none.
    split: whether writes may end anywhere.
    api_keys: the accepted keys, None for any.
    """

    def __init__(
        self,
        script: Scriptable = "echo",
        *,
        port: int = 0,
        journal: str | Path | None = None,
        pace_s: float = 0.0,
        split: bool = True,
        body_bytes_max: int = BODY_BYTES_MAX,
        api_keys: Iterable[str] | None = None,
    ) -> None:
        self.script = as_script(script)
        self.journal = Journal(journal)
        self.port = port
        self._state = ServerState(
            script=self.script,
            journal=self.journal,
            speakers=SPEAKERS,
            pace_s=pace_s,
            split=split,
            body_bytes_max=body_bytes_max,
            api_keys=None if api_keys is None else frozenset(api_keys),
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def base_url(self) -> str:
        """The `base_url` for an `anthropic` client."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> ScriptedServer:
        """Start serving. Raises OSError if the port is taken."""
        ready: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)),
            name="scripted-messages-api",
            daemon=True,
        )
        self._thread.start()
        self.port = ready.result(_START_S)
        self.journal.note("started", base_url=self.base_url, script=self.script.name)
        return self

    async def _serve(self, ready: concurrent.futures.Future[int]) -> None:
        try:
            runner, port = await listen(self._state, self.port)
        except BaseException as error:
            ready.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        ready.set_result(port)
        await self._stopping.wait()
        await runner.cleanup()

    def stop(self) -> None:
        """Stop serving and drop answers in flight. Does nothing if the server is not running."""
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None
        self.journal.close()

    def __enter__(self) -> ScriptedServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # for tests ----------------------------------------------------------------------------------

    def open(self, gate: str) -> None:
        """Open a gate permanently; answers that wait or will wait at it continue."""
        assert self._loop is not None, "the server is not running"
        self._loop.call_soon_threadsafe(self._state.gates.open, gate)

    def add(self, *rules: Rule | Reply | Speaker) -> None:
        """Insert rules before all others."""
        self.script.add(*rules)

    def wait_for(self, found: Callable[[Journal], Found], timeout_s: float = WAIT_S) -> Found:
        """Wait until `found(journal)` is true, as Journal.wait_for does."""
        return self.journal.wait_for(found, timeout_s)

    def wait_count(self, kind: str, count: int = 1, **equal: Any) -> list[dict[str, Any]]:
        """Wait for `count` facts of a kind whose fields have these values, and return them."""

        def enough(journal: Journal) -> list[dict[str, Any]] | None:
            entries = journal.entries(kind, **equal)
            return entries if len(entries) >= count else None

        return self.journal.wait_for(enough) or []

    def body(self, n: int) -> bytes:
        """The body of request n as received; KeyError if it is unknown or no longer in memory."""
        return self._state.bodies[n]

    def calls(self, **equal: Any) -> int:
        """The number of accepted model calls, which a provider would have billed."""
        return self.journal.count("accepted", **equal)
