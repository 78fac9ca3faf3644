"""One worker process: a worker thread, a main thread that waits for signals, and the HTTP pages.

`run` assembles the parts and blocks until the process is asked to end.
"""

import errno
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from ...log import Settings
from ...log.errors import Fenced, LogCut, LogUnreachable, is_out_of_space
from ...log.made import LogGrown
from ..agent import Agent
from . import metrics
from .assemble import ROLES, Parts, say
from .effects_host import CLIENT_THREAD
from .page_access import JSON, Answer, text
from .pages import Pages
from .same_agents import AgentsDiffer
from .supervise import DISK_FULL, LOG_UNREACHABLE, MISUSE
from .worker_thread import WorkerThread

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LINGER_S = 5.0  # how long to wait for a thread that outlives the worker
END_S = 13.0  # limit of a clean end: a supervisor kills after 15 s
START_END_S = 1.0  # the same for a worker that has not begun any work, and opens its stores


class EndSignal:
    """Ends a process: at a signal, or when one of its threads asks for it.

    It is a pipe, to which the interpreter itself writes at a signal (`set_wakeup_fd`). A handler in
    Python would not be enough: it runs only once the main thread wakes, and the kernel may deliver
    the signal to another thread.
    """

    def __init__(self) -> None:
        self._ended, self._end = os.pipe()
        os.set_blocking(self._end, False)

    def request(self) -> None:
        """Request the end. Any thread may call this, any number of times."""
        with suppress(OSError):  # the pipe is already full of requests, or closed
            os.write(self._end, b"\0")

    def wait(self) -> bool:
        """Block until the end is requested. Returns whether a signal requested it."""
        while True:
            received = set(os.read(self._ended, 64))
            if received & set(END_SIGNALS):
                return True
            if 0 in received:
                return False

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._ended)
        os.close(self._end)

    @contextmanager
    def at_signals(self) -> Iterator["EndSignal"]:
        """In the block, SIGTERM and SIGINT request the end. The old handlers are restored after the
        block.
        """
        before = {number: signal.signal(number, lambda *_: None) for number in END_SIGNALS}
        woken = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        try:
            yield self
        finally:
            signal.set_wakeup_fd(woken)
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
    rolling: bool = False,
    web: tuple[str, int] = ("127.0.0.1", 0),
) -> int:
    """Run a worker until SIGTERM or SIGINT. Returns the exit code, see `exit_code`.

    web: the address of the HTTP pages (status, metrics); port 0 means a free port.
    rolling: start even if live workers serve other agents.

    Raises SettingsError, AgentsDiffer, StateDirTaken, TopicMissing, TopicMismatch, LogUnreachable
    before it starts.
    """
    with EndSignal().at_signals() as ending:
        host = _Host(settings, web, ending)
        code = host.run(
            lambda: Parts(settings, agents, roles, worker_id, watch=watch, rolling=rolling)
        )
    _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process, even if one of its threads does not end. Called after all resources were
    closed."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(LINGER_S)
    # A thread that still imports the model SDK would crash in the interpreter's own shutdown.
    others += [thread for thread in threading.enumerate() if thread.name == CLIENT_THREAD]
    alive = [thread.name for thread in others if thread.is_alive()]
    if alive:
        say(f"all resources are closed; exiting without waiting for the threads {', '.join(alive)}")
        _exit(code)


def _limit_end(parts: Parts, has_worked: bool) -> None:
    """Start a timer that kills the process if it does not end in time."""

    def end() -> None:
        if not has_worked:
            say("asked to end during its start: nothing was begun")
            with suppress(OSError):  # it is closed already
                parts.state.close()
            _exit(0)
        say(
            f"the worker did not end cleanly within {END_S:g} s; it exits as if it were killed, "
            "and the next start recovers the effects that were running"
        )
        _exit(1)

    timer = threading.Timer(END_S if has_worked else START_END_S, end)
    timer.daemon = True
    timer.start()


