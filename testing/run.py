"""A run of an agent in a test: a session on an in-memory log, with a script as the model.

Everything is the product's own code except time, the broker and the model. Nothing happens between
two awaits: a run continues only while a test awaits its reply.
"""

import asyncio
import difflib
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..client.aio import same_parameters
from ..client.connection import Connection
from ..client.events import SessionEvent, ToolFinished, demand_event_class
from ..client.outcomes import Answer
from ..client.session import Reply, ReplyEnded, Session, answer_later
from ..client.session_state import ModelRequest, SessionState
from ..client.worker import demand_agents
from ..local.messages_api import ScriptedServer
from ..log.door import Log
from ..log.errors import Refused
from ..log.settings import Settings
from ..processors.agent import Agent
from ..reports.exports.blocks import Contents
from ..reports.exports.bundle import export_bundle
from ..schemas import events as ev
from ..schemas.codec import entry_of
from ..schemas.enums import Outcome
from .engine import STEPS_MAX, Engine, RunWaits
from .forgotten import FORGOTTEN, awaited
from .script import Answers, Scripted

E = TypeVar("E", bound=SessionEvent)
P = ParamSpec("P")
T = TypeVar("T")
IDLE_S = 0.01
"""How long a worker of `AgentRun.working` waits for records of other connections."""
THREAD_END_S = 1.0
"""How long the end of a test waits for the thread of a tool whose worker was killed."""


class ToolStillRuns(UserWarning):
    """A tool still runs in its thread at the end of the test, although its worker was killed."""


class RunNeverEnds(Refused):
    """The run still has work after the worker has done many pieces of work."""


