"""The faults of machines, and the times at which they strike. The faults of records are in
fates.py.

A real broker, kernel or operator can cause each of these faults.
"""

from contextlib import suppress
from typing import Any

from foldlog.processors.fold.projections.partition import ROLES
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.store.views_codec import encode_row
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation.effects import CANDIDATE_WRITTEN, MID_STREAM
from foldlog.tests.simulation.node import Killed

CLAIMS = (
    b"TOOL_STARTED", b"GEN_START", b"GEN_RESUMED", b"BACKGROUND_STARTED", b"DELIVERY_STARTED",
)
WORK = (ev.LlmCalled, ev.GenComplete, ev.ToolInvoked, ev.ToolStarted, ev.DeliveryStarted)
AT_WORK = 0.15  # the chance of a fault at each of these events
SHUTDOWN_MS = 5_000
TOOL_POINTS = (
    "claim read back, before a tool begins",
    "inside a tool, before its act",
    "inside a tool, after its act",
)
BACKGROUND_POINTS = (
    "claim read back, before background work begins",
    CANDIDATE_WRITTEN,
)
EFFECT_POINTS = (
    *TOOL_POINTS,
    *BACKGROUND_POINTS,
    "claim read back, before a generation begins",
    "before a completion",
    "before the outbox",
    "after the outbox, before the log",
    "after an outcome was produced",
)
CRASH_POINTS = (
    "before a record is produced",
    "after a record was produced",
    "before a store write",
    "after a store write",
    "after a poll",
    "while the outbox is emitted",
    *EFFECT_POINTS,
)