def _exit(code: int) -> NoReturn:
    """End the process now. Its child processes end and its locks are released."""
    logging.shutdown()
    os._exit(code)


def exit_code(fatal: list[BaseException]) -> int:
    """The exit code for the errors that ended the worker thread; 0 if there were none.

    The code is 2 if a restarted worker would do harm or fail in the same way. It is 3 if the log
    cannot be used now but may be usable later, for example after an access right was revoked; 4 if
    the disk is full.
    """
    if any(isinstance(error, Fenced | LogCut | LogGrown | AgentsDiffer) for error in fatal):
        return MISUSE
    if any(isinstance(error, OSError) and error.errno == errno.EIO for error in fatal):
        return MISUSE
    if any(map(is_out_of_space, fatal)):
        return DISK_FULL
    if any(isinstance(error, LogUnreachable) for error in fatal):
        return LOG_UNREACHABLE
    return 1 if fatal else 0


class _Host:
    """The worker thread and the pages of one worker.

    The main thread only waits, so it reacts to a signal at any time, even while the worker thread
    waits for a broker that does not answer.
    """

    def __init__(self, settings: Settings, web: tuple[str, int], ending: EndSignal) -> None:
        self._thread: WorkerThread | None = None
        self._end_signal = ending
        self._pages = Pages(web, settings.web_token, self._answer)

    def run(self, assemble: Callable[[], Parts]) -> int:
        """Assemble the parts and poll in a thread until the process must end.
        Returns the exit code.

        Raises what `assemble` raises.
        """
        thread = self._thread = WorkerThread(assemble, self._begin, self._end_signal.request)
        thread.start()
        by_signal = thread.is_stopping = self._end_signal.wait()
        parts = thread.parts
        if thread.failed is not None:
            self._pages.close()
            if is_out_of_space(thread.failed):
                raise OSError(errno.ENOSPC, f"the disk is full: {thread.failed}")
            raise thread.failed
        if parts is None:
            say("asked to end before it took any partition: nothing was started")
            _exit(0)
        _limit_end(parts, parts.has_worked() or not by_signal)
        thread.stop()
        parts.close()
        self._pages.close()
        return 0 if by_signal else exit_code(parts.fatal)

    def _begin(self, parts: Parts) -> None:
        parts.state.note({"pid": os.getpid(), "web": self._pages.url})
        roles, port = ", ".join(parts.worker.roles), self._pages.server_address[1]
        say(f"worker {parts.identity.owner} runs {roles} on port {port}")

    def _answer(self, path: str) -> Answer | None:
        """The monitoring page of a path. It has numbers and ids, but no content of sessions."""
        parts = None if self._thread is None else self._thread.parts
        match path:
            case "/healthz":
                ends = parts is not None and bool(parts.fatal)
                return text("ending", 503) if ends else text("ok")
            case "/status" | "/metrics" | "/readyz" if parts is None:
                return text("not ready: starting", 503)
            case _ if parts is None:
                return None
            case "/status":
                mcp = parts.outside.status()
                shown = {
                    **metrics.status_of(parts.worker),
                    "mcp": {name: str(each) for name, each in mcp.items()},
                    "mcp_states": {name: each.state for name, each in mcp.items()},
                }
                shown["dead_letters"] = parts.meter.total("foldlog_dead_letters")
                shown["blobs"] = {
                    "away": parts.blobs.away, "away_s": round(parts.blobs.away_s, 1),
                    "waiting": parts.worker.waits_for_blobs(),
                }
                shown["running"] = {role: parts.effects.running(role) for role in ROLES[1:]}
                return Answer(json.dumps(shown).encode(), content_type=JSON)
            case "/metrics":
                return Answer(metrics.worker_metrics(parts), content_type=metrics.CONTENT_TYPE)
            case "/readyz":
                why = metrics.why_not_ready(parts)
                return text(why or "ready", 503 if why else 200)
        return None
