"""The in-memory log: the same guarantees as a broker, deterministic and fast.

It holds partitions, offsets and producers in memory; `memory_reader.py` and `memory_group.py` read
them. The clock is injected (`clock_ms`). `Faults` decides the fate of every append, so that a
simulator controls it. No compaction and no retention (`trim` removes records explicitly).
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
from .faults import NORMAL, Clock, Fate, Faults
from .memory_group import Coordinator, MemoryGroupReader
from .memory_reader import MemoryReader
from .partition import partition_for

SESSION_TIMEOUT_MS = 6000
"""As the real group reader's: see `kafka.py`."""


class Partition:
    """The records of one partition, and the first offset still held."""

    __slots__ = ("first", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.first = 0

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class Topic:
    """One topic: its partitions and what it was made from."""

    __slots__ = ("keyless", "partitions", "spec", "topic_id")

    def __init__(self, spec: TopicSpec, topic_id: str) -> None:
        assert spec.partitions, f"{spec.name}: the number of partitions is not filled in"
        self.spec, self.topic_id = spec, topic_id
        self.partitions = [Partition() for _ in range(spec.partitions)]
        self.keyless = 0


@dataclass(slots=True)
class _Sent:
    """A record on its way: `due_ms` None while its producer is paused."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    on_delivery: OnDelivery | None
    fate: Fate
    due_ms: int | None


class MemoryProducer:
    """See `door.Producer`. Beside it, for a simulator: `pump`, `pause`, `resume`, `kill`, `die`."""

    def __init__(self, log: "MemoryLog", name: str, on_fatal: OnFatal | None) -> None:
        self.name = name
        self._on_fatal = on_fatal
        self._fatal: LogFatal | None = None
        self._log = log
        self._queues: dict[tuple[str, int], deque[_Sent]] = {}
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
            held = log.topic(topic)
            if partition is None:
                partition = log.place(held, raw)
            elif not 0 <= partition < len(held.partitions):
                raise TopicMissing(f"{topic}/{partition}")
            fate = NORMAL
            if log.faults is not None:
                fate = log.faults.fate(self.name, topic, partition, headers)
            if fate is NORMAL and not self._paused and not self._queues:
                told = log.store(topic, partition, raw, value, tuple(headers))
                if on_delivery is not None:
                    self._answers.append((on_delivery, told))
            else:
                due = None if self._paused else log.clock_ms() + fate.delay_ms
                sent = _Sent(topic, partition, raw, value, tuple(headers), on_delivery, fate, due)
                self._send(sent)
        if log.immediate:
            self.pump()

    def _send(self, sent: _Sent) -> None:
        """Land `sent`, or queue it behind what is on its way to the same partition."""
        at = (sent.topic, sent.partition)
        if sent.fate.delay_ms or self._paused or at in self._queues:
            self._queues.setdefault(at, deque()).append(sent)
            self._log.waiting[self.name] = self
        else:
            self._land(sent)

    def _land(self, sent: _Sent) -> None:
        """Store `sent` as its fate says, and note the answer owed."""
        first: Delivered | None = None
        for _ in range(sent.fate.copies):
            stored = self._log.store(sent.topic, sent.partition, sent.key, sent.value, sent.headers)
            first = first or stored
        if sent.on_delivery is None or self._ended:
            return
        if sent.fate.ack and first is not None:
            self._answers.append((sent.on_delivery, first))
        else:
            error = AppendError(sent.topic, sent.key, sent.partition, "no answer (injected)")
            self._answers.append((sent.on_delivery, error))

    def settle(self, now_ms: int) -> None:
        """Land what is due, in order within each partition."""
        for at in list(self._queues):
            queue = self._queues[at]
            while queue and queue[0].due_ms is not None and queue[0].due_ms <= now_ms:
                self._land(queue.popleft())
            if not queue:
                del self._queues[at]
        if not self._queues:
            self._log.waiting.pop(self.name, None)

    def pump(self) -> int:
        """Call the `on_delivery` of every record that has its answer; how many were called."""
        count = 0
        while self._answers:
            on_delivery, answer = self._answers.popleft()
            on_delivery(answer)
            count += 1
        return count

    def pause(self) -> None:
        """Send nothing until `resume`, as a process that is stopped or cut off."""
        self._paused = True

    def resume(self) -> None:
        """Send what was held back, each with the delay of its fate."""
        self._paused = False
        with self._log.lock:
            now = self._log.clock_ms()
            for queue in self._queues.values():
                for sent in queue:
                    if sent.due_ms is None:
                        sent.due_ms = now + sent.fate.delay_ms
            self.settle(now)
        if self._log.immediate:
            self.pump()

    def kill(self) -> None:
        """End as kill -9 does: no callback comes any more, what is on its way still lands."""
        self._ended = True
        self._answers.clear()
        with self._log.lock:
            for at in list(self._queues):
                sent = deque(s for s in self._queues[at] if s.due_ms is not None)
                self._queues[at] = sent
            self.settle(self._log.clock_ms())

    def die(self, error: LogFatal) -> None:
        """Fail for good, as a fenced or forbidden client does."""
        self._fatal = error
        if self._on_fatal is not None:
            self._on_fatal(error)

    def flush(self, timeout_s: float) -> int:
        """See `door.Producer`; it does not wait for a virtual clock, so it may leave some."""
        with self._log.lock:
            self.settle(self._log.clock_ms())
        self.pump()
        return sum(len(queue) for queue in self._queues.values())

    def close(self) -> None:
        if not self._ended:
            self.flush(0)
            self.kill()


class MemoryLog:
    """See `door.Log`. `clock_ms` gives broker time and the session timeout of groups.

    immediate: `on_delivery` is called at the end of `append`; else by `pump` or `flush`.
    threaded: `poll` waits in real time; else it returns at once, which is what a simulator wants.
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
        self.clock_ms: Callable[[], int] = clock_ms or Clock()
        self.faults = faults
        self.immediate, self.threaded = immediate, threaded
        self.session_timeout_ms = session_timeout_ms
        self.lock = threading.RLock()
        self.arrived = threading.Condition(self.lock)
        self.changes = 0
        """Goes up with everything that a reader may find new."""
        self.waiting: dict[str, MemoryProducer] = {}
        """Producers that have records on their way, by name, in the order of their first one."""
        self._cluster_id = cluster_id
        self._topics: dict[str, Topic] = {}
        self._made = 0
        self._producers: list[MemoryProducer] = []
        self._groups: dict[tuple[str, str], Coordinator] = {}
        self.apply_topics(specs)

    # The door.

    def producer(
        self, on_fatal: OnFatal | None = None, *, brief: bool = False, name: str | None = None
    ) -> MemoryProducer:
        made = MemoryProducer(self, name or f"producer-{len(self._producers)}", on_fatal)
        self._producers.append(made)
        return made

    def reader(self, topic: str, start: Mapping[int, int]) -> MemoryReader:
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

    def partitions(self, topic: str) -> int:
        return len(self.topic(topic).partitions)

    def first_offsets(self, topic: str) -> Offsets:
        return {p: held.first for p, held in enumerate(self.topic(topic).partitions)}

    def end_offsets(self, topic: str) -> Offsets:
        with self.lock:
            self.settle()
            return {p: held.end for p, held in enumerate(self.topic(topic).partitions)}

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        found = self.end_offsets(topic)
        for p, held in enumerate(self.topic(topic).partitions):
            for record in held.records:
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
            held = self._topics.get(spec.name)
            if held is None and create:
                self._made += 1
                self._topics[spec.name] = Topic(spec, f"{self._cluster_id}-{self._made}")
                created.append(spec.name)
            elif held is None:
                missing.append(spec.name)
            else:
                found = compare(spec, spec.name, len(held.partitions), held.spec.properties())
                differs += found
                if not found:
                    same.append(spec.name)
        return TopicReport(tuple(created), tuple(same), tuple(missing), tuple(differs))

    def interrupt(self) -> None:
        pass  # no question waits here

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    # What a simulator does to it.

    def pump(self) -> int:
        """Land what is due and call every `on_delivery` owed; how many were called."""
        with self.lock:
            self.settle()
        return sum(producer.pump() for producer in self._producers)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Remove the records before that offset, as retention does."""
        held = self.topic(topic).partitions[partition]
        assert held.first <= before <= held.end, (held.first, before, held.end)
        del held.records[: before - held.first]
        held.first = before
        self.changes += 1

    def delete_topic(self, topic: str) -> None:
        """Forget the topic; made anew it has another id."""
        del self._topics[topic]
        self.changes += 1

    def committed(self, topic: str, group: str) -> Offsets:
        """What the group has noted."""
        return dict(self._groups[(topic, group)].committed)

    def records(self, topic: str, partition: int) -> list[Record]:
        """A copy of what the partition holds."""
        return list(self.topic(topic).partitions[partition].records)

    # For the producers and readers of this log.

    def topic(self, name: str) -> Topic:
        held = self._topics.get(name)
        if held is None:
            raise TopicMissing(name)
        return held

    def place(self, topic: Topic, key: bytes | None) -> int:
        if key is not None:
            return partition_for(key, len(topic.partitions))
        topic.keyless += 1
        return (topic.keyless - 1) % len(topic.partitions)

    def store(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
    ) -> Delivered:
        held = self.topic(topic).partitions[partition]
        offset = held.end
        held.records.append(Record(topic, partition, offset, self.clock_ms(), key, value, headers))
        self.changes += 1
        if self.threaded:
            self.arrived.notify_all()
        return Delivered(partition, offset)

    def settle(self) -> None:
        """Land every record that is due."""
        if self.waiting:
            now = self.clock_ms()
            for producer in list(self.waiting.values()):
                producer.settle(now)
