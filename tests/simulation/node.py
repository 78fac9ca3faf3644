"""A machine and the worker process on it: the disk survives a kill, the process does not.

The disk holds the stores and the outbox; the effects and the memory are lost with the process. A
kill strikes at a crash point, between any two actions of the real code: each of these actions calls
an object that this module passes to it.
"""

from typing import Any

from foldlog.log.door import Delivered
from foldlog.processors.advice.prices import list_prices
from foldlog.processors.effects.slots import Slots
from foldlog.processors.store.store import Belongs, DictBackend, Store, _mismatch, version_for
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.fact_sender import FactRows, FactSender
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.lost_effects import LostEffects
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS, Identity, Worker, WorkerParts
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation.effects import SimEffects

ROLES = ("sessions", "models", "tools", "background")  # of worlds without push channels
OUTBOX_MS = 30_000  # as assemble.py's OUTBOX_S


class Killed(BaseException):
    """The process was killed. Only the node may catch this."""


class Disk:
    """The state directory of a worker."""

    def __init__(self) -> None:
        self.stores: dict[int, dict[bytes, bytes]] = {}
        self.loaded: set[int] = set()  # the stores that were not opened since they were loaded
        self.outbox: dict[int, tuple[str, Any]] = {}
        self.kept: list[tuple[str, Any]] = []  # all outcomes that ever were in the outbox
        self._next = 1

    def put(self, session_id: str, event: Any) -> int:
        """Like `Outbox.put`: the outcome is on disk when this returns."""
        token, self._next = self._next, self._next + 1
        self.outbox[token] = (session_id, event)
        self.kept.append((session_id, event))
        return token

    def done(self, token: int) -> None:
        """Like `Outbox.done`."""
        self.outbox.pop(token, None)


class Backend(DictBackend):
    """A store whose process may die right before or right after it writes a batch."""

    def __init__(self, process: "Process", data: dict[bytes, bytes]) -> None:
        super().__init__(data)
        self._process = process

    def write(self, puts, deletes) -> None:
        self._process.crash_point("before a store write")
        super().write(puts, deletes)
        self._process.crash_point("after a store write")


class NodeClock:
    """The clocks of one machine: a wall clock with an error, and a monotonic clock that starts at a
    random time."""

    def __init__(self, world: Any, skew_ms: int, since_ms: int) -> None:
        self._world, self.skew_ms, self._since = world, skew_ms, since_ms

    def now_ms(self) -> int:
        return self._world.now + self.skew_ms

    def monotonic_ms(self) -> int:
        return self._world.now - self._since


class SimWorker(Worker):
    """The real worker, which also counts the rows of WAKE that it discharges."""

    world: Any = None

    def _discharge(self, owned, views, owed, now) -> None:
        self.world.stats[f"row {owed.row}"] += 1
        super()._discharge(owned, views, owed, now)

    def next_take_ms(self) -> int | None:
        """The monotonic time (ms) at which this worker may take back a partition that another
        worker took, or None."""
        due = [
            owned.taken_at + SESSION_TIMEOUT_MS
            for owned in self.owned.values()
            if len(self.held(owned)) < len(self.roles)
        ]
        return min(due, default=None)


