"""Runs a worker in a Python process: `run_worker` as the whole process, `Worker` inside another
program.

Both find the settings and the broker as the command line does. If no model is configured, both use
the scripted model and log a warning. Both remove the secrets in foldlog's settings from
`os.environ`, so that no tool can read them.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType

from ..log import FoldlogError, Refused, Settings, environment
from ..processors.agent import Agent
from ..processors.tools.tool import Tool
from ..processors.worker import host
from ..processors.worker.assemble import ROLES, Parts
from ..processors.worker.metrics import why_not_ready
from ..processors.worker.start_lock import exclusive_start
from ..processors.worker.worker_thread import WorkerThread
from .installation import connected, find_settings, model_of

READY_S = 60.0
"""How long `with Worker(...)` waits until the worker is ready, in seconds."""
POLL_S = 0.05
_log = logging.getLogger("foldlog.worker")


class WorkerFailed(FoldlogError):
    """A worker that ended by itself, or did not become ready or end in time."""


def run_worker(
    agents: Sequence[Agent],
    *,
    settings: Settings | None = None,
    roles: Sequence[str] = ROLES,
    worker_id: str | None = None,
    rolling_update: bool = False,
    web: tuple[str, int] = ("127.0.0.1", 0),
) -> int:
    """Run a worker in this process until SIGTERM or Ctrl-C, as `foldlog worker` does.

    Call it in the main thread, which handles the signals. Returns the exit code, for
    `sys.exit(run_worker(...))`: 0 after a clean end, 1 after a failure that a restart may repair, 2
    if a restart would fail in the same way, 3 if the log is unavailable, 4 if the disk is full.

    rolling_update: start even if the agents of the live workers differ from `agents`.
    web: the address of /status, /metrics, /healthz and /readyz; port 0 means any free port.

    If the worker cannot start, raises Refused, SettingsError, AgentsDiffer, StateDirTaken,
    TopicMissing or LogUnreachable. Outside of the main thread, raises RuntimeError.
    """
    agents = demand_agents(agents, "run_worker")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run_worker handles signals, so it must be called in the main thread. Nothing was "
            "started. Use `with foldlog.Worker(agents):` in other threads."
        )
    with ExitStack() as stack:
        ready = _prepared(stack, settings, roles, worker_id)
        return host.run(
            ready, agents, tuple(roles), worker_id, rolling=rolling_update, web=web
        )


def demand_agents(agents: Iterable[Agent], caller: str) -> list[Agent]:
    """The agents as a list. Raises Refused if there are none, or if one is not an Agent."""
    example = f"{caller}([agent])"
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise Refused(f"{caller} needs a list of agents, not {_shown(agents)}. Write {example}.")
    found = list(agents)
    if not found:
        raise Refused(f"{caller} needs at least one agent. Write {example}.")
    for each in found:
        if not isinstance(each, Agent):
            raise Refused(f"{caller} needs foldlog.Agent objects, not {_shown(each)}")
    return found


def _shown(value: object) -> str:
    if isinstance(value, Agent | Tool):
        return f"the {type(value).__name__.lower()} {value.name}"
    return repr(value)


def _prepared(
    stack: ExitStack, settings: Settings | None, roles: Sequence[str], worker_id: str | None
) -> Settings:
    """Check that a worker may start, lock its state directory until `stack` closes, and return its
    settings.
    """
    settings = connected(settings or find_settings())
    environment.seal()
    environment.forget(settings.secret_variables, kept=settings.tool_env)
    stack.enter_context(
        exclusive_start(settings.state_dir, worker_id, _log.warning, supervises=False)
    )
    return stack.enter_context(model_of(settings, roles, _log.warning))


class Worker:
    """A worker in a thread of this process: `with Worker(agents):` or `async with`.

    The block begins when the worker is ready, which means that it has its partitions and a broker
    answers. At the end of the block the worker handles the records that it has polled, stops its
    running effects and leaves the consumer group; the next worker continues the interrupted work.
    An application that serves many requests should run workers in separate processes, which do not
    compete with its requests for the interpreter lock.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        settings: Settings | None = None,
        roles: Sequence[str] = ROLES,
        worker_id: str | None = None,
        rolling_update: bool = False,
        ready_s: float = READY_S,
    ) -> None:
        """ready_s: how long the start may take, in seconds."""
        self._agents, self._settings = demand_agents(agents, "Worker"), settings
        self._roles, self._worker_id = tuple(roles), worker_id
        self._rolling, self._ready_s = rolling_update, ready_s
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._thread: WorkerThread | None = None

    def start(self) -> None:
        """Start the worker; returns when it is ready.

        Raises WorkerFailed if the worker ends or is not ready in time, or the error that prevented
        its start: SettingsError, AgentsDiffer, StateDirTaken, TopicMissing, LogUnreachable. After
        an error the worker is stopped.
        """
        if self._thread is not None:
            raise RuntimeError("this Worker was already started. Create a new one.")
        try:
            settings = _prepared(self._stack, self._settings, self._roles, self._worker_id)
            self._thread = WorkerThread(lambda: self._parts(settings), _begin, self._ended.set)
            self._thread.start()
            self._await_ready(self._thread)
        except BaseException:
            self.stop()
            raise

    def _parts(self, settings: Settings) -> Parts:
        return Parts(settings, self._agents, self._roles, self._worker_id, rolling=self._rolling)

    def _await_ready(self, thread: WorkerThread) -> None:
        end = time.monotonic() + self._ready_s
        while why := self.why_not_ready():
            if self._ended.wait(POLL_S):
                raise thread.failed or WorkerFailed(self._why_ended())
            if time.monotonic() > end:
                raise WorkerFailed(
                    f"the worker is {why}, {self._ready_s:g} s after its start. It is stopped; "
                    "sessions continue when a worker runs. `foldlog doctor` reports what is wrong"
                )

    def why_not_ready(self) -> str:
        """Why the worker is not ready, as text; '' if it is ready. Queries the broker."""
        parts = None if self._thread is None else self._thread.parts
        if self._ended.is_set():
            return "not ready: ended"
        return "not ready: starting" if parts is None else why_not_ready(parts)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker ends; False if it still runs after `timeout_s` seconds.

        Raises WorkerFailed if the worker ended because of an error.
        """
        if not self._ended.wait(timeout_s):
            return False
        if self._thread is not None and self._thread.parts and self._thread.parts.fatal:
            raise WorkerFailed(self._why_ended()) from self._thread.parts.fatal[0]
        return True

    def _why_ended(self) -> str:
        parts = None if self._thread is None else self._thread.parts
        why = [f"{type(error).__name__}: {error}" for error in (parts.fatal if parts else ())]
        return (
            f"the worker ended: {'; '.join(why) or 'it was stopped'}. Nothing is lost: sessions "
            "continue when a worker runs"
        )

    def stop(self) -> None:
        """Stop the worker; returns when it has ended. A second call has no effect.

        Raises WorkerFailed if the worker does not end in time; then it runs until the process ends.
        """
        thread, self._thread = self._thread, None
        try:
            if thread is None:
                return
            if not thread.stop():
                raise WorkerFailed(
                    "the worker did not end in time, because a call in it does not return. "
                    "Nothing is lost. End this process; the next worker continues."
                )
            if thread.parts is not None:
                thread.parts.close()
        finally:
            self._stack.close()

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "Worker":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)


def _begin(parts: Parts) -> None:
    _log.info("worker %s runs %s", parts.identity.owner, ", ".join(parts.worker.roles))
