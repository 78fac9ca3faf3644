"""Runs effects as tasks of one event loop, in a separate thread beside the poll thread.

Each effect that has begun reports exactly one outcome through Reports, even if its task dies. This
file imports the model SDK in the background, because the import is slow and must not delay a
worker's start.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...log.blobs import BlobStore
from ...schemas import events as ev
from .. import crash_points
from ..agent import Agent
from ..effects import background, delivery
from ..effects.models import call as models
from ..effects.slots import Slots
from ..fold.partial_answer import chunks_of, said_so_far
from ..store.chunks_reader import ChunksReader
from ..tools import call as tools
from ..tools.blob_wait import when_stored
from ..tools.context import Memory
from ..tools.output_sink import Stop
from ..tools.result_cache import ResultCache
from ..tools.run import READER, in_thread
from ..tools.side_log import SideLogStore
from .lost_effects import Running
from .not_begun import delivery_not_begun, failed, generation_not_begun, no_tool, work_not_begun
from .ports import BeginDelivery, BeginGeneration, BeginTool, BeginWork, EffectId
from .reports import Reports
from .resumption import ChunksLoader
from .start_window import StartWindow

CANDIDATES = (ev.ResultCompacted, ev.ContextCompacted)
if TYPE_CHECKING:
    from ..memory.service import MemoryService

CLIENT_THREAD = "model-client"  # its import takes seconds; nothing waits for its end
SHUTDOWN_S = 5.0  # how long an ending worker waits for its effects, the same as a cancel's grace


class TrackedSink:
    """The sink of one effect. Records whether the effect has reported its outcome."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self.chunk = reports.chunk
        self.has_outcome = False

    async def outcome(self, session_id: str, event: Any) -> None:
        """Report an event as Reports.outcome does. If this raises, nothing was written."""
        await self._reports.outcome(session_id, event)
        self.has_outcome = type(event) not in CANDIDATES  # BACKGROUND_DONE follows these
        if not self.has_outcome:
            crash_points.reach("background.made")


