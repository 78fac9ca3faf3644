"""Runs the real Worker as a pure function: its memory before a step in, its memory after it out.

A `Memory` is all that a worker keeps between two rounds, as an immutable value. Before each step
the memory is put into a real Worker with real Actions, PartitionCache and Store; after the step it
is read back. Equal memories then give equal results, so each step is computed once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from foldlog.processors.agent import Agent
from foldlog.processors.agent_digest import digests_of
from foldlog.processors.effects.ports import EffectId
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.references import Subject
from foldlog.processors.store.clocks import Anchor
from foldlog.processors.store.identity import Identity
from foldlog.processors.store.partition_cache import PartitionCache, may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.worker.actions import Actions, InFlight, ObligationKey
from foldlog.processors.worker.worker import Worker, WorkerParts
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.invariants import Violation
from foldlog.tests.kit.recorded_actions import Begin, RecordedEffects
from foldlog.tests.states.records import SESSION, Draft, Log, Numbered, canonical

ROLES = ("sessions", "models", "tools")
SLOTS = 9  # never short: the simulator searches what waits for a slot
INLINE = MemoryBlobs(inline_max=2**30)


class Awaited(NamedTuple):
    """A record in flight (Actions.InFlight). `turn`: the number of the turn view."""

    subject: Subject
    lane: str
    owed: str
    values: tuple[bytes, ...]
    until_ms: int
    turn: int


class Owned(NamedTuple):
    """The memory of an assigned partition (PartitionCache). `position`: its cursor and views."""

    position: int
    takes_from: int
    taken_at: int
    anchor: Anchor | None = None
    wake_all: bool = False
    stuck: str = ""
    timers: tuple[int, ...] = ()
    wake_at: int | None = None


class Memory(NamedTuple):
    """The memory of a process between two rounds. `owned`: None if it has no partition."""

    owned: Owned | None = None
    awaited: tuple[Awaited, ...] = ()
    begun: tuple[EffectId, ...] = ()
    claimed_at: tuple[tuple[tuple, int], ...] = ()
    rejected: tuple[int, int] | None = None
    asked: tuple[tuple[EffectId, tuple[int, int]], ...] = ()


EMPTY = Memory()


class Begun(NamedTuple):
    """An effect that a step began. `what`: the method of Effects."""

    what: str
    begin: Begin


class Step(NamedTuple):
    """What one step of a worker did. `memory`: afterwards, with the records delivered; `refused`:
    afterwards, if the producer then reported each record of the step as lost."""

    memory: Memory
    refused: Memory
    produced: tuple[int, ...] = ()
    begun: tuple[Begun, ...] = ()
    reported: tuple[Any, ...] = ()
    stopped: tuple[int, ...] = ()


class Host(RecordedEffects):
    """One process of a worker, see the module docstring. It is its own clock."""

    def __init__(self, log: Log, agent: Agent, owner: str) -> None:
        super().__init__()
        self.log, self.agent, self.owner = log, agent, owner
        self.now = 0
        self._announced = digests_of([agent])
        self._turns = Numbered()
        self._stores: dict[int, dict[bytes, bytes]] = {}
        self._produced: list[tuple[int, Callable[[str], None]]] = []

    # -- the arguments of the real code ----------------------------------------------------------

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def _append(self, topic, partition, key, value, headers, failed) -> None:
        draft = self.log.drafts.number(Draft(key, value, tuple(headers)))
        self._produced.append((draft, failed))

    def _store(self, position: int) -> Store:
        """A store whose cursor is at a position."""
        if position not in self._stores:
            end, views, holders = self.log.positions[position]
            backend, rules = DictBackend(), rules_of(self.agent)
            known = {SESSION: views} if end else {}
            Store(backend).write(known, {}, lambda v: may_owe(v, rules), holders, Cursor(end))
            self._stores[position] = backend.data
        store = Store(DictBackend(dict(self._stores[position])))
        store.log_end = store.cursor.offset
        return store

    # -- one step --------------------------------------------------------------------------------

    def assigned(self, memory: Memory, position: int, now: int) -> Step:
        """Assign the partition to the worker, whose store is up to date: folding what the store
        lacks has no effect but time."""

        def take(worker: Worker) -> None:
            worker._open_store = lambda number, fresh: self._store(position)
            worker.assigned([0])

        return self._step(memory, now, take, position)

    def revoked(self, memory: Memory, now: int) -> Step:
        """Take the partition from the worker, which notices it."""
        return self._step(memory, now, lambda worker: worker.revoked([0]), self.log.empty)

    def round(self, memory: Memory, records: tuple[int, ...], now: int) -> Step:
        """Run a round that polls these records."""
        assert memory.owned is not None
        first = self.log.positions[memory.owned.position].end

        def run(worker: Worker) -> None:
            read = [self.log.record(number, first + n) for n, number in enumerate(records)]
            if read:
                worker.consume(read)
            worker.tick()

        position = memory.owned.position
        for number in records:
            position = self.log.after(position, number)
        return self._step(memory, now, run, position)

    def _step(
        self, memory: Memory, now: int, run: Callable[[Worker], None], position: int
    ) -> Step:
        self.now = now
        self.begins, self.reported, self.stopped, self._produced = [], [], [], []
        worker = self._worker(memory)
        run(worker)
        produced = self._produced
        after = self._memory(worker, position)
        refused = after
        if produced:
            for _, failed in produced:
                failed("not acknowledged")
            refused = self._memory(worker, position)
        return Step(
            after,
            refused,
            tuple(draft for draft, _ in produced),
            tuple(Begun(what, begin) for what, begin in self.begins),
            tuple(self.reported),
            tuple(self.stopped),
        )

    def _worker(self, memory: Memory) -> Worker:
        actions = Actions(
            self.owner, self._append, self, INLINE.body, INLINE.read, Slots(SLOTS), Slots(SLOTS),
            self, lambda text: None,
        )
        name, _, incarnation = self.owner.rpartition("/")
        worker = Worker(
            WorkerParts(
                identity=Identity(name, incarnation), roles=ROLES, agents=[self.agent],
                open_store=lambda number, fresh: Store(DictBackend()), actions=actions, clock=self,
                say=lambda text: None, announced=self._announced,
            )
        )
        if memory.begun:
            actions._begun._effects[SESSION] = set(memory.begun)
        if memory.claimed_at:
            actions._claim_times._produced_at[SESSION] = dict(memory.claimed_at)
        if memory.rejected is not None:
            turn, count = memory.rejected
            actions._rejections[SESSION] = (self._turns[turn], count)
        actions.kinds.tools.early_asks._asked = dict(memory.asked)
        for one in memory.awaited:
            key = ObligationKey(0, SESSION, one.lane, one.subject, one.owed)
            values = frozenset(one.values)
            actions._awaited[key] = InFlight(values, one.until_ms, self._turns[one.turn])
            actions._keys_by_session.setdefault(SESSION, set()).add(key)
        if memory.owned is not None:
            worker.owned[0] = self._cache(worker, memory.owned)
        return worker

    def _cache(self, worker: Worker, owned: Owned) -> PartitionCache:
        _end, views, holders = self.log.positions[owned.position]
        cache = PartitionCache(0, self._store(owned.position), worker.hot_sessions)
        cache._keep(SESSION, views)
        cache.partition = holders
        cache.takes_from, cache.taken_at = owned.takes_from, owned.taken_at
        cache.anchor, cache.wake_all = owned.anchor, owned.wake_all
        if owned.stuck:
            cache.stuck[SESSION] = owned.stuck
        cache._timers = [(due, SESSION) for due in owned.timers]
        if owned.wake_at is not None:
            cache._wake_at[SESSION] = owned.wake_at
        return cache

    def _memory(self, worker: Worker, position: int) -> Memory:
        actions, owned = worker.actions, None
        cache = worker.owned.get(0)
        if cache is not None:
            self._demand_equal(cache, position)
            owned = Owned(
                position,
                cache.takes_from,
                cache.taken_at,
                cache.anchor,
                cache.wake_all,
                cache.stuck.get(SESSION, ""),
                tuple(sorted(due for due, _ in cache._timers)),
                cache._wake_at.get(SESSION),
            )
        awaited = tuple(
            sorted(
                Awaited(
                    key.subject, key.lane, key.owed, tuple(sorted(one.values)), one.until_ms,
                    self._turns.number(one.turn),
                )
                for key, one in actions._awaited.items()
            )
        )
        rejected = actions._rejections.get(SESSION)
        return Memory(
            owned,
            awaited,
            tuple(sorted(actions._begun._effects.get(SESSION, ()))),
            tuple(sorted(actions._claim_times._produced_at.get(SESSION, {}).items())),
            None if rejected is None else (self._turns.number(rejected[0]), rejected[1]),
            tuple(sorted(actions.kinds.tools.early_asks._asked.items())),
        )

    def _demand_equal(self, cache: PartitionCache, position: int) -> None:
        """I6: a worker's views equal those of the log's fold at its cursor."""
        end, views, holders = self.log.positions[position]
        same = cache.next_offset == end and cache.partition == holders
        if not same or canonical(cache.views(SESSION)) != canonical(views):
            raise Violation("StoresAgree", f"{self.owner} has other views than the log at {end}")
