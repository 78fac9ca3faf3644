"""The faults between machines: what happens to each record, and the assignment of partitions.

Everything that happens here can happen in Kafka.
"""

from random import Random
from typing import Any

from foldlog.log.faults import NORMAL, Fate, Faults as Fates
from foldlog.schemas.topics import SESSION_EVENTS, SESSION_FACTS

SESSION_TIMEOUT_MS = 6_000  # the group's: after this time a silent member loses its partitions


class LogFaults(Fates):
    """What happens to each record: it is on time, late, written twice, lost, or unacknowledged."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.world = world
        self._of_facts = Random(world.seed)  # separate, so that facts change no other fate

    def fate(self, producer, topic, partition, headers) -> Fate:
        world = self.world
        fates = world.scenario.fates
        if topic == SESSION_FACTS and fates and not world.calm:
            return self._fate_of_a_fact()
        if world.calm or not fates or topic != SESSION_EVENTS:
            return NORMAL
        rng = world.rng
        roll = rng.random()
        if roll >= sum(fates.values()):
            return NORMAL
        name = rng.choices(list(fates), list(fates.values()))[0]
        world.stats[f"fault record {name}"] += 1
        match name:
            case "late":
                delay = rng.choice((1_000, 4_000, 12_000, 17_000, 40_000, 150_000))
                fate = Fate(delay_ms=delay, ack=rng.random() < 0.8)
            case "slow":
                fate = Fate(delay_ms=rng.choice((1, 2, 5, 20, 100, 500)))
            case "twice":
                fate = Fate(copies=2)
            case "unacknowledged":
                fate = Fate(ack=False)
            case _:
                fate = Fate(copies=0, ack=False)
        return fate

    def _fate_of_a_fact(self) -> Fate:
        """One fact in five is refused, late or unacknowledged."""
        rng = self._of_facts
        if rng.random() < 0.8:
            return NORMAL
        self.world.stats["fault fact"] += 1
        delay = rng.choice((0, 0, 5, 500, 12_000, 150_000))
        return Fate(delay_ms=delay, copies=rng.choice((0, 1, 1)), ack=rng.random() < 0.5)

    def next_at(self) -> list[int]:
        """The times at which late records land. Only the first record of each queue counts; the
        others wait for it."""
        return [
            queue[0].due_ms - self.world.broker_skew
            for producer in self.world.log.waiting.values()
            for queue in producer._queues.values()
            if queue and queue[0].due_ms is not None
        ]


class Group:
    """The consumer groups, one for each set of roles. Members learn of their assignment late."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.overlap = world.scenario.overlap
        self.owner: dict[tuple[tuple[str, ...], int], Any] = {}
        for roles in sorted({node.roles for node in world.nodes}):
            for p in range(world.partitions):
                self.owner[roles, p] = world.rng.choice(self._members(roles))
        self._notices: list[tuple[int, int, Any]] = []  # (when, lost partition, its former owner)
        for node in world.nodes:
            node.want = self._of(node)

    def _members(self, roles: tuple[str, ...]) -> list[Any]:
        return [node for node in self.world.nodes if node.roles == roles]

    def owns(self, partition: int, node: Any) -> bool:
        """Whether the group has assigned the partition to this node."""
        return self.owner[node.roles, partition] is node

    def _of(self, node: Any) -> set[int]:
        return {p for p in range(self.world.partitions) if self.overlap or self.owns(p, node)}

    def _is_silent(self, node: Any) -> bool:
        since = node.silent_since
        return since is not None and self.world.now - since >= SESSION_TIMEOUT_MS

    def _to_move(self) -> list[tuple[int, Any]]:
        if not any(node.silent_since is not None for node in self.world.nodes):
            return []
        found = []
        for (roles, p), owner in self.owner.items():
            alive = [node for node in self._members(roles) if not self._is_silent(node)]
            if self._is_silent(owner) and alive:
                found.append((p, alive[0]))
        return found

    def offers(self, offers: list) -> None:
        """Add to `offers` the moves of partitions away from silent members, and the notices to
        former owners."""
        for p, node in self._to_move():
            offers.append((1, lambda p=p, node=node: self.move(p, node)))
        for notice in self._notices:
            if notice[0] <= self.world.now:
                offers.append((1, lambda notice=notice: self._notify(notice)))

    def move(self, partition: int, node: Any, notice_ms: int | None = None) -> None:
        """Give a partition to a node. Its former owner learns of the move later, in its own
        poll."""
        loser = self.owner[node.roles, partition]
        if loser is node:
            return
        self.owner[node.roles, partition] = node
        node.want = node.want | {partition}
        self.world.stats["fault partition moves"] += 1
        rng = self.world.rng
        wait = rng.choice((0, 0, 20, 1_000, 3_000)) if notice_ms is None else notice_ms
        self._notices.append((self.world.now + wait, partition, loser))

    def move_away(self, partition: int, node: Any, notice_ms: int | None = None) -> None:
        """Give a partition to another node of the same roles, if there is one."""
        others = [other for other in self._members(node.roles) if other is not node]
        if others:
            self.move(partition, self.world.rng.choice(others), notice_ms)

    def _notify(self, notice: tuple[int, int, Any]) -> None:
        self._notices.remove(notice)
        _, partition, node = notice
        if not self.overlap and not self.owns(partition, node):
            node.want = node.want - {partition}

    def next_at(self) -> list[int]:
        """The times at which a member counts as silent or gets a notice."""
        times = [notice[0] for notice in self._notices]
        for node in self.world.nodes:
            if node.silent_since is not None and not self._is_silent(node):
                times.append(node.silent_since + SESSION_TIMEOUT_MS)
        return times

    def heal(self) -> None:
        """Give each partition to one owner, and let every node know its own partitions."""
        self.overlap = False
        self._notices = []
        for roles, partition in self.owner:
            self.owner[roles, partition] = self.world.rng.choice(self._members(roles))
        for node in self.world.nodes:
            node.want = self._of(node)
