"""The state of the in-memory log that its producers, readers and groups share.

It consists of topics, partitions and records, the injected clock and faults, and one lock.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from ..schemas.record import Record
from ..schemas.topics import TopicSpec
from .door import Delivered
from .errors import TopicMissing
from .faults import Clock, Faults
from .partition import partition_for


class Partition:
    """The records of one partition, and its first offset."""

    __slots__ = ("first", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.first = 0

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class Topic:
    """One topic: its partitions and the spec from which it was created."""

    __slots__ = ("keyless", "partitions", "spec", "topic_id")

    def __init__(self, spec: TopicSpec, topic_id: str) -> None:
        assert spec.partitions, f"{spec.name}: the number of partitions is not filled in"
        self.spec, self.topic_id = spec, topic_id
        self.partitions = [Partition() for _ in range(spec.partitions)]
        self.keyless = 0


class InFlight(Protocol):
    """A producer with records in flight."""

    def settle(self, now_ms: int) -> None:
        """Store the records that are due, in order within each partition."""


class MemoryState:
    """The topics, their records, and the records in flight. `MemoryLog` documents the arguments."""

    def __init__(
        self,
        *,
        clock_ms: Callable[[], int] | None,
        faults: Faults | None,
        immediate: bool,
        threaded: bool,
        session_timeout_ms: int,
    ) -> None:
        self.clock_ms: Callable[[], int] = clock_ms or Clock()
        self.faults = faults
        self.immediate, self.threaded = immediate, threaded
        self.session_timeout_ms = session_timeout_ms
        self.lock = threading.RLock()
        self.arrived = threading.Condition(self.lock)
        self.changes = 0
        """Increases with every change that a reader may observe."""
        self.waiting: dict[str, InFlight] = {}
        """Producers with records in flight, by name. A producer that has had such records for
        longer comes first.
        """
        self._topics: dict[str, Topic] = {}

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicMissing(name)
        return topic

    def partitions(self, topic: str) -> int:
        return len(self.topic(topic).partitions)

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
        target = self.topic(topic).partitions[partition]
        offset = target.end
        record = Record(topic, partition, offset, self.clock_ms(), key, value, headers)
        target.records.append(record)
        self.changes += 1
        if self.threaded:
            self.arrived.notify_all()
        return Delivered(partition, offset)

    def settle(self) -> None:
        """Store every record that is due."""
        if self.waiting:
            now = self.clock_ms()
            for producer in list(self.waiting.values()):
                producer.settle(now)