class Process:
    """One incarnation of a worker."""

    def __init__(self, node: "Node", incarnation: int) -> None:
        self.node, self.world, self.disk = node, node.world, node.disk
        world = self.world
        self.clock = node.clock
        self.identity = Identity(node.name, str(incarnation))
        self.owner = self.identity.owner
        self.producer = world.log.producer(name=self.owner)
        self.mail = Mailbox()
        self.reader = world.log.reader(SESSION_EVENTS, {})
        self.started = False
        self.emit_until = world.now + OUTBOX_MS
        self.unwritten = 0
        self.effects = SimEffects(self)
        self.model_slots = Slots(world.model_slots)
        self._append = appender(self.producer, self.mail)
        actions = Actions(
            self.owner,
            self.append,
            self.effects,
            world.blobs.body,
            world.blobs.read,
            self.model_slots,
            Slots(world.tool_slots),
            self.clock,
            lambda text: None,
        )
        self.lost = LostEffects(
            world.log, self.effects, world.blobs.read, self.say, threaded=False
        )
        sends = "sessions" in node.roles
        self.worker = SimWorker(
            WorkerParts(
                identity=self.identity, roles=node.roles, agents=[node.agent],
                open_store=self.open_store, actions=actions, clock=self.clock, say=self.say,
                is_dead=world.is_dead, lost_effects=self.lost,
                fact_of=FactRows(self.say, self._add) if sends else None,
                fact_sender=self._fact_sender() if sends else None,
            )
        )
        self.worker.world = world

    def _fact_sender(self) -> FactSender:
        return FactSender(
            self.producer,
            self.world.partitions,
            self.mail.post,
            list_prices(),
            self.clock.monotonic_ms,
            self.say,
            self._add,
        )

    def _add(self, name: str, *labels: str, by: float = 1) -> None:
        self.world.stats[name] += int(by)

    # -- the arguments of the real code ----------------------------------------------------------

    def say(self, text: str) -> None:
        """Note a log line for the operator."""
        self.world.note(f"{self.owner}: {text}")

    def crash_point(self, where: str) -> None:
        """Called where the process can die; see `Node.crash_point`."""
        self.node.crash_point(where)

    def append(self, topic, partition, key, value, headers, failed) -> None:
        """Like `loop.appender`, with a crash point before and after it."""
        self.crash_point("before a record is produced")
        if topic == SESSION_EVENTS:
            kind = headers[0][1]
            self.world.produced(self, partition, key, value, kind)
            if self.node.delays_claim and kind in self.node.delayed:
                self.node.delays_claim(self)
        self._append(topic, partition, key, value, headers, failed)
        self.crash_point("after a record was produced")

    def append_chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Like `Reports.chunk`."""
        self.producer.append(
            SESSION_EVENTS, session_id, encode(event), headers_for(event, "models")
        )

    def open_store(self, partition: int, *, fresh: bool) -> Store:
        """Like `assemble.Parts`: rebuilds a store that belongs to another log."""
        log = self.world.log
        end = log.end_offsets(SESSION_EVENTS)[partition]
        version = version_for(self.node.roles)
        belongs = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), version)
        data = self.disk.stores.setdefault(partition, {})
        is_loaded = partition in self.disk.loaded
        self.disk.loaded.discard(partition)
        store = Store(Backend(self, data), log_end=end, is_loaded=is_loaded)
        if not fresh and (store.belongs is None or _mismatch(store, belongs, end) is None):
            if store.belongs is None:
                store.claim(belongs)
            return store
        data.clear()
        store = Store(Backend(self, data), letters_from=0, log_end=end)
        store.claim(belongs)
        return store

    # -- its life --------------------------------------------------------------------------------

    def emit_pending(self) -> None:
        """Like `Reports.emit_pending`: produces the content of the outbox before any partition is
        taken."""
        for token, (session_id, event) in list(self.disk.outbox.items()):
            self.unwritten += 1

            def settled(answer: Any, token: int = token) -> None:
                self.unwritten -= 1
                if isinstance(answer, Delivered):
                    self.disk.done(token)

            self.effects.produce(session_id, event, settled)
            self.crash_point("while the outbox is emitted")

    def is_due(self) -> bool:
        """Whether a round would have any work."""
        if not self.started:
            return not self.unwritten or self.world.now >= self.emit_until
        if self.has_unread() or self.mail._jobs or self.lost._jobs:
            return True
        due = self.worker.next_due_ms()
        if due == 0:
            return True
        take = self.worker.next_take_ms()
        return take is not None and take <= self.clock.monotonic_ms()

    def has_unread(self) -> bool:
        """Whether the log has records that this process has not read."""
        held = self.world.log.topic(SESSION_EVENTS).partitions
        places = (*self.reader._positions.items(), *self.lost.positions().items())
        return any(held[p].end > at for p, at in places)

    def next_at(self) -> int | None:
        """The world time (ms) at which a round is due even without a new record, or None."""
        if not self.started:
            return self.emit_until if self.unwritten else self.world.now
        waits = []
        due = self.worker.next_due_ms()
        if due is not None:
            waits.append(self.world.now + due)
        take = self.worker.next_take_ms()
        if take is not None:
            waits.append(self.world.now + max(0, take - self.clock.monotonic_ms()))
        return min(waits, default=None)

    def round(self, records_max: int) -> None:
        """Run one round, like `Loop._round`."""
        if not self.started:
            self.started = True
            return
        records = self.reader.poll(0, records_max) if records_max else []
        if records:
            self.crash_point("after a poll")
            for partition, offset in self.worker.consume(records).items():
                self.reader.seek(partition, offset)
        self.mail.drain()
        self.worker.tick()
        self.lost.round(0)
        self.world.round_ended(self)

    def settle_assignment(self) -> None:
        """Revoke the lost partitions and then assign the new ones, as a group reader does inside a
        poll."""
        want, held = set(self.node.want), set(self.worker.owned)
        lost, gained = sorted(held - want), sorted(want - held)
        if lost:
            self.reader.drop(lost)
            self.worker.revoked(lost)
        if gained:
            self.world.assigned(self, gained)
            self.reader.add(self.worker.assigned(gained))


class Node:
    """One machine, with the worker process that runs on it."""

    def __init__(
        self, world: Any, name: str, roles: tuple[str, ...], skew_ms: int, since_ms: int
    ) -> None:
        self.world, self.name, self.roles = world, name, roles
        self.agent = world.agent
        self.clock = NodeClock(world, skew_ms, since_ms)
        self.disk = Disk()
        self.process: Process | None = None
        self.incarnations = 0
        self.want: set[int] = set()
        self.start_at: int | None = world.now
        self.silent_since: int | None = None  # killed or paused; the group will notice
        self.poll_paused_until = 0
        self.effects_paused_until = 0
        self.kill_in = 0  # crash points until it dies; 0: no kill is planned
        self.kill_at = ""  # it dies at the next crash point of this name
        self.delays_claim: Any = None  # called before a claim of a type in `delayed` is produced
        self.delayed: tuple[bytes, ...] = ()
        self.on_begun: Any = None  # called when an effect has begun
        self.on_chunk: Any = None  # called when a piece of an answer was produced

    def crash_point(self, where: str) -> None:
        """Called where the process can die. It dies here if a fault has planned this."""
        if self.kill_in:
            self.kill_in -= 1
        elif self.kill_at != where:
            return
        if self.kill_in == 0:
            self.world.stats[f"fault kill {where}"] += 1
            raise Killed(where)

    def start(self) -> None:
        """Start a new incarnation."""
        self.start_at = self.silent_since = None
        self.incarnations += 1
        if self.world.scenario.upgrades and self.world.rng.random() < 0.4:
            self.agent = self.world.newer_agent
        self.process = Process(self, self.incarnations)
        self.process.emit_pending()

    def die(self, down_ms: int) -> None:
        """Let the process die; another one starts after `down_ms`."""
        if self.process is not None:
            self.world.note(f"{self.process.owner} is killed")
            self.process.producer.kill()
            self.process.worker.owned.clear()
        self.process = None
        self.kill_in, self.kill_at = 0, ""
        self.silent_since = self.world.now
        self.start_at = self.world.now + down_ms

    def offers(self, offers: list) -> None:
        """Add to `offers` the actions that are possible on this machine now, as (weight,
        action)."""
        now, process = self.world.now, self.process
        if process is None:
            if self.start_at is not None and self.start_at <= now:
                offers.append((1, self.start))
            return
        if self.poll_paused_until <= now:
            if process.started and self.want != process.worker.owned.keys():
                offers.append((2, process.settle_assignment))
            if process.is_due():
                offers.append((3, lambda: process.round(self.world.batch())))
        if self.effects_paused_until <= now:
            for task in process.effects.tasks:
                if task.due is not None and task.due <= now:
                    offers.append((1, lambda task=task: process.effects.step(task)))

    def next_at(self) -> list[int]:
        """The world times (ms) at which an action becomes possible on this machine."""
        if self.process is None:
            return [] if self.start_at is None else [self.start_at]
        times = []
        at = self.process.next_at()
        if at is not None or self.process.has_unread():
            times.append(max(at or 0, self.poll_paused_until))
        times += [
            max(task.due, self.effects_paused_until)
            for task in self.process.effects.tasks
            if task.due is not None
        ]
        return times

    def run(self, action) -> None:
        """Run one action. The process may die in the middle of it."""
        try:
            action()
        except Killed:
            self.die(self.world.down_ms())
