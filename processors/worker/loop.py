"""The poll loop of a worker: one consumer, one fold, one store per partition, in one thread.

The correctness of a round follows from its order: 1. poll; 2. decode; 3. fold in memory; 4. write
one batch with the cursor; 5. evaluate WAKE and produce; 6. once in COMMIT_ROUNDS rounds, commit the
cursor to the group as a hint. Worker.consume executes steps 2 to 5.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ...log.door import Delivered, GroupReader, Log, Producer
from ...log.errors import (
    AccessDenied,
    AppendError,
    FoldlogError,
    LogFatal,
    LogUnreachable,
    OffsetGone,
)
from ...log.made import demand_as_made, partitions_of
from ...schemas.ids import PARTITION_KEY
from ...schemas.topics import SESSION_EVENTS
from .. import crash_points
from ..fold.projections.partition import ROLES
from .worker import Worker

POLL_S = 0.2  # longest wait of a round: timers and lost records are checked at least this often
WROTE = {role.encode(): f"{role}.wrote" for role in ROLES}
COMMIT_ROUNDS = 500  # rounds between two commits of the cursor, which serve only lag metrics


# Net allocations between two collections. One batch is 20,000 tuples and no garbage: at Python's
# default of 700 it was scanned 30 times, which took a tenth of a refold.
GC_ALLOCATIONS = 10_000


def tune_gc() -> None:
    """Make garbage collection rare, and exclude all objects that exist now from it."""
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, *gc.get_threshold()[1:])


class Mailbox:
    """Jobs from other threads that the poll thread runs, in order."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()

    def post(self, job: Callable[[], None]) -> None:
        """Run a job in the next round."""
        self._jobs.append(job)

    def fail(self, error: BaseException) -> None:
        """End the poll thread with this error, in the next round."""

        def fail() -> None:
            raise error

        self.post(fail)

    def drain(self) -> None:
        """Run the posted jobs."""
        while self._jobs:
            self._jobs.popleft()()


def appender(producer: Producer, mail: Mailbox):
    """The function by which Actions produce records. It does not wait. If a record is lost, the
    poll thread calls the `failed` that was passed with the record."""

    def append(topic, partition, key, value, headers, failed) -> None:
        def on_delivery(answer: Delivered | AppendError) -> None:
            if not isinstance(answer, Delivered):
                mail.post(lambda: failed(str(answer)))

        # A session's key determines its partition; PARTITION_KEY does not.
        place = partition if key == PARTITION_KEY and topic == SESSION_EVENTS else None
        try:
            producer.append(topic, key, value, headers, partition=place, on_delivery=on_delivery)
            writer = headers[1][1]  # headers[0] is the type
            crash_points.reach(WROTE.get(writer, ""))
        except LogFatal:
            raise
        except FoldlogError as error:
            why = str(error)
            mail.post(lambda: failed(why))

    return append


class Loop:
    """Runs rounds until it is stopped."""

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
        """label: the group metadata of this member.
        rebalanced: called in the round after partitions were assigned or revoked; if it raises, the
            loop ends.
        opening: a context in which the stores of a batch of assigned partitions are opened.
        """
        self._log = log
        self._label, self._rebalanced, self._has_moved = label, rebalanced, False
        self._worker = worker
        self._group = group
        self._mail = mail
        self._opening = opening
        self._halt = threading.Event()
        self._topic_id: str | None = None
        self.rounds = 0
        self.has_started = False  # whether it has held all its partitions
        self.held_at_end: list[int] = []  # the partitions held when the loop ended

    def stop(self) -> None:
        """End after the current round."""
        self._halt.set()

    def topic_is(self, topic_id: str) -> None:
        """Pass the topic's current id to the loop, which rebuilds stores that belong to a topic
        with another id. Any thread may call this.
        """
        self._topic_id = topic_id

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Run rounds until stopped, then close the stores. Raises fatal errors.

        started: called once, when the worker holds its partitions and has discharged their
        obligations.
        """
        tune_gc()
        reader = self.reader()
        try:
            while not self._halt.is_set() and not self._holds_all():
                self.step(reader)
            self.has_started = True
            started()
            while not self._halt.is_set():
                self.step(reader)
        finally:
            self.held_at_end = list(filter(self._worker.holds, self._worker.owned))
            self._worker.close()
            reader.close()

    def _holds_all(self) -> bool:
        owned = self._worker.owned
        return bool(owned) and all(map(self._worker.holds, owned))

    def reader(self) -> GroupReader:
        """This worker's member of the group."""
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
        """Reopen the stores that belong to a topic with another id.

        If a topic was deleted and recreated, the new topic may already have a record at the offset
        that this worker reads next. Then no error occurs, and without this check the new topic's
        records would be folded into the old topic's views. Raises LogCut if the log has lost
        records that must be folded.
        """
        for number, owned in list(self._worker.owned.items()):
            belongs = owned.store.belongs
            if belongs is not None and belongs.topic_id != topic_id:
                why = f"the topic was deleted and recreated (its id is {topic_id} now)"
                reader.seek(number, self._worker.reopened(number, why))

    def step(self, reader: GroupReader) -> None:
        """Run one round. Raises fatal errors.

        If no broker answered, for example while a store was rebuilt, the worker closes its stores
        at their cursors, joins the group again, and opens them when a broker answers.
        """
        try:
            self.round(reader)
        except AccessDenied:
            raise
        except LogUnreachable as error:
            reader.rejoin(str(error))

    def round(self, reader: GroupReader) -> None:
        """Run one round. Raises fatal errors."""
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
            why = f"offset {gone.offset} is no longer in the log ({gone.first} to {gone.end})"
            reader.seek(gone.partition, self._worker.reopened(gone.partition, why))
            return
        seeks = {}
        if records:
            crash_points.reach("poll.records")
            seeks = self._worker.consume(records)
            if self._worker.held_up:
                self._halt.wait(POLL_S)  # the record would be read again at once
        self._mail.drain()
        seeks |= self._worker.tick()
        for partition, offset in seeks.items():
            reader.seek(partition, offset)
        self.rounds += 1
        if self.rounds % COMMIT_ROUNDS == 0:
            reader.commit(reader.positions())