class EffectsHost:
    """Runs effects; see the module docstring.
    Any thread may call the methods; all return at once."""

    def __init__(
        self,
        reports: Reports,
        blobs: BlobStore,
        side_log: SideLogStore,
        model_slots: Slots,
        make_client: Callable[[], Any],
        read_chunks: ChunksReader,
        say: Callable[[str], None],
        memory: "MemoryService | None" = None,
        results: ResultCache | None = None,
        find_channel: delivery.Find = lambda name: None,
        tool_env: tuple[str, ...] = (),
    ) -> None:
        self._reports = reports
        self._blobs, self._side_log = blobs, side_log
        self._slots = model_slots
        self._make_client = make_client
        self._read_chunks, self._chunks_loader = read_chunks, ChunksLoader(read_chunks)
        self._say = say
        self._memory, self._results = memory, results
        self._find_channel, self._tool_env = find_channel, tool_env
        self._client: asyncio.Future | None = None
        self._stops: dict[EffectId, tuple[str, Stop]] = {}
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="effects", daemon=True)
        self._thread.start()

    def warm(self) -> None:
        """Import the model SDK and create the client, in the background."""
        self._loop.call_soon_threadsafe(self._begin_client)

    def _begin_client(self) -> asyncio.Future:
        if self._client is None or (self._client.done() and self._client.exception() is not None):
            self._client = asyncio.ensure_future(in_thread(self._make_client, CLIENT_THREAD))
            self._client.add_done_callback(asyncio.Future.exception)  # else asyncio logs it too
        return self._client

    async def _get_client(self, stop: Stop) -> Any:
        """The client; None if `stop` is requested before the client exists."""
        client, stopped = self._begin_client(), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((client, stopped), return_when=asyncio.FIRST_COMPLETED)
            return client.result() if client.done() else None
        finally:
            stopped.cancel()

    def running(self, role: str) -> int:
        """The number of running effects of a role."""
        return self._running[role]

    def begun(self) -> list[Running]:
        """All running effects."""
        with self._lock:
            return [Running(role, effect) for effect, (role, _) in self._stops.items()]

    def stop(self, effect: EffectId, why: str) -> bool:
        """Ask an effect to end. Returns whether it is running."""
        found = self._stops.get(effect)
        if found is not None:
            found[1].request(why)
        return found is not None

    def _spawn(
        self,
        role: str,
        session_id: str,
        work: Coroutine[Any, Any, None],
        effect: EffectId | None = None,
        stop: Stop | None = None,
        fallback_outcome: Callable[[str], Any] | None = None,
        tracked: TrackedSink | None = None,
        start_window: StartWindow | None = None,
    ) -> None:
        """Run `work`. If it dies without an outcome, `fallback_outcome(why)` is reported (rows T4,
        S2).

        effect, stop: None if `work` only reports an outcome, because a report is never stopped. If
        the event loop was blocked until the effect's start window had passed, the effect does not
        begin, and the outcome of a late claim is reported.
        """
        spawned_at = time.monotonic()
        with self._lock:
            self._running[role] += 1
            if effect is not None:
                self._stops[effect] = (role, stop or Stop())

        async def guarded() -> None:
            try:
                waited_ms = (time.monotonic() - spawned_at) * 1000
                is_late = start_window is not None and waited_ms > start_window.window_ms
                if start_window is not None and tracked is not None and is_late:
                    work.close()
                    why = f"the worker could not begin it within {start_window.window_ms} ms"
                    await tracked.outcome(session_id, start_window.outcome(why))
                    return
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as bug:  # a tool may raise anything, even to unwind its own stack
                why = f"{type(bug).__name__}: {bug}"[:1_000]
                self._say(f"an effect of {session_id} failed: {why}")
                if fallback_outcome is not None and tracked is not None and not tracked.has_outcome:
                    await self._reports.outcome(session_id, fallback_outcome(why))
            finally:
                with self._lock:
                    self._running[role] -= 1
                    if effect is not None:
                        self._stops.pop(effect, None)

        asyncio.run_coroutine_threadsafe(guarded(), self._loop)

    # -- called by Actions -----------------------------------------------------------------------

    def generate(self, session_id: str, begin: BeginGeneration) -> None:
        """Begin a model call."""
        crash_points.reach("models.begin")
        stop, tracked = Stop(), TrackedSink(self._reports)
        claim = generation_claim_of(session_id, begin)
        work = self._generate(claim, begin, stop, tracked)

        def fallback_outcome(why: str) -> ev.GenFailed:
            return failed(begin, "internal", f"the call's task died: {why}", permanent=False)

        place = (begin.turn, begin.step, begin.attempt)
        start_window = StartWindow.of(begin.agent, lambda why: generation_not_begun(*place, why))
        effect = EffectId(session_id, begin.claim.offset)
        self._spawn(
            "models", session_id, work, effect, stop, fallback_outcome, tracked, start_window
        )

    async def _generate(
        self, claim: models.GenClaim, begin: BeginGeneration, stop: Stop, sink: TrackedSink
    ) -> None:
        try:
            client = await self._get_client(stop)
        except Exception as error:
            detail = f"no client for the model: {type(error).__name__}: {error}"
            await sink.outcome(claim.session_id, failed(begin, "client", detail, permanent=True))
            return
        crash_points.reach("models.send")
        await models.generate(
            claim,
            begin.request,
            sink,
            stop,
            client,
            limits=begin.agent.limits,
            pace=self._slots,
            store_body=self._blobs.body,
            kept=begin.kept,
        )

    def run_tool(self, session_id: str, begin: BeginTool) -> None:
        """Begin a tool call."""
        crash_points.reach("tools.begin")
        stop, tracked = Stop(), TrackedSink(self._reports)
        claim = tool_claim_of(session_id, begin)
        work = self._run_tool(claim, begin, stop, tracked)

        def fallback_outcome(why: str) -> ev.ToolResult | ev.ToolFailedUncertain:
            tool = begin.agent.tool(begin.call.name)
            once = "once" in (begin.call.effect, tool and tool.effect)
            return (tools.uncertain if once else tools.gave_up)(claim, f"its task died: {why}")

        start_window = StartWindow.of(begin.agent, lambda why: tools.not_run(claim, why))
        effect = EffectId(session_id, begin.claim.offset)
        self._spawn(
            "tools", session_id, work, effect, stop, fallback_outcome, tracked, start_window
        )

    async def _run_tool(
        self, claim: tools.ToolClaim, begin: BeginTool, stop: Stop, sink: TrackedSink
    ) -> None:
        tool = begin.agent.tool(begin.call.name)
        if tool is None:
            await sink.outcome(claim.session_id, no_tool(begin))
            return
        host = self._tool_host(begin.agent)
        crash_points.reach("tools.run")
        late = await tools.run(claim, tool, begin.args, sink, stop, host)
        if late is not None:
            await late

    def _tool_host(self, agent: Agent) -> tools.ToolHost:
        return tool_host_of(
            agent, self._blobs, self._side_log, self._memory, self._results, self._tool_env
        )

    def reconcile(self, session_id: str, begin: BeginTool) -> None:
        """Ask a tool's reconciler whether the call of a dead owner had its effect. An early
        question is dropped while the reconciler still thinks about the one before."""
        effect = EffectId(session_id, begin.claim.offset, recovers=True, early=begin.early)
        if begin.early and effect in self._stops:
            return
        stop, tracked = Stop(), TrackedSink(self._reports)
        claim = tool_claim_of(session_id, begin)
        work = self._reconcile(claim, begin, stop, tracked)

        def fallback_outcome(why: str) -> ev.ToolFailedUncertain:
            return tools.uncertain(claim, f"its worker is gone, and asking ended badly: {why}")

        fallback = None if begin.early else fallback_outcome
        self._spawn("tools", session_id, work, effect, stop, fallback, tracked)

    async def _reconcile(
        self, claim: tools.ToolClaim, begin: BeginTool, stop: Stop, sink: TrackedSink
    ) -> None:
        tool = begin.agent.tool(begin.call.name)
        if tool is None:
            why = "its worker is gone, and the agent has no such tool any more"
            await sink.outcome(claim.session_id, tools.uncertain(claim, why))
            return
        host = self._tool_host(begin.agent)
        await tools.reconcile(claim, tool, begin.args, sink, stop, host, early=begin.early)

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None:
        """A session's chunks from `offset` on, for a lost attempt. Returns None while the chunks
        are being read; the caller then calls this again later.
        """
        return self._chunks_loader.since(session_id, partition, offset, attempt)

    def recover_chunks(self, session_id: str, partition: int, begin: BeginGeneration) -> None:
        """Report the outcome of a lost attempt, with the content of its chunks (row A2)."""
        work = self._recover_chunks(session_id, partition, begin)
        effect = EffectId(session_id, begin.claim.offset, recovers=True)
        self._spawn("models", session_id, work, effect)

    async def _recover_chunks(
        self, session_id: str, partition: int, begin: BeginGeneration
    ) -> None:
        chunks = await asyncio.to_thread(self._read_chunks, session_id, partition, begin.since)
        event = await when_stored(lambda: recovered(begin, chunks, self._blobs.body))
        await self._reports.outcome(session_id, event)

    def work(self, session_id: str, begin: BeginWork) -> None:
        """Begin background work."""
        crash_points.reach("background.begin")
        stop, tracked = Stop(), TrackedSink(self._reports)
        work = background.work(
            work_claim_of(session_id, begin),
            begin.task,
            begin.agent,
            tracked,
            stop,
            lambda: self._get_client(stop),
            blobs=self._blobs,
            remember=self._remember(begin),
        )

        def fallback_outcome(why: str) -> ev.BackgroundDone:
            return ev.BackgroundDone(
                kind=begin.kind, upto=begin.upto, attempt=begin.attempt,
                ok=False, why=f"its task died: {why}"[:500],
            )

        place = (begin.kind, begin.upto, begin.attempt)
        start_window = StartWindow.of(begin.agent, lambda why: work_not_begun(*place, why))
        effect = EffectId(session_id, begin.claim.offset)
        self._spawn(
            "background", session_id, work, effect, stop, fallback_outcome, tracked, start_window
        )

    def _remember(self, begin: BeginWork) -> background.Remember | None:
        if self._memory is None or begin.kind != "memory":
            return None
        return partial(self._memory.keep, at=begin.claim.at)

    def deliver(self, session_id: str, begin: BeginDelivery) -> None:
        """Begin a delivery."""
        crash_points.reach("delivery.begin")
        tracked = TrackedSink(self._reports)
        work = delivery.deliver(
            begin.delivery(session_id), self._find_channel, tracked, begin.agent.limits
        )
        start_window = StartWindow.of(begin.agent, lambda why: delivery_not_begun(begin.owed, why))
        effect = EffectId(session_id, begin.claim.offset)
        self._spawn(
            "delivery", session_id, work, effect, tracked=tracked, start_window=start_window
        )

    def report(self, session_id: str, event: Any) -> None:
        """Write an outcome without running an effect."""
        self._spawn("reports", session_id, self._reports.outcome(session_id, event))

    def close(self) -> None:
        """Stop the model calls, give tools a short time to end by themselves, and stop the event
        loop.

        If a tool does not end in this time, it is killed when the process ends; its claim is in the
        log.
        """
        for role, stop in list(self._stops.values()):
            if role in ("models", "background"):
                stop.request("the worker is ending", leaves=True)

        async def settle() -> None:
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            if tasks:
                await asyncio.wait(tasks, timeout=SHUTDOWN_S)
            if self._client is not None and self._client.done():
                with suppress(Exception, asyncio.CancelledError):  # it may have failed to start
                    await self._client.result().close()  # closes the connections to the model

        settled = asyncio.run_coroutine_threadsafe(settle(), self._loop)
        try:
            settled.result(SHUTDOWN_S * 2)
        except TimeoutError:  # a tool that blocks the loop must not prevent the log's closing
            self._say("the effects could not be asked to end: one of them blocks their event loop")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SHUTDOWN_S)


