"""Runs a worker's core on an in-memory log with a virtual clock, with one effect at a time.

Folding, WAKE, decisions and claims are the worker's own code, and so are model calls (real HTTP to
a scripted server) and tools. The threads, the broker and the real time of a worker are missing:
each call of `step` folds records, runs one effect to its end, or finds nothing to do. A killed
worker's effect is cancelled, and nothing waits for its end.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..log.blobs import BlobStore
from ..log.errors import Refused
from ..log.memory import MemoryLog
from ..processors.agent import Agent
from ..processors.effects.effect import Means
from ..processors.effects.kinds import run_of
from ..processors.effects.ports import Begin, BeginTool, EffectId
from ..processors.effects.slots import Slots
from ..processors.fold.projections.turn_view import Call
from ..processors.fold.views import SessionViews
from ..processors.store.identity import Identity
from ..processors.store.store import DictBackend, Store
from ..processors.tools.output_sink import Stop
from ..processors.tools.run import task_name, thread_name
from ..processors.tools.side_log import SideLogStore
from ..processors.wake.facts import Obligation, wake
from ..processors.worker.actions import Actions
from ..processors.worker.loop import Mailbox, appender
from ..processors.worker.reports import ROLE_OF
from ..processors.worker.worker import Worker, WorkerParts
from ..schemas import events as ev
from ..schemas.codec import encode, entry_of, headers_for
from ..schemas.enums import Role
from ..schemas.events.parts import BlobRef
from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS, topics
from .model_client import ScriptedModel

ROLES = (Role.SESSIONS, Role.MODELS, Role.TOOLS, Role.BACKGROUND)
START_MS = 1_700_000_000_000
SLOTS = 9
STEPS_MAX = 20_000
"""After how many pieces of work the engine concludes that an agent never finishes."""
ASKED_AGAIN = "T6"  # only a worker knows when it asks the reconciler early
FOR_A_PERSON = ("T2w",)
"""The rows of WAKE that wait for a person. Time is never advanced to the end of such a wait."""


class RunWaits(Refused):
    """The run cannot continue, because it waits for a person or for something that the test must
    do.
    """


class Crash(BaseException):
    """Ends a worker at a record.

    It is not an Exception, so that no effect catches and reports it.
    """


class Engine:
    """One worker on one partition.

    `model_url`: the address of a scripted Messages API.
    `agents`: the agents that the next worker serves, after a restart.
    `patience_s`: for how many real seconds a step waits for a tool.
    `crashes`: by event type, after how many further records of the type the worker crashes.
    `effects`: the effects of the running worker.
    `queue`: effects that have not run yet.
    `threads`: the threads in which tools of killed workers ran, with the name and the key of their
        calls.
    `log_lines`: the lines that workers logged.
    """

    def __init__(
        self, agents: list[Agent], model_url: str, directory: Path, patience_s: float = math.inf
    ) -> None:
        self.ms, self.patience_s = START_MS, patience_s
        self.agents, self.model = agents, ScriptedModel(model_url)
        self.log = MemoryLog(topics(1), clock_ms=self.now_ms)
        self.blobs = BlobStore(directory / "blobs")
        self.crashes: Counter[str] = Counter()
        self.restarts = 0
        self.queue: list[Callable[[], Awaitable[object]]] = []
        self.threads: list[tuple[threading.Thread, str]] = []
        self.log_lines: list[str] = []
        self.side_log = SideLogStore(directory / "side")
        self._start()

    # -- the worker --------------------------------------------------------------------------------

    def new_effects(self) -> "Effects":
        """The effects of a new worker."""
        return Effects(self)

    def _start(self) -> None:
        """Start a new worker without any state, which folds the log from its beginning."""
        self.effects = self.new_effects()
        identity = Identity("w", str(self.restarts + 1))
        actions = Actions(
            identity.owner,
            self.effects.append,
            self.effects,
            self.blobs.body,
            self.read_blob,
            Slots(SLOTS),
            Slots(SLOTS),
            self,
            self.log_lines.append,
        )

        def open_store(partition: int, *, fresh: bool) -> Store:
            end = self.log.end_offsets(SESSION_EVENTS)[partition]
            return Store(DictBackend({}), log_end=end)

        self.worker = Worker(
            WorkerParts(
                identity=identity,
                roles=ROLES,
                agents=self.agents,
                open_store=open_store,
                actions=actions,
                clock=self,
                say=self.log_lines.append,
            )
        )
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned([0]))

    def restart(self) -> None:
        """Kill the worker and start another worker. Only the log and the blobs remain."""
        self.effects.kill()
        self.queue.clear()
        self.reader.close()
        self.restarts += 1
        self.ms += 1
        self._start()

    def crash_if_due(self, event: str) -> None:
        """Crash if `crashes` says that the event just written, of this type, is the last one before
        the crash."""
        if self.crashes[event]:
            self.crashes[event] -= 1
            if not self.crashes[event]:
                raise Crash

    # -- the clocks --------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The virtual time, Unix ms."""
        return self.ms

    def monotonic_ms(self) -> int:
        """The virtual time in ms, which never goes back."""
        return self.ms

    # -- stepping ----------------------------------------------------------------------------------

    async def settle(self) -> bool:
        """Do everything that is due at the clock's current time. Returns False if work is left even
        after many pieces of work, because it may then be endless."""
        for _ in range(STEPS_MAX):
            if not await self.step():
                return True
        return False

    async def step(self) -> bool:
        """Do the next piece of work; False if nothing is due at the clock's current time.

        If this is cancelled, the running effect continues, and the next step waits for it. The same
        holds if this raises RunWaits, because a tool ran for longer than `patience_s`.
        """
        try:
            if not self.effects.works:
                records = self.reader.poll(0, 1000)
                if records:
                    self.worker.consume(records)
                    return True
                if not self.queue:
                    self.worker.tick()
                    return bool(self.queue) or self._is_behind()
                self.effects.start(self.queue.pop(0))
            await self.effects.ended()
        except Crash:
            self.restart()
        return True

    def _is_behind(self) -> bool:
        end = self.log.end_offsets(SESSION_EVENTS)[0]
        return self.worker.owned[0].next_offset < end

    def next_due_ms(self) -> int | None:
        """The time (Unix ms) at which the next wait ends, such as the wait for a retry or for a
        dead worker's deadline. Waits for a person are left out.
        """
        pending = self.pending()
        dues = [o.due for o in pending if o.due is not None and o.row not in FOR_A_PERSON]
        timer = self.worker.owned[0].next_due
        if timer is not None and any(o.row == ASKED_AGAIN for o in pending):
            dues.append(timer)
        return min(dues, default=None)

    def pending(self) -> list[Obligation]:
        """The pending obligations of every session, one for each row of WAKE that applies."""
        owned, rules = self.worker.owned[0], self.worker.rules
        now = self.worker.now(owned)
        return [
            obligation
            for views in self.all_views()
            for obligation in wake(views, owned.partition, now, rules.get(views.turn.agent))
        ]

    def all_views(self) -> list[SessionViews]:
        """The views of every session, as the worker has them."""
        keys = dict.fromkeys((record.key or b"").decode() for record in self.records())
        names = (key for key in keys if key != PARTITION_KEY)
        found = (self.worker.owned[0].views(name) for name in names)
        return [views for views in found if views is not None and views.turn.known]

    def records(self) -> list[Record]:
        """Every record of the log, in order."""
        return list(self.log.records(SESSION_EVENTS, 0))

    def write(self, session_id: str, writer: str, event: Any) -> None:
        """Append an event as an effect does."""
        self.ms += 1
        headers = tuple(headers_for(event, writer))
        with self.log.lock:
            self.log.store(SESSION_EVENTS, 0, session_id.encode(), encode(event), headers)
        self.crash_if_due(ev.BY_CLASS[type(event)].name)

    def read_blob(self, ref: BlobRef) -> bytes:
        """The content of a blob to which the log refers."""
        return self.blobs.get(ref.sha256)


