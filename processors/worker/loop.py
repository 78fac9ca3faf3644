"""The poll loop of a worker: one consumer, one fold, one store per partition, in one thread.

The order of a round is the argument for its correctness (design section 7):
1 poll, 2 decode, 3 fold in memory, 4 one batch with the cursor, 5 wake and produce, 6 now and then
a hint of the cursor to the group. 2 to 5 are Worker.consume.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ...log.door import Delivered, GroupReader, Log, Producer
from ...log.errors import AppendError, FoldlogError, LogFatal, OffsetGone
from ...log.made import demand_as_made, partitions_of
from ...schemas.ids import PARTITION_KEY
from ...schemas.topics import SESSION_EVENTS
from .. import crash_points
from ..fold.projections.partition import ROLES
from .worker import Worker

POLL_S = 0.2  # the longest a round waits: timers and lost records are looked at this often
WROTE = {role.encode(): f"{role}.wrote" for role in ROLES}
COMMIT_ROUNDS = 500  # between two hints of the cursor to the group, for lag metrics only


# Net allocations between two collections. One batch is 20,000 tuples and no garbage: at Python's
# 700 it was looked through 30 times, which took a tenth of a refold.
GC_ALLOCATIONS = 10_000


def rest_gc() -> None:
    """Have the process collect garbage seldom, and never look again at what it has so far."""
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, *gc.get_threshold()[1:])


class Mailbox:
    """What other threads want done in the poll thread, in order."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()

    def post(self, job: Callable[[], None]) -> None:
        """Have a job done in the next round."""
        self._jobs.append(job)

    def fail(self, error: BaseException) -> None:
        """End the poll thread with this error, in the next round."""

        def ends() -> None:
            raise error

        self.post(ends)

    def drain(self) -> None:
        """Do what was posted."""
        while self._jobs:
            self._jobs.popleft()()


def appender(producer: Producer, mail: Mailbox):
    """The Append of Actions: produces at once, tells of a loss in the poll thread."""

    def append(topic, partition, key, value, headers, failed) -> None:
        def answered(answer: Delivered | AppendError) -> None:
            if not isinstance(answer, Delivered):
                mail.post(lambda: failed(str(answer)))

        # The key decides the partition of a session; only the partition's own key can not.
        place = partition if key == PARTITION_KEY and topic == SESSION_EVENTS else None
        try:
            producer.append(topic, key, value, headers, partition=place, on_delivery=answered)
            writer = headers[1][1]  # after the type
            crash_points.reach(WROTE.get(writer, ""))
        except LogFatal:
            raise
        except FoldlogError as error:
            why = str(error)
            mail.post(lambda: failed(why))

    return append


class Loop:
    """Runs rounds until it is told to stop."""

    def __init__(
        self,
        log: Log,
        worker: Worker,
        group: str,
        mail: Mailbox,
        *,
        label: str = "",
        rebalanced: Callable[[], None] = lambda: None,
        opening: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """label: what the group shows of this member. rebalanced: called in the round after
        partitions came or went; what it raises ends the loop. opening: entered while the stores of
        partitions that came together are opened."""
        self._log = log
        self._label, self._rebalanced, self._has_moved = label, rebalanced, False
        self._worker = worker
        self._group = group
        self._mail = mail
        self._opening = opening
        self._halt = threading.Event()
        self._topic_id: str | None = None
        self.rounds = 0
        self.left: list[int] = []  # the partitions that it held when it ended

    def stop(self) -> None:
        """End after the round that runs."""
        self._halt.set()

    def topic_is(self, topic_id: str) -> None:
        """What the topic's id was just now, from any thread: stores of another one are remade."""
        self._topic_id = topic_id

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Poll, fold, write, wake until stopped; then close the stores. Raises what is fatal.

        started: called once, when the partitions are held and what they owed was decided.
        """
        rest_gc()
        reader = self.reader()
        try:
            while not self._halt.is_set() and not self._holds_all():
                self.round(reader)
            started()
            while not self._halt.is_set():
                self.round(reader)
        finally:
            self.left = [number for number in self._worker.owned if self._worker.holds(number)]
            self._worker.close()
            reader.close()

    def _holds_all(self) -> bool:
        owned = self._worker.owned
        return bool(owned) and all(map(self._worker.holds, owned))

    def reader(self) -> GroupReader:
        """The member of the group that this worker is."""
        return self._log.group_reader(
            SESSION_EVENTS,
            self._group,
            self._worker.identity.worker_id,
            self._assigned,
            self._revoked,
            self._label,
        )

    def _assigned(self, partitions: list[int]) -> dict[int, int]:
        self._has_moved = True
        if any(partition >= partitions_of(self._log) for partition in partitions):
            demand_as_made(self._log)
        with self._opening():
            return self._worker.assigned(partitions)

    def _revoked(self, partitions: list[int]) -> None:
        self._has_moved = True
        self._worker.revoked(partitions)

    def _reopen_others(self, reader: GroupReader, topic_id: str) -> None:
        """Begin anew where a store is of another topic than this one.

        A topic that was deleted and made again may hold the offset that is to be read already: no
        error says so, and its records would be folded onto those of the old one. Raises LogCut.
        """
        for number, owned in list(self._worker.owned.items()):
            belongs = owned.store.belongs
            if belongs is not None and belongs.topic_id != topic_id:
                why = f"the topic was deleted and made again (its id is {topic_id} now)"
                reader.seek(number, self._worker.reopened(number, why))

    def round(self, reader: GroupReader) -> None:
        """One round. Raises what is fatal."""
        if self._has_moved:
            self._has_moved = False
            self._rebalanced()
        topic_id, self._topic_id = self._topic_id, None
        if topic_id is not None:
            self._reopen_others(reader, topic_id)
        due = self._worker.next_due_ms()
        wait = POLL_S if due is None else min(POLL_S, due / 1000)
        try:
            records = reader.poll(wait)
        except OffsetGone as gone:
            holds = f"which holds {gone.first} to {gone.end}"
            why = f"offset {gone.offset} is no longer in the log, {holds}"
            reader.seek(gone.partition, self._worker.reopened(gone.partition, why))
            return
        seeks = {}
        if records:
            crash_points.reach("poll.records")
            seeks = self._worker.consume(records)
        self._mail.drain()
        seeks |= self._worker.tick()
        for partition, offset in seeks.items():
            reader.seek(partition, offset)
        self.rounds += 1
        if self.rounds % COMMIT_ROUNDS == 0:
            reader.commit(reader.positions())