def generation_claim_of(session_id: str, begin: BeginGeneration) -> models.GenClaim:
    """The claim of a model call, as `models.generate` takes it. Called when the claim was read."""
    return models.GenClaim(
        session_id=session_id,
        turn=begin.turn,
        step=begin.step,
        attempt=begin.attempt,
        claimed_at=max(begin.now, begin.claim.at),
        read_at=time.monotonic(),
        error_before=begin.error_before,
    )


def work_claim_of(session_id: str, begin: BeginWork) -> background.WorkClaim:
    """The claim of background work, as `background.work` takes it. Called when the claim was
    read."""
    at = max(begin.now, begin.claim.at)
    place = (session_id, begin.kind, begin.upto, begin.attempt)
    return background.WorkClaim(*place, at, time.monotonic())


def tool_claim_of(session_id: str, begin: BeginTool) -> tools.ToolClaim:
    """The claim of a tool call, as `tools.run` takes it."""
    call, agent = begin.call, begin.agent
    return tools.ToolClaim(
        session_id=session_id,
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt,
        name=call.name,
        effect=call.effect,
        approval="ask" if call.decision else "none",
        args_sha256=call.args_sha256,
        timeout_ms=tools.timeout_ms(agent.tool(call.name), agent.limits),
        user_id=begin.user_id,
        project_id=begin.project_id,
        claim_offset=begin.claim.offset,
        refs=begin.refs,
    )


