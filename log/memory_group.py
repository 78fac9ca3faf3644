"""A consumer group in memory: static members, cooperative and deterministic.

It assigns partitions and evicts silent members. Time is the log's injected clock; a member is alive
while it polls.

The rules are those of Kafka's classic group with static members and cooperative rebalancing:
1. Every partition belongs to one member; the members' numbers of partitions differ by at most one;
   as few partitions as possible move.
2. A partition that moves is revoked from its old member before its new member gets it.
3. A member silent for longer than the session timeout is evicted, and others get its partitions.
   The evicted member may still read them and believe that it owns them, until it polls in contact
   with the group (`Faults.heard`): then it loses them and rejoins.
4. A reader that joins under the instance id of a current member gets its partitions at once,
   without a rebalance; the earlier reader is fenced.
5. A closed reader stays a member until the session timeout, so that a restart moves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..schemas.record import Record
from .door import Offsets, OnAssigned, OnRevoked
from .errors import AccessDenied, Fenced, LogUnreachable
from .memory_reader import MemoryReader
from .memory_state import MemoryState


@dataclass(slots=True)
class _Member:
    reader: "MemoryGroupReader"
    seen_ms: int


class Coordinator:
    """The coordinator of one group on one topic."""

    def __init__(self, log: MemoryState, topic: str) -> None:
        self._log, self._topic = log, topic
        self._members: dict[str, _Member] = {}
        self._owner: dict[int, str] = {}
        self._target: dict[str, list[int]] = {}
        self._oldest_ms = 0
        """A lower bound of the times at which the members last polled."""
        self._changes = 0
        """Increases when a partition may be assigned or revoked."""
        self.committed: Offsets = {}

    def heartbeat(self, reader: "MemoryGroupReader") -> tuple[list[int], list[int]]:
        """Record that `reader` is alive, and return the partitions that it loses and those that it
        gains.

        Raises Fenced if a newer reader has its instance id.
        """
        now = self._log.clock_ms()
        me = reader.instance_id
        self._evict_silent(now)
        member = self._members.get(me)
        if member and member.reader is reader and reader.settled == self._changes:
            member.seen_ms = now
            return [], []
        if member is None or member.reader is not reader:
            if reader.joined and member is not None:
                raise Fenced(
                    f"another process joined the group as {me!r}, so this one stops. Nothing is "
                    "lost: the other owns the partitions now. Two workers must not share a state "
                    "directory. Stop one of them."
                )
            forfeited = sorted(reader.positions())
            self._members[me] = member = _Member(reader, now)
            reader.joined = True
            if me not in self._target:
                self._balance()
        else:
            member.seen_ms = now
            forfeited = []
        current = set(reader.positions())
        want = set(self._target[me])
        revoked = forfeited or sorted(current - want)
        for partition in revoked:
            if self._owner.get(partition) == me:
                del self._owner[partition]
        current -= set(revoked)
        gained = sorted(p for p in want - current if self._owner.get(p, me) == me)
        for partition in gained:
            self._owner[partition] = me
        if revoked or gained:
            self._changes += 1
        else:
            reader.settled = self._changes
        return revoked, gained

    def members(self) -> list[tuple[str, str]]:
        """Instance id and label of every member that is not evicted."""
        with self._log.lock:
            self._evict_silent(self._log.clock_ms())
            return [(name, member.reader.label) for name, member in sorted(self._members.items())]

    def _evict_silent(self, now: int) -> None:
        if now - self._oldest_ms <= self._log.session_timeout_ms:
            return
        silent = [
            name
            for name, member in self._members.items()
            if now - member.seen_ms > self._log.session_timeout_ms
        ]
        for name in silent:
            del self._members[name]
            self._owner = {p: who for p, who in self._owner.items() if who != name}
        self._oldest_ms = min((m.seen_ms for m in self._members.values()), default=now)
        if silent:
            self._balance()

    def _balance(self) -> None:
        """Compute the target: equal shares, moving as few partitions as possible."""
        self._changes += 1
        names = sorted(self._members)
        before = {name: self._target.get(name, []) for name in names}
        self._target = {}
        if not names:
            return
        share, extra = divmod(self._log.partitions(self._topic), len(names))
        by_load = sorted(names, key=lambda name: (-len(before[name]), name))
        quota = {name: share + (rank < extra) for rank, name in enumerate(by_load)}
        target = {name: before[name][: quota[name]] for name in names}
        taken = {p for share_of_one in target.values() for p in share_of_one}
        free = [p for p in range(self._log.partitions(self._topic)) if p not in taken]
        for name in names:
            need = quota[name] - len(target[name])
            target[name] = sorted(target[name] + free[:need])
            free = free[need:]
        assert not free, free
        self._target = target


class MemoryGroupReader:
    """See `door.GroupReader`."""

    def __init__(
        self,
        log: MemoryState,
        topic: str,
        coordinator: Coordinator,
        instance_id: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        label: str = "",
    ) -> None:
        self.instance_id, self.label = instance_id, label
        self.joined = False
        self.settled = -1
        """The value of the coordinator's `_changes` when this reader had nothing left to gain or
        lose.
        """
        self._inner = MemoryReader(log, topic, {})
        self._log, self._coordinator = log, coordinator
        self._on_assigned, self._on_revoked = on_assigned, on_revoked

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        assert not self._inner.closed, "the reader is closed"
        faults = self._log.faults
        if faults is not None and not faults.heard(self.instance_id):
            return self._inner.poll(timeout_s, max_records)
        with self._log.lock:
            revoked, gained = self._coordinator.heartbeat(self)
        if revoked:
            self._inner.drop(revoked)
            self._on_revoked(revoked)
        if gained:
            try:
                start = self._on_assigned(gained)
            except AccessDenied:
                raise
            except LogUnreachable:
                self._on_revoked(gained)
                return []
            self._inner.add({partition: start[partition] for partition in gained})
        return self._inner.poll(timeout_s, max_records)

    def rejoin(self, why: str) -> None:
        del why
        partitions = sorted(self.positions())
        self._inner.drop(partitions)
        self.settled = -1
        if partitions:
            self._on_revoked(partitions)

    def positions(self) -> Offsets:
        return self._inner.positions()

    def seek(self, partition: int, offset: int) -> None:
        self._inner.seek(partition, offset)

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._coordinator.committed.update(offsets)

    def close(self) -> None:
        self._inner.close()
