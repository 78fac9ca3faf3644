"""Sends facts (schemas/facts.py) to `session-facts`, in order, at least once.

1. The batch that folds an event also writes the event's fact into the store.
2. Of each partition of session-events, one fact at a time is handed to the producer.
3. When a broker has confirmed it, the next one follows. A fact that failed is sent again.
4. Later, one batch deletes the confirmed facts from the store.

A round of steps 2 to 4 begins HOLD_MS after the one before it at the earliest, unless that one
left facts in the store: the first fact is sent at once, and under load one read and one deletion
serve several.

So whoever sends a fact has seen the confirmation of all facts before it, or has taken over a store
whose owner has. A worker that dies between steps 2 and 4, loads a snapshot or refolds the log
repeats facts, and never leaves one out. Nothing waits in memory but the next READ_MAX facts.

Step 3 runs on the producer's thread, so that a backlog does not wait for the poll loop; all else
runs on the poll thread, for which `post` queues a job.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ...log.door import Delivered, Headers, Producer
from ...log.errors import AppendError, Corrupt, FoldlogError, LogFatal
from ...log.partition import partition_for
from ...schemas.facts import encode_fact
from ...schemas.topics import SESSION_FACTS
from .. import crash_points
from ..advice.prices import PriceTable
from ..facts.derive import DERIVED, draft_of
from ..facts.drafts import completed, pack, unpack
from ..fold.sessions import FoldedEvent
from ..store.partition_cache import PartitionCache
from ..store.store import FactRow, Store

HOLD_MS = 250
READ_MAX = 64
"""How many facts of a partition are read from the store at once."""

RETRY_MS = 1_000
"""Between two tries of a fact that a broker did not take."""


class Add(Protocol):
    """Adds to a counter (meter.py)."""

    def __call__(self, name: str, *labels: str, by: float = 1) -> None: ...


class FactRows:
    """Derives facts for a partition's store. An event whose fact cannot be derived has none: that
    is a bug, which is counted and logged once, and must not stop the worker."""

    of_events = frozenset(DERIVED)

    def __init__(self, say: Callable[[str], None], add: Add) -> None:
        self._say, self._add = say, add
        self._has_failed = False

    def __call__(self, event: FoldedEvent) -> FactRow | None:
        entry, ruling, before, after = event
        try:
            draft = draft_of(entry, before, after, ruling)
            return None if draft is None else (entry.offset, pack(draft))
        except Exception as bug:
            self._add("foldlog_facts_failed")
            if not self._has_failed:
                self._has_failed = True
                self._say(
                    f"session {entry.session_id}: the {type(entry.event).__name__} at offset "
                    f"{entry.offset} has no fact ({type(bug).__name__}: {bug}). The session "
                    "continues, but lists of sessions may be wrong. Please report this bug."
                )
            return None


class _Fact(NamedTuple):
    """The record of a fact. offset: of its event."""

    offset: int
    user_id: str
    value: bytes
    headers: Headers


class _Lane:
    """The facts of one partition on their way. One thread at a time uses `records` and `confirmed`:
    the producer's while `is_busy`, else the poll thread.

    records: the next facts; the first one is in flight while `is_busy`.
    read_to: the offset of the last fact that was read from the store.
    is_full: whether the store may have more facts than were read.
    retry_at: in the clock's monotonic ms.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.records: deque[_Fact] = deque()
        self.confirmed: list[int] = []
        self.read_to = -1
        self.is_busy = self.is_over = self.is_full = False
        self.error = ""
        self.retry_at = 0


