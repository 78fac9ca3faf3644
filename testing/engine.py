"""A worker's core on an in-memory log with a virtual clock; effects run one after the other.

Folding, WAKE, decisions and claims are the worker's own code, and so are model calls (real HTTP to
a scripted server) and tools. What is missing of a worker are threads, the broker and real time: a
step either folds records, runs one effect to its end, or finds nothing to do.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..log.blobs import BlobStore
from ..log.memory import MemoryLog
from ..processors.agent import Agent
from ..processors.effects import background
from ..processors.effects.models import call as models
from ..processors.effects.slots import Slots
from ..processors.fold.views import SessionViews
from ..processors.store.identity import Identity
from ..processors.store.store import DictBackend, Store
from ..processors.tools import call as tools
from ..processors.tools.output_sink import Stop
from ..processors.tools.side_log import SideLogStore
from ..processors.wake.facts import Obligation, wake
from ..processors.worker.actions import Actions
from ..processors.worker.effects_host import content_of, tool_claim_of
from ..processors.worker.loop import Mailbox, appender
from ..processors.worker.ports import BeginGeneration, BeginTool, BeginWork, EffectId
from ..processors.worker.reports import ROLE_OF
from ..processors.worker.worker import Worker
from ..schemas import events as ev
from ..schemas.codec import encode, entry_of, headers_for
from ..schemas.ids import PARTITION_KEY
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS, topics

ROLES = ("sessions", "models", "tools", "background")
START_MS = 1_700_000_000_000
SLOTS = 9
FOR_A_PERSON = ("T2w",)
"""WAKE's rows that wait for a person; time is never advanced to the end of such a wait."""


class Crash(BaseException):
    """Ends a worker at a record. Not an Exception: no effect may catch and report it."""