class Faults:
    """The faults of a schedule, at random times, as many as the scenario states."""

    def __init__(self, world: Any) -> None:
        self.world = world
        scenario = world.scenario
        self.left = scenario.faults_max if scenario.faults else 0
        self._names = list(scenario.faults)
        self._weights = list(scenario.faults.values())
        self._at = self._next_time()
        self._undo: list[tuple[int, Any]] = []
        self._overtaken: list[Any] = []  # processes whose records land right after another's take
        self._snapshots: dict[str, dict[int, dict[bytes, bytes]]] = {}
        self._shared: dict[int, tuple[str, dict[bytes, bytes]]] = {}  # by partition, with its node

    def _next_time(self) -> int:
        mean = self.world.scenario.fault_every_ms
        return self.world.now + int(self.world.rng.expovariate(1 / mean)) if mean else 0

    def done(self) -> bool:
        """Whether no further fault will strike."""
        return not self._undo and (not self.left or self.world.users.done())

    def offers(self, offers: list) -> None:
        """Add to `offers` the faults that are due to begin or to end."""
        for undo in self._undo:
            if undo[0] <= self.world.now:
                offers.append((1, lambda undo=undo: self._end(undo)))
        if self.left and not self.world.calm and self._at <= self.world.now:
            offers.append((1, self._strike))

    def next_at(self) -> list[int]:
        """The times at which the next fault strikes or ends."""
        times = [undo[0] for undo in self._undo]
        if self.left and not self.world.calm:
            times.append(self._at)
        return times

    def _end(self, undo: tuple[int, Any]) -> None:
        self._undo.remove(undo)
        undo[1]()

    def _after(self, ms: int, action: Any) -> None:
        self._undo.append((self.world.now + ms, action))

    def _strike(self) -> None:
        self.left -= 1
        self._at = self._next_time()
        rng = self.world.rng
        name = rng.choices(self._names, self._weights)[0]
        owners = list(self.world.group.owner.values())  # most faults strike owners
        node = rng.choice(owners if rng.random() < 0.7 else self.world.nodes)
        self.world.stats[f"fault {name}"] += 1
        self.world.note(f"fault: {name} on {node.name}")
        getattr(self, name)(node)

    def heal(self) -> None:
        """End every fault."""
        for undo in list(self._undo):
            self._end(undo)
        self.left = 0
        for node in self.world.nodes:
            node.kill_in, node.kill_at = 0, ""
            node.delays_claim = node.on_begun = node.on_chunk = None
            node.poll_paused_until = node.effects_paused_until = 0
            node.silent_since = None
            if node.process is None:
                node.start_at = self.world.now
            else:
                node.process.producer.resume()

    def saw(self, seen: Any) -> None:
        """Note a record. Faults strike most often when an effect is at work, and a paused worker
        may wake up as a zombie right after another attempt has begun."""
        event = seen.entry.event
        at_work = isinstance(event, WORK) and seen.ruling.accepted and self.left
        if at_work and self.world.rng.random() < AT_WORK:
            self._at = self.world.now
        if not isinstance(event, ev.GenResumed | ev.ToolStarted) or event.attempt == 1:
            return
        for node in self.world.nodes:
            if node.effects_paused_until > self.world.now and self.world.rng.random() < 0.6:
                self.world.stats["fault zombie wakes"] += 1
                node.poll_paused_until = node.effects_paused_until = self.world.now
                node.silent_since = None

    def saw_take(self, owner: str) -> None:
        """Note that this owner's PARTITION_TAKEN is in the log. The records that were held back
        until then reach the log now, before the owner polls."""
        for process in [p for p in self._overtaken if p.owner != owner]:
            self._overtaken.remove(process)
            process.producer.resume()

    # -- the faults, by the names that scenarios use ---------------------------------------------

    def kill(self, node: Any) -> None:
        """Kill the node between two actions."""
        node.die(self.world.down_ms())

    def kill_soon(self, node: Any) -> None:
        """Kill the node at some crash point, in the middle of an action."""
        node.kill_in = self.world.rng.randint(1, 14)

    def kill_at(self, node: Any) -> None:
        """Kill the node when it next passes a crash point of this name."""
        node.kill_at = self.world.rng.choice(CRASH_POINTS)

    def freeze_at_work(self, node: Any) -> None:
        """Pause the node right after its next effect began, so that another node must take the
        effect over."""
        tools_only = self.world.rng.random() < self.world.scenario.at_tools

        def freeze(role: str) -> None:
            if tools_only and role != "tools":
                return
            node.on_begun = None
            if self.world.rng.random() < 0.25:
                self._to_the_brink(node)
                return
            self._freeze(node, self.world.rng.choice((9_000, 25_000, 80_000, 80_000, 300_000)))

        node.on_begun = freeze

    def _to_the_brink(self, node: Any) -> None:
        """Delay the effect that was just begun until its start window is about to end or has just
        ended. Tools act at the last moment that their deadlines allow."""
        node.effects_paused_until = self.world.now + self.world.rng.choice((4_900, 5_200))
        self.world.brink = True
        self._after(200_000, lambda: setattr(self.world, "brink", False))

    def pause(self, node: Any) -> None:
        """Pause the whole process; the group takes its partitions away."""
        self._freeze(node, self.world.rng.choice((300, 5_000, 9_000, 20_000, 80_000, 300_000)))

    def _freeze(self, node: Any, span: int) -> None:
        node.poll_paused_until = node.effects_paused_until = self.world.now + span
        if node.process is not None:
            node.silent_since = self.world.now
            self._after(span, lambda process=node.process: self._resumed(node, process))

    def _resumed(self, node: Any, process: Any) -> None:
        if node.process is process:
            node.silent_since = None
            if self.world.rng.random() < 0.5:  # the process may act before it polls
                node.kill_at = self.world.rng.choice(("", "", "after an outcome was produced"))

    def stall_poll(self, node: Any) -> None:
        """Pause the poll thread of a node. Its effects continue, and it stays in the group."""
        span = self.world.rng.choice((300, 5_500, 9_000, 20_000, 80_000))
        node.poll_paused_until = self.world.now + span

    def stall_effects(self, node: Any) -> None:
        """Pause the effects of a node while its poll thread continues."""
        span = self.world.rng.choice((300, 5_500, 20_000, 80_000))
        node.effects_paused_until = self.world.now + span

    def cut_off(self, node: Any) -> None:
        """Prevent the records of a node from reaching the broker for a while."""
        if node.process is None:
            return
        span = self.world.rng.choice((500, 7_000, 20_000, 100_000))
        producer = node.process.producer
        producer.pause()
        self._after(span, producer.resume)

    def claim_overtaken(self, node: Any) -> None:
        """Hold back the node's next claim until another node takes the partition, so that the claim
        is void."""

        def hold(process: Any) -> None:
            node.delays_claim = None
            process.producer.pause()
            span = self.world.rng.choice((2_000, 9_000, 9_000, 40_000))
            self._after(span, process.producer.resume)
            if self.world.rng.random() < 0.6:
                self._overtaken.append(process)
            wait = self.world.rng.choice((0, 0, 1_000, 60_000))
            for partition in sorted(process.worker.owned):
                self.world.group.move_away(partition, node, wait)

        tools_only = self.world.rng.random() < self.world.scenario.at_tools
        node.delays_claim, node.delayed = hold, CLAIMS[:1] if tools_only else CLAIMS

    def kill_effect(self, node: Any) -> None:
        """Kill the node before, in or after its next effect."""
        at_tools = self.world.rng.random() < self.world.scenario.at_tools
        node.kill_at = self.world.rng.choice(TOOL_POINTS if at_tools else EFFECT_POINTS)

    def kill_streaming(self, node: Any) -> None:
        """Kill the node after the next chunk of an answer."""
        node.kill_at = MID_STREAM

    def freeze_streaming(self, node: Any) -> None:
        """Pause the node after the next chunk of an answer. It streams the rest when it wakes."""

        def freeze() -> None:
            node.on_chunk = None
            self._freeze(node, self.world.rng.choice((9_000, 80_000, 80_000, 300_000)))

        node.on_chunk = freeze

    def kill_background(self, node: Any) -> None:
        """Kill the node before, in or after its next background work."""
        node.kill_at = self.world.rng.choice(BACKGROUND_POINTS)

    def shut_down(self, node: Any) -> None:
        """End the node as host.py does: partitions are given up, model calls stop, tools get a few
        seconds."""
        process = node.process
        if process is None or not process.started:
            return
        left = list(process.worker.owned)
        process.reader.drop(left)
        process.worker.close()
        node.want = set()
        process.effects.leave()

        def end() -> None:
            if node.process is process:
                if not node.disk.outbox and not sum(map(process.effects.running, ROLES)):
                    with suppress(Killed):
                        for number in left:
                            process.worker.deaths.write(number, process.owner)
                node.die(self.world.down_ms())

        self._after(SHUTDOWN_MS, end)

    def clock_steps(self, node: Any) -> None:
        """Step the node's wall clock: within the margin, or by up to an hour in every third
        world."""
        factor = 900 if self.world.seed % 3 == 0 else 1
        node.clock.skew_ms = self.world.rng.choice((-4_000, -500, 0, 4_000)) * factor

    def store_foreign(self, node: Any) -> None:
        """Kill the node and replace its store by one of another log, whose last folded record is
        not in this log."""
        node.die(self.world.down_ms())
        for data in node.disk.stores.values():
            if b"\0cursor" in data:
                offset = Store(DictBackend(data)).cursor.offset + self.world.rng.choice((0, 0, 900))
                data[b"\0cursor"] = encode_row(Cursor(offset, 12345))

    def move(self, node: Any) -> None:
        """Let the group move a partition, without a cause in the node."""
        self.world.group.move(self.world.rng.randrange(self.world.partitions), node)

    def move_unnoticed(self, node: Any) -> None:
        """Let the group move a partition whose former owner learns of the move late."""
        wait = self.world.rng.choice((10_000, 60_000, 200_000))
        self.world.group.move(self.world.rng.randrange(self.world.partitions), node, wait)

    def flap(self, node: Any) -> None:
        """Let the group take the node's partitions away, and give them back before another node
        gets them."""
        lost, process = node.want, node.process
        node.want = set()

        def back() -> None:
            if node.process is process:
                node.want |= {p for p in lost if self.world.group.owns(p, node)}

        self._after(self.world.rng.choice((50, 500, 3_000)), back)

    def store_lost(self, node: Any) -> None:
        """Kill the node and delete its store."""
        node.die(self.world.down_ms())
        node.disk.stores.clear()

    def store_behind(self, node: Any) -> None:
        """Kill the node and replace its store by an older copy. The first call only makes the
        copy."""
        old = self._snapshots.get(node.name)
        if old is None:
            copy = {number: dict(data) for number, data in node.disk.stores.items()}
            self._snapshots[node.name] = copy
            return
        node.die(self.world.down_ms())
        node.disk.stores = {number: dict(data) for number, data in old.items()}

    def store_loaded(self, node: Any) -> None:
        """Kill the node, and give it the snapshots that other nodes made before. Its own stores are
        copied as snapshots in any case."""
        theirs = {
            number: dict(data)
            for number, (name, data) in self._shared.items()
            if name != node.name
        }
        for number, data in node.disk.stores.items():
            self._shared[number] = node.name, dict(data)
        if theirs:
            node.die(self.world.down_ms())
            node.disk.stores.update(theirs)
            node.disk.loaded |= theirs.keys()

    def replay(self, node: Any) -> None:
        """Append a copy of an earlier record, like a retry that was in flight for a long time."""
        topic = self.world.log.topic(SESSION_EVENTS)
        number = self.world.rng.randrange(len(topic.partitions))
        records = topic.partitions[number].records
        if records:
            old = self.world.rng.choice(records)
            self.world.log.store(SESSION_EVENTS, number, old.key, old.value, old.headers)