class Effects:
    """The effects, the sink and the producer of one worker process. After the worker's death,
    nothing more is written.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._produce = appender(engine.log.producer(), Mailbox())
        self._effect: asyncio.Task[object] | None = None
        self._over = asyncio.Event()  # the effect has ended, or the worker is dead
        self._patient_until = math.inf  # in the time of the event loop
        self._call: tuple[str, Call] | None = None  # of the running effect, with its session
        self._late: set[asyncio.Task[None]] = set()
        self.is_dead = False

        async def get_client(_stop: Stop) -> Any:
            return engine.model

        self._means = Means(
            engine.blobs,
            engine.side_log,
            get_client,
            self.chunks_since,
        )

    def _demand_alive(self) -> None:
        """Raise Crash if the worker is dead."""
        if self.is_dead:
            raise Crash

    # -- the producer and the sink -----------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int,
        key: str,
        value: bytes,
        headers: list[tuple[str, bytes]],
        failed: Callable[[str], None],
    ) -> None:
        """Produce a decision or a claim of the worker."""
        self._demand_alive()
        self._engine.ms += 1
        self._produce(topic, partition, key, value, headers, failed)
        self._engine.crash_if_due(dict(headers)["t"].decode())

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Write a chunk."""
        self._write(session_id, "models", event)

    async def outcome(self, session_id: str, event: Any) -> None:
        """Write an outcome."""
        self.report(session_id, event)

    def report(self, session_id: str, event: Any) -> None:
        """Write an outcome that no effect produced."""
        self._write(session_id, ROLE_OF[type(event)], event)

    def _write(self, session_id: str, role: str, event: Any) -> None:
        self._demand_alive()
        self._engine.write(session_id, role, event)

    # -- the effects -------------------------------------------------------------------------------

    def begin(self, session_id: str, begin: Begin) -> None:
        """Put an effect into the queue."""
        run = run_of(session_id, begin, self._means)

        async def work() -> None:
            self._call = (session_id, begin.call) if isinstance(begin, BeginTool) else None
            late = await run.work(self, Stop())
            if late is not None:  # the tool runs past its deadline, and may report a late result
                self._late.add(asyncio.create_task(self._finish(late)))

        self._engine.queue.append(work)

    async def _finish(self, late: Awaitable[None]) -> None:
        try:
            await late
        except Crash:
            if not self.is_dead:
                self._engine.restart()

    @property
    def works(self) -> bool:
        """Whether an effect runs."""
        return self._effect is not None

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run an effect from the queue, while no other effect runs."""
        over = self._over = asyncio.Event()  # an event belongs to one event loop
        self._call = None
        self._restart_patience()
        self._effect = asyncio.ensure_future(work())
        self._effect.add_done_callback(lambda _: over.set())

    async def ended(self) -> None:
        """Wait until the running effect ends or the worker is killed. Raises what the effect
        raised, and RunWaits if it is a tool and runs for too long."""
        try:
            async with asyncio.timeout_at(self._patient_until):
                await self._over.wait()
        except TimeoutError:
            if self._call is not None and not self._over.is_set():
                self._restart_patience()
                raise RunWaits(self._why_it_waits(*self._call)) from None
            await self._over.wait()
        effect, self._effect = self._effect, None
        if effect is not None and not self.is_dead and not effect.cancelled():
            effect.result()

    def _restart_patience(self) -> None:
        self._patient_until = asyncio.get_running_loop().time() + self._engine.patience_s

    def _why_it_waits(self, session_id: str, call: Call) -> str:
        return (
            f"tool {call.name} ({call.key}) of session {session_id} still runs after "
            f"{self._engine.patience_s:g} s. Only the clock of a run is virtual: a tool takes real "
            "time, and its turn waits for it. Kill its worker with `await run.crash()`, let the "
            "tool end sooner, or allow it more with foldlog_agent(..., patience_s=SECONDS)"
        )

    def kill(self) -> None:
        """Cancel the running effect with its tool. A tool's thread cannot be ended, but nothing
        reads its result."""
        self.is_dead = True
        self._over.set()
        killed: list[asyncio.Task[Any]] = [*self._late]
        if self._effect is not None:
            killed += [*self._tool_of(self._effect), self._effect]  # or the effect ends the tool
            self._effect.add_done_callback(lambda effect: effect.cancelled() or effect.exception())
        for task in killed:
            task.cancel()

    def _tool_of(self, effect: asyncio.Task[Any]) -> list[asyncio.Task[Any]]:
        """The task of the tool that an effect runs. Records the tool's thread, if it has one."""
        if self._call is None:
            return []
        session_id, call = self._call
        named = [t for t in threading.enumerate() if t.name == thread_name(call.key)]
        self._engine.threads += [(thread, f"{call.name} ({call.key})") for thread in named]
        tasks, name = asyncio.all_tasks(effect.get_loop()), task_name(session_id, call.key)
        return [task for task in tasks if task.get_name() == name]

    def chunks_since(
        self, session_id: str, _partition: int, offset: int, _attempt: int = 0
    ) -> list[ev.GenChunk]:
        """The chunks of a session from an offset on."""
        records = (r for r in self._engine.records() if r.key == session_id.encode())
        events = (entry_of(r, chunks=True).event for r in records if r.offset >= offset)
        return [event for event in events if isinstance(event, ev.GenChunk)]

    def stop(self, effect: EffectId, why: str) -> bool:
        """Does nothing, because a worker reads and decides only while no effect runs."""
        return True

    def running(self, role: str) -> int:
        """Returns 0, because a worker reads and decides only while no effect runs."""
        return 0