def tool_host_of(
    agent: Agent,
    blobs: BlobStore,
    side_log: SideLogStore,
    memory: Memory | None = None,
    cache: ResultCache | None = None,
    tool_env: tuple[str, ...] = (),
) -> tools.ToolHost:
    """The host of an agent's tools."""
    return tools.ToolHost(
        limits=agent.limits,
        blobs=blobs,
        side_log=side_log,
        workdir=agent.workdir,
        results_readable=agent.tool(READER) is not None,
        memory=memory,
        agent=agent.name,
        model=agent.model,
        cache=cache,
        tool_env=tool_env,
    )


def place_of(event: Any) -> tuple[int, int, int]:
    """(turn, step, attempt) of an event about a model call."""
    return event.turn, event.step, event.attempt


def content_of(begin: BeginGeneration, chunks: list[ev.GenChunk]) -> bytes:
    """The content of a lost attempt. It begins with the content of the attempts that the lost
    attempt resumed.
    """
    place = (begin.turn, begin.step, begin.attempt)
    own = [chunk for chunk in chunks if place_of(chunk) == place]
    return said_so_far(chunks_of(chunks, place, begin.chain) if begin.chain else own)


def recovered(
    begin: BeginGeneration, chunks: list[ev.GenChunk], store_body: models.StoreBody
) -> ev.GenStopped:
    """The outcome of a lost attempt whose turn is ending, with the content of its chunks."""
    return ev.GenStopped(
        turn=begin.turn,
        step=begin.step,
        attempt=begin.attempt,
        why="its worker is gone and the turn is ending",
        content=store_body(content_of(begin, chunks), "application/json"),
    )
