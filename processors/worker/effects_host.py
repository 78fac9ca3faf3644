"""Runs effects as tasks of one event loop, in a separate thread beside the poll thread.

Each effect that has begun reports exactly one outcome through Reports, even if its task dies. This
file imports the model SDK in the background, because the import is slow and must not delay a
worker's start.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...log.blobs import BlobStore
from ...schemas import events as ev
from ...schemas.enums import Role
from .. import crash_points
from ..effects import delivery
from ..effects.effect import Means, Run
from ..effects.kinds import run_of
from ..effects.ports import Begin, EffectId
from ..effects.resumption import ChunksLoader
from ..effects.slots import Slots
from ..store.chunks_reader import ChunksReader
from ..tools.output_sink import Stop
from ..tools.result_cache import ResultCache
from ..tools.run import in_thread
from ..tools.side_log import SideLogStore
from .lost_effects import Running
from .reports import Reports

CANDIDATES = (ev.ResultCompacted, ev.ContextCompacted)
if TYPE_CHECKING:
    from ..memory.service import MemoryService

CLIENT_THREAD = "model-client"  # its import takes seconds; nothing waits for its end
SHUTDOWN_S = 5.0  # how long an ending worker waits for its effects, the same as a cancel's grace
REPORTS = "reports"  # the outcomes that are written without an effect, counted like a role
STOPPED_AT_END = (Role.MODELS, Role.BACKGROUND)  # tools and deliveries get SHUTDOWN_S to end


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
        self._make_client = make_client
        self._chunks_loader = ChunksLoader(read_chunks)
        self._say = say
        self._means = Means(
            blobs,
            side_log,
            self._get_client,
            read_chunks,
            model_slots,
            memory,
            results,
            find_channel,
            tool_env,
        )
        self._client: asyncio.Future | None = None
        self._stops: dict[EffectId, tuple[Role, Stop]] = {}
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

    def _spawn(self, session_id: str, run: Run) -> None:
        """Run an effect. If the event loop was blocked until the effect's start window had passed,
        the effect does not begin, and the outcome of a late claim is reported."""
        spawned_at, stop, sink = time.monotonic(), Stop(), TrackedSink(self._reports)
        with self._lock:
            self._running[run.role] += 1
            self._stops[run.effect] = (run.role, stop)

        async def guarded() -> None:
            try:
                waited_ms = (time.monotonic() - spawned_at) * 1000
                if run.window is not None and waited_ms > run.window.window_ms:
                    why = f"the worker could not begin it within {run.window.window_ms} ms"
                    await sink.outcome(session_id, run.window.outcome(why))
                    return
                late = await run.work(sink, stop)
                if late is not None:
                    await late
            except asyncio.CancelledError:
                raise
            except BaseException as bug:  # a tool may raise any exception
                why = self._say_died(session_id, bug)
                if run.died is not None and not sink.has_outcome:
                    await self._reports.outcome(session_id, run.died(why))
            finally:
                with self._lock:
                    self._running[run.role] -= 1
                    self._stops.pop(run.effect, None)

        asyncio.run_coroutine_threadsafe(guarded(), self._loop)

    def _say_died(self, session_id: str, bug: BaseException) -> str:
        why = f"{type(bug).__name__}: {bug}"[:1_000]
        self._say(f"an effect of {session_id} failed: {why}")
        return why

    # -- called by the kinds of effects ----------------------------------------------------------

    def begin(self, session_id: str, begin: Begin) -> None:
        """Begin an effect. An early question to a reconciler is dropped while the reconciler still
        thinks about the one before."""
        run = run_of(session_id, begin, self._means)
        if run.effect.early and run.effect in self._stops:
            return
        if not run.effect.recovers:
            crash_points.reach(f"{run.role}.begin")
        self._spawn(session_id, run)

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk] | None:
        """A session's chunks from `offset` on, for a lost attempt. Returns None while the chunks
        are being read; the caller then calls this again later.
        """
        return self._chunks_loader.since(session_id, partition, offset, attempt)

    def report(self, session_id: str, event: Any) -> None:
        """Write an outcome without running an effect."""

        async def write() -> None:
            try:
                await self._reports.outcome(session_id, event)
            except Exception as bug:
                self._say_died(session_id, bug)
            finally:
                with self._lock:
                    self._running[REPORTS] -= 1

        with self._lock:
            self._running[REPORTS] += 1
        asyncio.run_coroutine_threadsafe(write(), self._loop)

    def close(self) -> None:
        """Stop the model calls, give tools a short time to end by themselves, and stop the event
        loop.

        If a tool does not end in this time, it is killed when the process ends; its claim is in the
        log.
        """
        for role, stop in list(self._stops.values()):
            if role in STOPPED_AT_END:
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
