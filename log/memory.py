"""The in-memory log: the same guarantees as a broker, deterministic and fast.

`memory_state.py` stores topics and records, `memory_reader.py` and `memory_group.py` read them; the
producers and the methods of `door.Log` are here. The clock is injected (`clock_ms`). `Faults`
decides the fate of every append, so that a simulator controls it. The log neither compacts nor
expires records; `trim` removes them explicitly.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..schemas.record import Record
from ..schemas.topics import TopicSpec
from .door import (
    Delivered,
    Headers,
    Member,
    Offsets,
    OnAssigned,
    OnDelivery,
    OnFatal,
    OnRevoked,
    TopicReport,
    check_size,
    compare,
)
from .errors import AppendError, LogFatal, TopicMissing
from .faults import NORMAL, Fate, Faults
from .memory_group import Coordinator, MemoryGroupReader
from .memory_reader import MemoryReader
from .memory_state import MemoryState, Topic

SESSION_TIMEOUT_MS = 6000
"""The same timeout as that of the Kafka group reader: see `client.py`."""


@dataclass(slots=True)
class _InFlight:
    """A record in flight. `due_ms`: None while the record's producer is paused."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    on_delivery: OnDelivery | None
    fate: Fate
    due_ms: int | None


class MemoryProducer:
    """See `door.Producer`. A simulator also calls `pump`, `pause`, `resume`, `kill`, `die`."""

    def __init__(self, log: MemoryState, name: str, on_fatal: OnFatal | None) -> None:
        self.name = name
        self._on_fatal = on_fatal
        self._fatal: LogFatal | None = None
        self._log = log
        self._queues: dict[tuple[str, int], deque[_InFlight]] = {}
        self._answers: deque[tuple[OnDelivery, Delivered | AppendError]] = deque()
        self._paused = False
        self._ended = False

    def append(
        self,
        topic: str,
        key: str | bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        assert not self._ended, f"producer {self.name} is closed"
        if self._fatal is not None:
            raise self._fatal
        log = self._log
        raw = key.encode() if isinstance(key, str) else key
        check_size(topic, raw, value, headers)
        with log.lock:
            target = log.topic(topic)
            if partition is None:
                partition = log.place(target, raw)
            elif not 0 <= partition < len(target.partitions):
                raise TopicMissing(f"{topic}/{partition}")
            fate = NORMAL
            if log.faults is not None:
                fate = log.faults.fate(self.name, topic, partition, headers)
            if fate is NORMAL and not self._paused and not self._queues:
                delivered = log.store(topic, partition, raw, value, tuple(headers))
                if on_delivery is not None:
                    self._answers.append((on_delivery, delivered))
            else:
                due = None if self._paused else log.clock_ms() + fate.delay_ms
                self._send(
                    _InFlight(topic, partition, raw, value, tuple(headers), on_delivery, fate, due)
                )
        if log.immediate:
            self.pump()

    def _send(self, record: _InFlight) -> None:
        """Store `record`, or queue it behind records in flight to the same partition."""
        at = (record.topic, record.partition)
        if record.fate.delay_ms or self._paused or at in self._queues:
            self._queues.setdefault(at, deque()).append(record)
            self._log.waiting[self.name] = self
        else:
            self._land(record)

    def _land(self, record: _InFlight) -> None:
        """Store `record` as its fate demands, and queue its callback."""
        first: Delivered | None = None
        for _ in range(record.fate.copies):
            delivered = self._log.store(
                record.topic, record.partition, record.key, record.value, record.headers
            )
            first = first or delivered
        if record.on_delivery is None or self._ended:
            return
        if record.fate.ack and first is not None:
            self._answers.append((record.on_delivery, first))
        else:
            error = AppendError(record.topic, record.key, record.partition, "no answer (injected)")
            self._answers.append((record.on_delivery, error))

    def settle(self, now_ms: int) -> None:
        """Store the records that are due, in order within each partition."""
        for at in list(self._queues):
            queue = self._queues[at]
            while queue and queue[0].due_ms is not None and queue[0].due_ms <= now_ms:
                self._land(queue.popleft())
            if not queue:
                del self._queues[at]
        if not self._queues:
            self._log.waiting.pop(self.name, None)

    def pump(self) -> int:
        """Call the pending `on_delivery` callbacks, and return their number."""
        count = 0
        while self._answers:
            on_delivery, answer = self._answers.popleft()
            on_delivery(answer)
            count += 1
        return count

    def pause(self) -> None:
        """Send nothing until `resume`, like a paused or disconnected process."""
        self._paused = True

    def resume(self) -> None:
        """Send the queued records, each with the delay of its fate."""
        self._paused = False
        with self._log.lock:
            now = self._log.clock_ms()
            for queue in self._queues.values():
                for record in queue:
                    if record.due_ms is None:
                        record.due_ms = now + record.fate.delay_ms
            self.settle(now)
        if self._log.immediate:
            self.pump()

    def kill(self) -> None:
        """End as kill -9 does: no more callbacks; records in flight are still stored."""
        self._ended = True
        self._answers.clear()
        with self._log.lock:
            for at in list(self._queues):
                self._queues[at] = deque(r for r in self._queues[at] if r.due_ms is not None)
            self.settle(self._log.clock_ms())

    def die(self, error: LogFatal) -> None:
        """Fail permanently, as a fenced or unauthorized client does."""
        self._fatal = error
        if self._on_fatal is not None:
            self._on_fatal(error)

    def flush(self, timeout_s: float) -> int:
        """See `door.Producer`.

        It does not wait for a virtual clock, so some records may stay queued.
        """
        with self._log.lock:
            self.settle(self._log.clock_ms())
        self.pump()
        return sum(len(queue) for queue in self._queues.values())

    def close(self) -> None:
        if not self._ended:
            self.flush(0)
            self.kill()


class MemoryLog(MemoryState):
    """Implements `door.Log`. `clock_ms` returns the broker time, by which the session timeout of
    groups is measured too.

    immediate: whether `append` itself calls `on_delivery`; otherwise `pump` or `flush` calls it.
    threaded: whether `poll` waits in real time; otherwise it returns at once, as a simulator needs.
    """

    def __init__(
        self,
        specs: Iterable[TopicSpec] = (),
        *,
        clock_ms: Callable[[], int] | None = None,
        faults: Faults | None = None,
        immediate: bool = True,
        threaded: bool = False,
        cluster_id: str = "memory",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            clock_ms=clock_ms,
            faults=faults,
            immediate=immediate,
            threaded=threaded,
            session_timeout_ms=session_timeout_ms,
        )
        self._cluster_id = cluster_id
        self._created = 0
        self._producers: list[MemoryProducer] = []
        self._groups: dict[tuple[str, str], Coordinator] = {}
        self.apply_topics(specs)

    # The methods of door.Log.

    def producer(
        self, on_fatal: OnFatal | None = None, *, brief: bool = False, name: str | None = None
    ) -> MemoryProducer:
        producer = MemoryProducer(self, name or f"producer-{len(self._producers)}", on_fatal)
        self._producers.append(producer)
        return producer

    def reader(
        self, topic: str, start: Mapping[int, int], *, keys: Collection[bytes] | None = None
    ) -> MemoryReader:
        del keys
        return MemoryReader(self, topic, start)

    def group_reader(
        self,
        topic: str,
        group: str,
        instance_id: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        label: str = "",
    ) -> MemoryGroupReader:
        self.topic(topic)
        at = self._groups.setdefault((topic, group), Coordinator(self, topic))
        return MemoryGroupReader(self, topic, at, instance_id, on_assigned, on_revoked, label)

    def members(self, prefix: str) -> list[Member]:
        named = ((at[1], self._groups[at]) for at in self._groups if at[1].startswith(prefix))
        return [Member(name, *member) for name, group in named for member in group.members()]

    def prefixes(self) -> list[str]:
        return [""]

    def first_offsets(self, topic: str) -> Offsets:
        return {p: each.first for p, each in enumerate(self.topic(topic).partitions)}

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        for partition, before in offsets.items():
            self.trim(topic, partition, max(before, self.first_offsets(topic)[partition]))

    def end_offsets(self, topic: str) -> Offsets:
        with self.lock:
            self.settle()
            return {p: each.end for p, each in enumerate(self.topic(topic).partitions)}

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        found = self.end_offsets(topic)
        for p, partition in enumerate(self.topic(topic).partitions):
            for record in partition.records:
                if record.timestamp_ms >= timestamp_ms:
                    found[p] = record.offset
                    break
        return found

    def identity(self) -> str:
        return self._cluster_id

    def topic_id(self, topic: str) -> str:
        return self.topic(topic).topic_id

    def apply_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        return self._agree(specs, create=True)

    def check_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        return self._agree(specs, create=False)

    def _agree(self, specs: Iterable[TopicSpec], *, create: bool) -> TopicReport:
        created, same, missing, differs = [], [], [], []
        for spec in specs:
            topic = self._topics.get(spec.name)
            if topic is None and create:
                self._created += 1
                self._topics[spec.name] = Topic(spec, f"{self._cluster_id}-{self._created}")
                created.append(spec.name)
            elif topic is None:
                missing.append(spec.name)
            else:
                found = compare(
                    spec,
                    spec.name,
                    len(topic.partitions),
                    topic.spec.replication.factor,
                    topic.spec.properties(),
                )
                differs += found
                if not found:
                    same.append(spec.name)
        return TopicReport(tuple(created), tuple(same), tuple(missing), tuple(differs))

    def interrupt(self) -> None:
        pass  # no request waits here

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    # For simulators.

    def pump(self) -> int:
        """Store due records, call pending `on_delivery` callbacks, and return the number of
        callbacks.
        """
        with self.lock:
            self.settle()
        return sum(producer.pump() for producer in self._producers)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Remove the records before an offset, as retention does."""
        target = self.topic(topic).partitions[partition]
        assert target.first <= before <= target.end, (target.first, before, target.end)
        del target.records[: before - target.first]
        target.first = before
        self.changes += 1

    def delete_topic(self, topic: str) -> None:
        """Delete the topic. If it is recreated, it has another id."""
        del self._topics[topic]
        self.changes += 1

    def committed(self, topic: str, group: str) -> Offsets:
        """The committed offsets of the group."""
        return dict(self._groups[(topic, group)].committed)

    def records(self, topic: str, partition: int) -> list[Record]:
        """A copy of the partition's records."""
        return list(self.topic(topic).partitions[partition].records)