class Engine:
    """One worker on one partition. `await step()` until it returns False.

    `model_url`: the address of a Messages API. `crashes`: how many more records of an event type
    are written until the worker crashes right after one.
    """

    def __init__(self, agents: list[Agent], model_url: str, directory: Path) -> None:
        self.ms = START_MS
        self.agents, self._model_url = agents, model_url
        self.log = MemoryLog(topics(1), clock_ms=self.now_ms)
        self.blobs = BlobStore(directory / "blobs")
        self.crashes: Counter[str] = Counter()
        self.restarts = 0
        self.log_lines: list[str] = []
        self._side_log = SideLogStore(directory / "side")
        self._begun: list[Callable[[], Any]] = []
        self._client: Any = None
        self._start()

    # -- the worker --------------------------------------------------------------------------------

    def _start(self) -> None:
        """A new worker without memory, which folds the log from its beginning."""
        self._incarnation = Effects(self)
        identity = Identity("w", str(self.restarts + 1))
        append = appender(self.log.producer(), Mailbox())
        actions = Actions(
            identity.owner,
            partial(self._append, self._incarnation, append),
            self._incarnation,
            self.blobs.body,
            lambda ref: self.blobs.get(ref.sha256),
            Slots(SLOTS),
            Slots(SLOTS),
            self,
            self.log_lines.append,
        )

        def open_store(partition: int, *, fresh: bool) -> Store:
            end = self.log.end_offsets(SESSION_EVENTS)[partition]
            return Store(DictBackend({}), log_end=end)

        self.worker = Worker(
            identity, ROLES, self.agents, open_store, actions, self, self.log_lines.append
        )
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned([0]))

    def restart(self) -> None:
        """Kill the worker and start another; only the log and the blobs remain."""
        self._incarnation.is_dead = True
        self._begun.clear()
        self.reader.close()
        self.restarts += 1
        self.ms += 1
        self._start()

    def _append(self, effects: "Effects", append: Any, *args: Any) -> None:
        effects.demand_alive()
        self.ms += 1
        append(*args)
        self._crash_if_due(args[4][0][1].decode())

    def _crash_if_due(self, kind: str) -> None:
        """Crash if the record of this type is the chosen one."""
        if self.crashes[kind]:
            self.crashes[kind] -= 1
            if not self.crashes[kind]:
                raise Crash

    # -- the clocks --------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Unix ms, virtual."""
        return self.ms

    def monotonic_ms(self) -> int:
        """The same clock: it never steps back."""
        return self.ms

    # -- stepping ----------------------------------------------------------------------------------

    async def step(self) -> bool:
        """Do one thing; False if nothing is left to do at this time."""
        try:
            records = self.reader.poll(0, 1000)
            if records:
                self.worker.consume(records)
                return True
            if self._begun:
                await self._begun.pop(0)()
                return True
            self.worker.tick()
            return bool(self._begun) or self._is_behind()
        except Crash:
            self.restart()
            return True

    def _is_behind(self) -> bool:
        end = self.log.end_offsets(SESSION_EVENTS)[0]
        return self.worker.owned[0].next_offset < end

    def next_due_ms(self) -> int | None:
        """When the next wait ends that needs no person: a retry, a deadline of a dead worker."""
        dues = [o.due for o in self.pending() if o.due is not None and o.row not in FOR_A_PERSON]
        return min(dues, default=None)

    def pending(self) -> list[Obligation]:
        """The rows of WAKE that match, of every session."""
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
        self.log.store(SESSION_EVENTS, 0, session_id.encode(), encode(event), headers)
        self._crash_if_due(ev.BY_CLASS[type(event)].name)

    def client(self) -> Any:
        """The real client of the Messages API."""
        if self._client is None:
            self._client = models.make_client("test", self._model_url)
        return self._client

    async def aclose(self) -> None:
        """Close the connections to the model server."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(RuntimeError):  # the loop of an earlier test is closed
                await client.close()

    def begin(self, effect: Callable[[], Any]) -> None:
        """Queue an effect; a later step runs it."""
        self._begun.append(effect)


class Effects:
    """The effects and the sink of one incarnation of the worker: dead, it writes nothing more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_dead = False

    def demand_alive(self) -> None:
        """Raise Crash in what is left of a dead worker."""
        if self.is_dead:
            raise Crash

    # -- the sink ----------------------------------------------------------------------------------

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Write a chunk."""
        self.report(session_id, event)

    async def outcome(self, session_id: str, event: Any) -> None:
        """Write an outcome."""
        self.report(session_id, event)

    def report(self, session_id: str, event: Any) -> None:
        """Write an event of an effect."""
        self.demand_alive()
        role = "models" if isinstance(event, ev.GenChunk) else ROLE_OF[type(event)]
        self._engine.write(session_id, role, event)

    # -- the effects -------------------------------------------------------------------------------

    def generate(self, session_id: str, begin: BeginGeneration) -> None:
        """Begin a model call."""
        claim = models.GenClaim(
            session_id=session_id,
            turn=begin.turn,
            step=begin.step,
            attempt=begin.attempt,
            claimed_at=begin.claim.at,
        )
        self._engine.begin(
            lambda: models.generate(
                claim,
                begin.request,
                self,
                Stop(),
                self._engine.client(),
                limits=begin.agent.limits,
                store_body=self._engine.blobs.body,
                kept=begin.kept,
            )
        )

    def run_tool(self, session_id: str, begin: BeginTool) -> None:
        """Begin a tool call."""
        tool, claim = begin.agent.tool(begin.call.name), tool_claim_of(session_id, begin)
        assert tool is not None, "the agent that proposed it has it"
        host = self._tool_host(begin.agent)
        self._engine.begin(lambda: tools.run(claim, tool, begin.args, self, Stop(), host))

    def reconcile(self, session_id: str, begin: BeginTool) -> None:
        """Ask a tool's reconciler."""
        tool, claim = begin.agent.tool(begin.call.name), tool_claim_of(session_id, begin)
        assert tool is not None, "the agent that proposed it has it"
        host = self._tool_host(begin.agent)
        self._engine.begin(lambda: tools.reconcile(claim, tool, begin.args, self, Stop(), host))

    def _tool_host(self, agent: Agent) -> tools.ToolHost:
        return tools.ToolHost.of(agent, self._engine.blobs, self._engine._side_log)

    def work(self, session_id: str, begin: BeginWork) -> None:
        """Begin background work."""
        claim = background.WorkClaim(
            session_id, begin.kind, begin.upto, begin.attempt, begin.claim.at
        )
        engine = self._engine

        async def client() -> Any:
            return engine.client()

        engine.begin(
            lambda: background.work(
                claim, begin.task, begin.agent, self, Stop(), client, blobs=engine.blobs
            )
        )

    def chunks_since(
        self, session_id: str, _partition: int, offset: int, _attempt: int
    ) -> list[ev.GenChunk]:
        """The chunks of a session from an offset on."""
        records = (r for r in self._engine.records() if r.key == session_id.encode())
        events = (entry_of(r, chunks=True).event for r in records if r.offset >= offset)
        return [event for event in events if isinstance(event, ev.GenChunk)]

    def recover_chunks(self, session_id: str, partition: int, begin: BeginGeneration) -> None:
        """Close a lost attempt with the content of its chunks."""

        async def recover() -> None:
            chunks = self.chunks_since(session_id, partition, begin.since, begin.attempt)
            content = content_of(begin, chunks)
            event = ev.GenStopped(
                turn=begin.turn,
                step=begin.step,
                attempt=begin.attempt,
                why="its worker is gone and the turn is ending",
                content=self._engine.blobs.body(content, "application/json"),
            )
            await self.outcome(session_id, event)

        self._engine.begin(recover)

    def deliver(self, session_id: str, begin: Any) -> None:
        """Nothing is delivered: the engine has no such role."""
        raise AssertionError(f"no deliveries here: {session_id} {begin}")

    def stop(self, effect: EffectId, why: str) -> bool:
        """Effects run to their end within a step, so none is left to stop."""
        return True

    def running(self, role: str) -> int:
        """How many effects run between two steps: none."""
        return 0
