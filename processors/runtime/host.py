"""One worker process: Faust hosts it (life-cycle, signals, web views), a thread of it polls.

`run` assembles the parts and blocks until the process is told to end. Only this file imports faust.
"""

import asyncio
import functools
import logging
import os
import socket
import threading
from collections.abc import Iterable
from typing import Any

from ...log import Settings
from ...log.errors import Fenced, LogCut
from ...schemas.topics import DEAD_LETTERS
from ..agent import Agent
from . import metrics, rendezvous
from .assemble import ROLES, Parts, say
from .quiet import quiet
from .supervise import MISUSE

LINGER_S = 5.0  # for a thread of Faust's, when the worker has ended
JOIN_S = 10.0  # how long the poll thread may take to finish its round


def run(
    settings: Settings,
    agents: Iterable[Agent],
    roles: tuple[str, ...] = ROLES,
    worker_id: str | None = None,
    *,
    watch: bool = False,
    web: tuple[str, int] = ("127.0.0.1", 0),
) -> int:
    """Run a worker until SIGTERM or SIGINT; the exit code: 0 after a clean end, 2 never again.

    web: the address of its page for machines (status, metrics); port 0 takes a free one.
    Raises StateDirTaken, TopicMissing, TopicMismatch, LogUnreachable before it starts.
    """
    parts = Parts(settings, agents, roles, worker_id, watch=watch)
    import faust

    quiet()
    if "models" in roles:
        parts.effects.warm()
    app = _app(faust, settings, parts, web)
    worker = faust.Worker(app, override_logging=False, quiet=True, redirect_stdouts=False)
    worker.spinner = None
    code = 0
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        parts.close()
    code = exit_code(parts.fatal) or code
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process although a thread of Faust's does not: what is ours is closed by now."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(LINGER_S)
    if any(thread.is_alive() for thread in others):
        say("a thread of Faust has not ended; everything of ours has, so the process does as well")
        logging.shutdown()
        os._exit(code)


def exit_code(fatal: list[BaseException]) -> int:
    """What the process says of what ended its poll thread; 0 if nothing did.

    2 where the next one would only do harm, or fail as this one.
    """
    if any(isinstance(error, Fenced | LogCut) for error in fatal):
        return MISUSE
    return 1 if fatal else 0


def _app(faust, settings: Settings, parts: Parts, web: tuple[str, int]):
    host, port = web[0], web[1] or _free_port(web[0])
    state = parts.state

    class Interpreter(faust.Service):
        """The poll loop, in a thread: Faust's own loop is never kept waiting."""

        _thread: threading.Thread | None = None

        async def on_start(self) -> None:
            self._thread = threading.Thread(target=self._run, name="poll", daemon=True)
            self._thread.start()

        async def on_stop(self) -> None:
            parts.loop.stop()
            if self._thread is not None:
                await asyncio.to_thread(self._thread.join, JOIN_S)

        def _run(self) -> None:
            try:
                parts.loop.run()
            except BaseException as error:
                say(f"the worker ends: {type(error).__name__}: {error}")
                parts.fatal.append(error)
                self.loop.call_soon_threadsafe(asyncio.ensure_future, self.crash(error))

    class App(faust.App):
        def on_init_dependencies(self):
            # First: a killed worker is back as soon as it can poll, whatever Faust still does.
            return [self.interpreter, *super().on_init_dependencies()]

        @functools.cached_property
        def interpreter(self) -> Interpreter:
            return Interpreter(loop=self.loop, beacon=self.beacon)

    app = App(
        # A group of its own for each process. Who takes the place of a killed member is given what
        # that one read, the changelog of the table with it, before it asks for it, and Faust's
        # client dies of that; a new member of the same group would wait 60 s for the old one's end.
        f"{settings.topic_prefix}foldlog-{parts.identity.owner.replace('/', '-')}",
        **_options(settings, parts, host, port),
    )

    letters = app.topic(
        settings.topic(DEAD_LETTERS), key_type=bytes, value_type=bytes, value_serializer="raw"
    )
    seen = {"dead_letters": 0}

    @app.agent(letters)
    async def notice_dead_letters(stream):
        async for _ in stream:
            seen["dead_letters"] += 1

    rendezvous.attach(app, settings)

    _pages(app, parts, seen)
    asked = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    state.note({"pid": os.getpid(), "web": f"http://{asked}:{port}"})
    say(f"worker {parts.identity.owner} runs {', '.join(parts.worker.roles)} on port {port}")
    return app


def _pages(app, parts: Parts, seen: dict[str, int]) -> None:
    """What the worker serves for those who look after it: numbers, ids, and no content."""

    @app.page("/status{_:/?}")
    async def status(self, request, _):
        return self.json({**parts.worker.status(), **seen, "mcp": parts.outside.status()})

    @app.page("/metrics{_:/?}")
    async def numbers(self, request, _):
        return self.bytes(
            await asyncio.to_thread(metrics.worker_metrics, parts),
            content_type=metrics.CONTENT_TYPE,
        )

    @app.page("/healthz{_:/?}")
    async def alive(self, request, _):
        return self.text("ends\n" if parts.fatal else "ok\n", status=503 if parts.fatal else 200)

    @app.page("/readyz{_:/?}")
    async def ready(self, request, _):
        why = await asyncio.to_thread(metrics.why_not_ready, parts)
        return self.text(f"{why or 'ready'}\n", status=503 if why else 200)


def _options(settings: Settings, parts: Parts, host: str, port: int) -> dict[str, Any]:
    """What Faust is told; the topics it reads are made by us."""
    return dict(
        broker=f"kafka://{settings.bootstrap_servers}",
        store="memory://",
        datadir=str(parts.state.path / "faust"),
        web_port=port,
        web_bind=host,
        autodiscover=False,
        topic_partitions=settings.partitions,
        topic_replication_factor=1,
        topic_allow_declare=False,
        topic_disable_leader=True,
        worker_redirect_stdouts=False,
    )


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
