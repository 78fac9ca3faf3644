"""Runs a tool's function, as a task, thread or process, until it returns or must stop.

It reports how the function ended; call.py derives the outcome of the call.
"""

import asyncio
import contextlib
import contextvars
import inspect
import json
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...log.blobs import BlobStore
from ...log.errors import Parked
from ...schemas.enums import Approval, Effect
from ...schemas.tokens import family_of
from ..limits import Limits
from .by_reference import reference_of
from .children import Children
from .context import Abort, Memory, ToolContext
from .isolated import ProcessLost, Raised, call as call_isolated
from .isolated_child import Request, middle_cut
from .outcomes import Doubt, ToolClaim
from .output_sink import Stop
from .result_cache import ResultCache, key_of, wall_ms
from .side_log import SideLogStore
from .tiers import is_hidden
from .tool import Tool, ToolFailed

_log = logging.getLogger("foldlog.tools")
READER = "read_result"  # the tool by which a model reads the rest of a cut result
# Shares of a turn's grace period. They leave time for the outcome to reach the log.
ASK_SHARE = 0.3  # between ctx.aborted and the cancellation of the task
END_SHARE = 0.3  # between the cancellation and giving up the wait for the tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHost:
    """The resources of a worker that all runs of an agent's tools share."""

    limits: Limits
    blobs: BlobStore
    side_log: SideLogStore
    workdir: Path | None = None
    results_readable: bool = False  # whether the agent has the tool that reads cut results
    memory: Memory | None = None
    agent: str = ""
    model: str = ""  # the model that reads the results, for counting their tokens
    cache: ResultCache | None = None  # reusable results of pure tools
    tool_env: tuple[str, ...] = ()  # globs of variables that the operator passes to commands


@dataclass(frozen=True, slots=True)
class End:
    """How a function ended: it returned `value`, or raised `error`."""

    value: Any = None
    error: BaseException | None = None


