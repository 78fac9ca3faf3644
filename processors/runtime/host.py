"""One worker process: a thread polls, the main thread waits for the end, and pages answer machines.

`run` assembles the parts and blocks until the process is told to end.
"""

import json
import logging
import os
import select
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ...log import Settings
from ...log.errors import Fenced, LogCut
from ..agent import Agent
from . import metrics
from .assemble import ROLES, Parts, say
from .pages import JSON, Answer, Pages, text
from .supervise import MISUSE

LINGER_S = 5.0  # for a thread that has not ended when the worker has
JOIN_S = 10.0  # how long the poll thread may take to finish its round


class Ending:
    """When a process has to end: a signal came, or a thread of it says so.

    A pipe, because a signal handler may not take a lock that the interrupted code may hold.
    """

    def __init__(self) -> None:
        self._ended, self._end = os.pipe()
        os.set_blocking(self._end, False)

    def __call__(self, *_: object) -> None:
        """End it. Callable as a signal handler and from any thread, any number of times."""
        with suppress(OSError):  # it was told often enough, or has ended
            os.write(self._end, b"e")

    def wait(self) -> None:
        """Until it has to end."""
        select.select([self._ended], [], [])

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._ended)
        os.close(self._end)

    @contextmanager
    def at_signals(self) -> Iterator["Ending"]:
        """SIGTERM and SIGINT end it for the block; the handlers of before are back after it."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()


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
    with Ending().at_signals() as ending:
        host = _Host(settings, web)
        try:
            parts = host.parts = Parts(settings, agents, roles, worker_id, watch=watch)
            try:
                if "models" in roles:
                    parts.effects.warm()
                host.work(parts, ending)
            finally:
                parts.close()
        finally:
            host.pages.close()
    code = exit_code(parts.fatal)
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process although a thread of it does not: everything of ours is closed by now."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(LINGER_S)
    alive = [thread.name for thread in others if thread.is_alive()]
    if alive:
        say(f"everything is closed; the process ends without waiting for {', '.join(alive)}")
        logging.shutdown()
        os._exit(code)


def exit_code(fatal: list[BaseException]) -> int:
    """What the process says of what ended its poll thread; 0 if nothing did.

    2 where the next one would only do harm, or fail as this one.
    """
    if any(isinstance(error, Fenced | LogCut) for error in fatal):
        return MISUSE
    return 1 if fatal else 0


class _Host:
    """The poll thread and the pages of one worker."""

    def __init__(self, settings: Settings, web: tuple[str, int]) -> None:
        self.parts: Parts | None = None
        self.pages = Pages(web, settings.web_token, self._answer)

    def work(self, parts: Parts, ending: Ending) -> None:
        """Poll in a thread until the process has to end."""
        parts.state.note({"pid": os.getpid(), "web": self.pages.url})
        roles = ", ".join(parts.worker.roles)
        say(f"worker {parts.identity.owner} runs {roles} on port {self.pages.server_address[1]}")
        thread = threading.Thread(target=self._poll, args=(parts, ending), name="poll", daemon=True)
        thread.start()
        ending.wait()
        parts.loop.stop()
        thread.join(JOIN_S)

    def _poll(self, parts: Parts, ending: Ending) -> None:
        try:
            parts.loop.run()
        except BaseException as error:
            say(f"the worker ends: {type(error).__name__}: {error}")
            parts.fatal.append(error)
            ending()

    def _answer(self, path: str) -> Answer | None:
        """What the worker serves for those who look after it: numbers, ids, and no content."""
        parts = self.parts
        match path:
            case "/healthz":
                ends = parts is not None and bool(parts.fatal)
                return text("ends", 503) if ends else text("ok")
            case "/status" | "/metrics" | "/readyz" if parts is None:
                return text("not yet: it starts", 503)
            case "/status":
                shown = {**parts.worker.status(), "mcp": parts.outside.status()}
                shown["dead_letters"] = parts.meter.total("foldlog_dead_letters")
                return Answer(json.dumps(shown).encode(), content_type=JSON)
            case "/metrics":
                return Answer(metrics.worker_metrics(parts), content_type=metrics.CONTENT_TYPE)
            case "/readyz":
                why = metrics.why_not_ready(parts)
                return text(why or "ready", 503 if why else 200)
        return None