def _of_session(
    method: Callable[Concatenate[Session, P], T],
) -> Callable[Concatenate["AgentRun", P], Coroutine[Any, Any, T]]:
    """The method of the run's session, to be awaited."""

    @awaited
    @wraps(method)
    async def call(run: "AgentRun", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(run.session, *args, **kwargs)

    return call


class AgentRun:
    """One session of an agent. The fixture `foldlog_agent` creates it.

    The worker runs only while a test awaits a reply, `settle` or `advance`, or in a block of
    `working`.

    `session`: the session, for everything that the run has no method for.
    `user`: the user who acts.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        script: Iterable[Scripted | str],
        directory: Path,
        user: str,
        session_id: str,
        patience_s: float = math.inf,
    ) -> None:
        loaded = demand_agents(agents, "foldlog_agent")
        _demand_runnable(loaded)
        self.user = user
        self._answers = Answers(script, loaded)
        self._server = ScriptedServer(self._answers).start()
        self._engine = Engine(loaded, self._server.base_url, directory, patience_s)
        settings = Settings(
            home=directory,
            state_dir=directory / "worker",
            blobs_dir=directory / "blobs",
            cache_dir=directory / "cache",
            user=user,
            partitions=1,
        )
        self._connection = Connection(settings, self._engine.log)
        self.session: Session = self._connection.open(session_id, agent=loaded[0].name)
        self._last: RunReply | None = None
        self._stepping = asyncio.Lock()
        self._is_unread = False

    # -- code under test that connects by itself ---------------------------------------------------

    @property
    def log(self) -> Log:
        """The log in memory, for code under test that connects by itself with
        `foldlog.aconnect(run.settings, log=run.log)` or `foldlog.asgi`."""
        return self._engine.log

    @property
    def settings(self) -> Settings:
        """The settings that belong to the log."""
        return self._connection.settings

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Let the worker run by itself in the block, on every session of the log. Use this for code
        that sends messages on its own connection, such as the routes of a web application.
        """
        self._engine.log.threaded = True  # the readers of other threads wait for records
        work, block = asyncio.create_task(self._work()), asyncio.current_task()
        assert block is not None, "a coroutine runs in a task"
        work.add_done_callback(lambda ended: None if ended.cancelled() else block.cancel())
        try:
            yield
        except asyncio.CancelledError:
            if work.done() and not work.cancelled() and (bug := work.exception()) is not None:
                block.uncancel()
                raise bug from None
            raise
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            self._engine.log.threaded = False
        self._answers.demand_enough()

    async def _work(self) -> None:
        while True:
            if await self._step():
                await asyncio.sleep(0)
            elif (due := self._engine.next_due_ms()) is not None:
                self._engine.ms = max(due, self._engine.ms + 1)
            else:
                await asyncio.sleep(IDLE_S)

    # -- a person ----------------------------------------------------------------------------------

    @same_parameters(Session.send)
    def send(self, *args: Any, **options: Any) -> "RunReply":
        """Send a message, and return its reply. Await the reply to get the answer, iterate over its
        events, or call its method `until`. The parameters are those of `Session.send`."""
        self._last = RunReply(self, self.session.send(*args, **options))
        self._is_unread = True
        return self._last

    approve = _of_session(Session.approve)
    deny = _of_session(Session.deny)
    resolve = _of_session(Session.resolve)
    cancel = _of_session(Session.cancel)

    @awaited
    async def result(self) -> Answer:
        """The answer to the message that was sent last, once its turn has ended: `text`, `reason`,
        `note`. You may call this even if you have awaited the reply or iterated over it.
        """
        if self._last is None:
            raise Refused("nothing was sent yet: run.send(...) first")
        return await self._last

    # -- what happens to the worker ----------------------------------------------------------------

    @awaited
    async def crash(self) -> None:
        """Kill the worker now, also in the middle of a tool, and start another worker.

        Everything that is not in the log is lost. A lost model call is repeated with the same
        answer of the script. A running tool is cancelled; a tool in a thread cannot be ended, but
        its result is lost.
        """
        self._engine.restart()
        await asyncio.sleep(0)  # the cancelled tool ends

    def crash_after(self, event: str, *, nth: int = 1) -> None:
        """Kill the worker right after it has written its nth event of a type, such as TOOL_STARTED
        (the call is claimed, but the tool has not begun), TOOL_RESULT or GEN_CHUNK (within an
        answer).
        """
        _demand_event_type(event)
        if nth < 1:
            raise Refused(f"nth counts from 1, not {nth}")
        self._engine.crashes[event] = nth

    @property
    def crashes(self) -> int:
        """How often the worker was killed."""
        return self._engine.restarts

    def left_running(self) -> list[str]:
        """The calls of killed workers whose tools still run, because a thread cannot be killed."""
        return [call for thread, call in self._engine.threads if _runs_on(thread)]

    def unused(self) -> int:
        """How many answers of the script were not used, because the model got fewer requests."""
        return self._answers.unused()

    def demand_complete(self) -> None:
        """Raise Refused if the test ran nothing, or if a requested crash did not happen."""
        if self._is_unread:
            raise Refused(
                "a message was sent and the worker never ran, because the reply was not awaited. "
                "Write `await run.send(...)`, or `await run.settle()` after it."
            )
        for event, left in self._engine.crashes.items():
            if left:
                raise Refused(
                    f"run.crash_after({event!r}) did not crash the worker, which wrote {left} event"
                    f"{'s' * (left > 1)} of this type too few. The session has events of the types "
                    f"{', '.join(dict.fromkeys(self.event_types()))}"
                )

    @awaited
    async def advance(self, time: timedelta | float) -> None:
        """Advance the clock by seconds or a timedelta, so that approvals expire and retries are
        due.
        """
        seconds = time.total_seconds() if isinstance(time, timedelta) else time
        if seconds < 0:
            raise Refused("time cannot go back")
        self._engine.ms += int(seconds * 1000)
        await self.settle()

    @awaited
    async def settle(self) -> None:
        """Let the worker do everything that is due at the clock's current time. Use this if there
        is no reply to await. It does not advance the clock: use `advance` to end a wait.
        """
        self._begin_to_read()
        async with self._stepping:
            is_at_rest = await self._engine.settle()
        if not is_at_rest:
            raise self._never_ends()
        self._answers.demand_enough()

    # -- what a test asserts on --------------------------------------------------------------------

    def events(self, event: str = "") -> list[Any]:
        """All events of the session, or the events of one type, as dataclasses."""
        if event:
            _demand_event_type(event)
        entries = (entry_of(record, chunks=True) for record in self._engine.records())
        mine = (entry.event for entry in entries if entry.session_id == self.session.id)
        return [one for one in mine if not event or ev.BY_CLASS[type(one)].name == event]

    def event_types(self) -> list[str]:
        """The types of the session's events, in order."""
        return [ev.BY_CLASS[type(event)].name for event in self.events()]

    def history(self) -> list[SessionEvent]:
        """The events that a person saw: messages, answers, calls, approvals, ends of turns."""
        return self.session.history()

    def state(self) -> SessionState:
        """The present state of the session, and what it waits for."""
        return self.session.state()

    def request(self, step: str) -> ModelRequest:
        """The exact request of a step (`"TURN.STEP"`)."""
        return self.session.request(step)

    def requests(self) -> list[ModelRequest]:
        """The request of every step, in order."""
        called = self.events("LLM_CALLED")
        return [self.request(f"{event.turn}.{event.step}") for event in called]

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of the session at list prices; None if the price of a model is unknown."""
        return self.state().cost_usd

    def export(self, path: Path | str) -> Path:
        """Write the session to a bundle. `foldlog replay --bundle` opens it, and from_session turns
        it into a script.
        """
        engine = self._engine
        export_bundle(Path(path), engine.log, self.session.id, Contents(engine.read_blob))
        return Path(path)

    # -- driving -----------------------------------------------------------------------------------

    async def continue_for(self, reply: Reply) -> None:
        """Do the next pending work of the run, because `reply` has no event to yield. If no work is
        pending now, advance the clock to the end of the next wait. Raises RunWaits if only a
        person or the test can end the wait.
        """
        did_something = await self._step()
        self._answers.demand_enough()
        self.session.views()  # folds new events, also for the reply
        if did_something or not reply.is_idle:
            return
        due = self._engine.next_due_ms()
        if due is None:
            raise RunWaits(self._why_it_waits())
        self._engine.ms = max(due, self._engine.ms + 1)

    async def _step(self) -> bool:
        """Let the worker do its next piece of work. Coroutines that await replies take turns."""
        self._begin_to_read()
        async with self._stepping:
            return await self._engine.step()

    def _begin_to_read(self) -> None:
        if FORGOTTEN:  # the wait that follows may be for what such a call would have done
            raise Refused(" ".join(FORGOTTEN))
        self._is_unread = False

    def _why_it_waits(self) -> str:
        state = self.state()
        if state.approvals:
            ask = state.approvals[0]
            return (
                f"the run waits for an approval: {ask}. Get it with `ask = await "
                "run.send(...).until(ApprovalAsked)`, then `await run.approve(ask)`."
            )
        if state.doubts:
            doubt = state.doubts[0]
            return (
                f"the run waits for a person: {doubt}. Report what happened with `await "
                "run.resolve(doubt, happened=...)` or `did_not_happen=True`. A tool that knows "
                "that it had no effect raises ToolFailed."
            )
        return f"the run waits, and nothing can continue it: {state}"

    def _never_ends(self) -> RunNeverEnds:
        return RunNeverEnds(
            f"the run is still busy after {STEPS_MAX:,} pieces of work: {self.state()}"
        )

    def close(self) -> None:
        """Stop the model and close the session."""
        self._connection.close()
        self._server.stop()


class RunReply:
    """The reply to one message: use `async for`, `await`, or `await reply.until(ApprovalAsked)`."""

    if not TYPE_CHECKING:  # or a type checker would allow every attribute
        __getattr__ = answer_later("(await run.send(...))")

    def __init__(self, run: AgentRun, reply: Reply) -> None:
        self._run, self._reply = run, reply

    async def __aiter__(self) -> AsyncIterator[SessionEvent]:
        for _ in range(STEPS_MAX):
            while (event := self._reply.take()) is not None:
                yield event
            if self._reply.ended:
                return
            await self._run.continue_for(self._reply)
        raise self._run._never_ends()

    @awaited
    async def until(self, kind: type[E]) -> E:
        """The next event of a class. Raises ReplyEnded if the reply ends without such an event, and
        RunWaits if the run cannot continue."""
        demand_event_class(kind)
        failed = ""
        async for event in self:
            if isinstance(event, kind):
                return event
            if isinstance(event, ToolFinished) and event.outcome != Outcome.OK:
                failed = f". {event}"
        answer = self._reply.answer()
        note = answer.note and f" ({answer.note})"
        raise ReplyEnded(f"the reply ended without {kind.__name__}: {answer.reason}{note}{failed}")

    @awaited
    async def answer(self) -> Answer:
        """The answer, once the turn has ended. Raises RunWaits if the run cannot continue."""
        async for _ in self:
            pass
        return self._reply.answer()

    def __await__(self) -> Generator[Any, None, Answer]:
        return self.answer().__await__()


def _runs_on(thread: threading.Thread) -> bool:
    thread.join(THREAD_END_S)
    return thread.is_alive()


def _demand_event_type(event: str) -> None:
    if event not in ev.BY_NAME:
        close = difflib.get_close_matches(str(event).upper(), ev.BY_NAME, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else (
            f"the types are {', '.join(ev.BY_NAME)}"
        )
        raise Refused(f"{event!r} is no event type; {hint}")


def _demand_runnable(agents: list[Agent]) -> None:
    for agent in agents:
        if agent.mcp:
            raise Refused(
                f"agent {agent.name} has MCP servers, which are not started in a test. Test it "
                "with dataclasses.replace(agent, mcp=()), with tools of your own in their place."
            )
        if agent.memory:
            raise Refused(
                f"agent {agent.name} has memory, which needs a worker's state directory. Test it "
                "with dataclasses.replace(agent, memory=False)."
            )
