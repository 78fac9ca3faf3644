"""What a member of the fleet has done: facts folded, rows confirmed; and whether it may write.

Faust's own accounting is not used: it commits facts whose rows were not yet sent, and it skips
records that it dropped while it started or restored. Here a partition of session-facts has one
number, `next`: the offset of the fact to fold next. A fact with a lower offset is ignored, one with
a higher offset makes the member seek back, and `next` is what the member commits, after Kafka has
confirmed every row that was written before.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

WAIT_S = 0.05


class TooLate(Exception):
    """The group may have given this member's partitions to another one."""


class Book:
    """The state of one member. The event loop changes it; threads of HTTP requests read it.

    session_s: how long after its last heartbeat a member may write. It is shorter than the time
        after which the group gives its partitions away.
    counted: the offset, in each partition, up to which unknown facts are counted.
    """

    def __init__(self, session_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.next: dict[int, int] = {}
        self.goals: dict[int, int] = {}
        self.rebalances = 0
        self.restored: frozenset[int] = frozenset()
        self.standby: frozenset[int] = frozenset()
        self.folded = 0
        self.restored_rows = 0
        self.rewound = 0
        self.unknown: Counter[str] = Counter()
        self.counted: dict[int, int] = {}
        self.damaged: Counter[str] = Counter()
        self._pending: set[asyncio.Future[Any]] = set()
        self._session_s, self._clock = session_s, clock
        self._beat_at = clock()
        self._hole: tuple[int, int | None] = (-1, None)
        self._again_at = 0.0

    # -- the fence ---------------------------------------------------------------------------------

    def beat(self, sent_at: float) -> None:
        """Record a confirmed heartbeat, sent at this monotonic time."""
        self._beat_at = max(self._beat_at, sent_at)

    def now(self) -> float:
        """The clock of heartbeats."""
        return self._clock()

    async def wait_for_time(self) -> None:
        """Wait until the last heartbeat is recent enough to write. A heartbeat that is confirmed
        after a pause proves that the group gave nothing away meanwhile."""
        while not self.has_time():
            await asyncio.sleep(WAIT_S)

    def demand_time(self) -> None:
        """Raise TooLate if the last heartbeat is too old to answer."""
        if not self.has_time():
            age = self._clock() - self._beat_at
            raise TooLate(f"the last heartbeat was {age:.1f} s ago")

    def has_time(self) -> bool:
        """Whether the last heartbeat is recent enough to write."""
        return self._clock() - self._beat_at <= self._session_s

    # -- facts -------------------------------------------------------------------------------------

    def begin(self, partition: int, committed: int | None, first: int, end: int) -> int:
        """A partition is about to be read. Returns the offset to read from.

        first, end: the first offset of the topic's partition, and the offset after its last record.
        The member answers for the partition once it has folded the records before `end`.
        """
        start = self.next.get(partition)
        if start is None:
            start = committed if committed is not None and first <= committed <= end else first
        self.next[partition] = start
        self.goals[partition] = max(end, self.goals.get(partition, 0))
        return start

    def stop_answering(self) -> None:
        """A rebalance began. A restore that is still under way does not count any more."""
        self.rebalances += 1
        self.restored = frozenset()

    def revoke(self) -> None:
        """No partition is this member's any more: nothing is folded until `begin`."""
        self.restored = frozenset()
        self.next.clear()
        self.goals.clear()

    def may_rewind(self, partition: int) -> bool:
        """Whether to seek back now: once for a hole, and again if that did not help in a second."""
        hole, now = (partition, self.next.get(partition)), self._clock()
        if self._hole == hole and now < self._again_at:
            return False
        self._hole, self._again_at = hole, now + 1.0
        return True

    def folded_to(self, partition: int, following: int) -> None:
        """The facts before the offset `following` are folded, and their rows are handed over."""
        self.next[partition] = following
        self.folded += 1

    # -- rows --------------------------------------------------------------------------------------

    def sent(self, row: "asyncio.Future[Any]") -> None:
        """A row was handed to the producer."""
        self._pending.add(row)
        row.add_done_callback(self._pending.discard)

    @property
    def pending(self) -> int:
        """Rows that Kafka has not confirmed."""
        return len(self._pending)

    async def confirmed(self, within_s: float) -> bool:
        """Wait for the rows handed over so far. Returns whether Kafka confirmed all of them."""
        rows = set(self._pending)
        if not rows:
            return True
        done, late = await asyncio.wait(rows, timeout=within_s)
        return not late and all(not row.cancelled() and row.exception() is None for row in done)

    # -- readers -----------------------------------------------------------------------------------

    def is_ready(self, partition: int) -> bool:
        """Whether this member may answer for a partition."""
        following, goal = self.next.get(partition), self.goals.get(partition)
        if partition not in self.restored or following is None or goal is None:
            return False
        return following >= goal

    def owned(self) -> dict[int, int]:
        """The next offset of each partition of `session-facts` that this member reads."""
        return dict(self.next)