class Run:
    """One run of one call. `once`: whether the effect of the call is `once` in the log or in the
    code.
    """

    def __init__(self, claim: ToolClaim, tool: Tool, host: ToolHost) -> None:
        self.claim, self.tool, self.host = claim, tool, host
        self.once = Effect.ONCE in (claim.effect, tool.effect)
        self.began_at = wall_ms()
        self.timed_out = False
        self.cancelled = False  # the task of this run was cancelled: the worker is ending
        self.stop = Stop()  # the run's own stop, which an outer abort and the deadline both request
        self.children = Children(self.stop, host.tool_env)
        self.ctx = ToolContext(
            session_id=claim.session_id,
            call_key=claim.call_key,
            attempt=claim.attempt,
            aborted=Abort(self.stop),
            side_log=host.side_log.of(claim.session_id, claim.call_key),
            children=self.children,
            blobs=host.blobs,
            result_tokens=tool.result_tokens or host.limits.result_tokens,
            workdir=tool.workdir or host.workdir,
            user_id=claim.user_id,
            project_id=claim.project_id,
            claim_offset=claim.claim_offset,
            memory=host.memory,
            refs=claim.refs,
            approved=claim.approval == Approval.ASK,  # such a call runs only with approval
        )

    def cache_key(self, args: bytes) -> bytes | None:
        """The key under which a result of this call may be reused, or None if it may not.

        The tool must be pure both in the log and in the code, and the user must be known.
        """
        tool, claim, ctx = self.tool, self.claim, self.ctx
        pure = claim.effect == tool.effect == Effect.PURE
        if not pure or tool.cache_ttl_ms is None or self.host.cache is None or not claim.user_id:
            return None
        whose = (claim.user_id, claim.project_id, self.host.agent)
        version = json.dumps(tool.entry, sort_keys=True)
        host = self.host
        cut = (ctx.result_tokens, host.results_readable, family_of(host.model))
        return key_of((*whose, version, str(ctx.workdir or ""), *cut), args)

    def call(
        self, function: Callable[..., Any], kwargs: Mapping[str, Any], *, context: bool
    ) -> asyncio.Task[End]:
        """Start a function. The returned task ends with an End and never raises."""
        args = (self.ctx,) if context else ()
        return self._begin(partial(function, *args, **kwargs))

    def call_isolated(self, raw: bytes) -> asyncio.Task[End]:
        """Like `call`, for the function of an isolated tool. raw: the valid arguments, as JSON."""
        ctx, tool = self.ctx, self.tool
        context = {
            "session_id": ctx.session_id,
            "call_key": ctx.call_key,
            "attempt": ctx.attempt,
            "result_tokens": ctx.result_tokens,
            "workdir": None if ctx.workdir is None else str(ctx.workdir),
            "user_id": ctx.user_id,
            "project_id": ctx.project_id,
            "approved": ctx.approved,
        }
        request = Request(
            reference=reference_of(tool.function),
            name=tool.name,
            args=raw.decode(),
            context=context if tool.context is not None else None,
            hidden=is_hidden(tool),
        )
        return self._begin(partial(call_isolated, request, self.children, self._show))

    def _begin(self, function: Callable[[], Any]) -> asyncio.Task[End]:
        claim = self.claim
        name = task_name(claim.session_id, claim.call_key)
        return asyncio.create_task(self._call(function), name=name)

    def _show(self, output: str) -> None:
        """Log what an isolated tool printed."""
        claim = self.claim
        _log.info("session %s: tool %s printed\n%s", claim.session_id, claim.name, output)

    async def _call(self, function: Callable[[], Any]) -> End:
        end = await _call(function, thread_name(self.claim.call_key))
        expected = isinstance(end.error, ToolFailed | Parked)
        killed = isinstance(end.error, ProcessLost) and self.stop.requested
        if isinstance(end.error, Exception) and not expected and not killed:
            self._log_error(end.error)
        return end

    def _log_error(self, error: Exception) -> None:
        """Log the traceback for the tool's author; the model gets only the error's text."""
        below = error.__traceback__
        while below is not None and below.tb_frame.f_code.co_filename == __file__:
            below = below.tb_next
        claim = self.claim
        text = "".join(traceback.format_exception(type(error), error, below)).rstrip()
        if isinstance(error, Raised | ProcessLost):
            text = error.log
        text = middle_cut(text.encode("utf-8", "backslashreplace").decode())  # a lone surrogate
        _log.error(
            "session %s: tool %s (call %s, attempt %d) raised an error\n%s",
            *(claim.session_id, claim.name, claim.call_key, claim.attempt, text),
        )

    async def until_end(self, work: asyncio.Task[End], outer: Stop, *, cancel: bool) -> End | None:
        """Return how the work ended, or None if it still runs after every attempt to end it.

        An abort and the deadline are handled alike. First ctx.aborted is set, and a tool that uses
        it gets time to end. Then the task is cancelled (a thread cannot be), and its processes are
        killed.
        """
        await self._first_of(work, outer)
        if not work.done():
            self.timed_out = not outer.requested and not self.cancelled
            why = "the deadline" if self.timed_out else outer.why or "the worker is stopping"
            self.stop.request(why)
            grace_s = self.host.limits.grace_ms / 1000
            ends_by_itself = self.ctx.aborted.watched or self.children.busy or self.tool.isolate
            if ends_by_itself or not cancel:
                await asyncio.wait({work}, timeout=ASK_SHARE * grace_s)
            if cancel and not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=END_SHARE * grace_s)
        await self.children.close()
        return work.result() if work.done() else None

    async def _first_of(self, work: asyncio.Task[End], outer: Stop) -> None:
        """Wait until the work ends, is stopped, or exceeds its time limit."""
        stopping = asyncio.ensure_future(outer.wait())
        try:
            await asyncio.wait(
                {work, stopping},
                timeout=self.claim.timeout_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self.cancelled = True
        finally:
            stopping.cancel()

    def doubt(self, error: BaseException | None) -> Doubt:
        """The code for what `why_ended` says of a run that left a doubt."""
        if self.timed_out:
            return Doubt.TIMED_OUT
        if self.stop.requested:
            return Doubt.ABORTED
        return Doubt.PROCESS_DIED if isinstance(error, ProcessLost) else Doubt.RAISED

    def why_ended(self, error: BaseException | None) -> str:
        """The reason why a run has no result, as text for the model and for people."""
        if self.timed_out:
            return f"{self.claim.name} did not end within {self.claim.timeout_ms / 1000:g} s"
        if self.stop.requested:
            return f"{self.claim.name} was stopped while it ran ({self.stop.why})"
        if isinstance(error, Parked | ProcessLost):  # our own errors, whose text is complete
            return f"{self.claim.name}: {error}"
        kind = error.kind if isinstance(error, Raised) else type(error).__name__
        return f"{self.claim.name} raised {kind}: {_text_of(error)}"


def task_name(session_id: str, call_key: str) -> str:
    """The name of the asyncio task in which the tool of a call runs."""
    return f"tool {session_id} {call_key}"


def thread_name(call_key: str) -> str:
    """The name of the thread in which the tool of a call runs, if it is not async."""
    return f"tool {call_key}"


async def _call(function: Callable[[], Any], name: str) -> End:
    """Call the function, as a task if it is a coroutine function, else in a thread."""
    try:
        if inspect.iscoroutinefunction(function):
            return End(await function())
        value = await in_thread(function, name)
        return End(await value if inspect.isawaitable(value) else value)
    except (Exception, asyncio.CancelledError, SystemExit) as error:
        return End(error=error)


def in_thread(function: Callable[[], Any], name: str) -> Awaitable[Any]:
    """Run a function in a new thread. When the process ends, it does not wait for this thread.

    The default executor has few threads and joins them at exit, so a hung tool would prevent the
    worker from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # exceptions such as StopIteration must not pass through a future
            future.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))

    def main() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=main, name=name, daemon=True).start()
    return future


def _text_of(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:
        return "an exception without a readable text"