class FactSender:
    """See the module docstring. partitions: the number of partitions of `session-facts`."""

    def __init__(
        self,
        producer: Producer,
        partitions: int,
        post: Callable[[Callable[[], None]], None],
        prices: PriceTable,
        monotonic_ms: Callable[[], int],
        say: Callable[[str], None],
        add: Add,
    ) -> None:
        self._producer, self._partitions, self._prices = producer, partitions, prices
        self._post, self._now, self._say, self._add = post, monotonic_ms, say, add
        self._lanes: dict[int, _Lane] = {}
        self._is_failing = False
        self._held_until: int | None = None

    def begins_round(self) -> bool:
        """Begin the next round, in which every partition is sent, if it is time."""
        if self._held_until is not None and self._now() < self._held_until:
            return False
        self._held_until = None
        return True

    def send(self, owned: PartitionCache) -> None:
        """Send the facts in the store of a partition, if none of them is in flight. Raises Corrupt
        if they cannot be read."""
        lane = self._lanes.get(owned.number)
        if lane is None or lane.store is not owned.store:
            self.stop(owned.number)
            lane = self._lanes[owned.number] = _Lane(owned.store)
        if owned.facts_stored is None:
            owned.facts_stored = owned.store.count_facts()
        if lane.is_busy:
            return
        if lane.confirmed:
            owned.facts_stored -= self._delete(lane)
        if not owned.facts_stored or self._now() < lane.retry_at:
            return
        if not lane.records:
            lane.records.extend(self._read(lane))
            lane.is_full = len(lane.records) == READ_MAX
        if lane.records:
            lane.is_busy, lane.error = True, ""
            self._held_until = self._now() + HOLD_MS
            self._produce(lane)

    def _read(self, lane: _Lane) -> Iterator[_Fact]:
        for offset, packed in lane.store.facts(READ_MAX, lane.read_to):
            lane.read_to = offset
            try:
                draft = unpack(packed)
            except ValueError as error:
                raise Corrupt(f"the fact at offset {offset}: {error}") from error
            try:
                fact = completed(draft, self._prices)
                yield _Fact(offset, fact.user_id, *encode_fact(fact))
            except ValueError as bug:
                self._add("foldlog_facts_failed")
                self._say(f"the fact of offset {offset} is left out, which is a bug: {bug}")
                lane.confirmed.append(offset)

    def _delete(self, lane: _Lane) -> int:
        crash_points.reach("facts.confirmed")
        offsets, lane.confirmed = lane.confirmed, []
        lane.store.delete_facts(offsets)
        self._add("foldlog_facts_sent", by=len(offsets))
        self._is_failing = False
        return len(offsets)

    def stop(self, partition: int) -> None:
        """Begin no more facts of a partition, whose store is closed next. A fact in flight may
        still arrive; the next owner of the store sends it again."""
        lane = self._lanes.pop(partition, None)
        if lane is not None:
            lane.is_over = True

    def next_due_ms(self) -> int | None:
        """Ms until the next round begins, or until a fact that failed is sent again; None if
        neither is awaited."""
        now = self._now()
        if self._held_until is not None:
            return max(0, self._held_until - now)
        waits = [lane.retry_at - now for lane in self._lanes.values() if lane.error]
        return max(0, min(waits)) if waits else None

    # -- on the producer's thread, or on the poll thread for the first fact ------------------------

    def _produce(self, lane: _Lane) -> None:
        record = lane.records[0]

        def on_delivery(answer: Delivered | AppendError) -> None:
            self._answered(lane, "" if isinstance(answer, Delivered) else str(answer))

        place = partition_for(record.user_id, self._partitions)
        try:
            self._producer.append(
                SESSION_FACTS,
                record.user_id,
                record.value,
                record.headers,
                partition=place,
                on_delivery=on_delivery,
            )
        except LogFatal:  # the producer has reported it, and the worker ends
            self._rest(lane, "")
        except FoldlogError as error:
            self._rest(lane, str(error))
        else:
            crash_points.reach("facts.sent")

    def _answered(self, lane: _Lane, error: str) -> None:
        if error:
            self._rest(lane, error)
            return
        lane.confirmed.append(lane.records.popleft().offset)
        if lane.records and not lane.is_over:
            self._produce(lane)
        else:
            self._rest(lane, "")

    def _rest(self, lane: _Lane, error: str) -> None:
        """The lane has no fact in flight any more. From now on, the poll thread handles it."""
        self._post(lambda: self._rested(lane, error))

    def _rested(self, lane: _Lane, error: str) -> None:
        lane.is_busy, lane.error = False, error
        if not error:
            self._held_until = None if lane.is_full else self._held_until
            return
        lane.retry_at = self._now() + RETRY_MS
        if not self._is_failing and not lane.is_over:
            self._is_failing = True
            self._say(f"a fact was not sent yet; it is kept and sent again: {error}")
