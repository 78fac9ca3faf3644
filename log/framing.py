"""Translates Confluent framing, so that all other code sees Avro single-object encoding.

    Avro       C3 01 and the fingerprint of the schema (10 bytes), then the body
    Confluent  00 and the schema's id in a registry (5 bytes), then the same body

FramedLog replaces only the head of a value. A write changes the head to Confluent framing if the
settings say so; a read always changes Confluent framing to Avro. Stores, replay, checksums and
bundles are therefore independent of a log's framing. Bodies are not decoded here.

A value that is not a foldlog record in either framing passes unchanged; the codec rejects it.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

from ..schemas.codec import HEAD_BYTES, MAGIC, is_ours
from ..schemas.record import Record
from ..schemas.topics import MEMORY_EVENTS, SESSION_EVENTS
from .door import (
    GroupReader,
    Log,
    OnFatal,
    Producer,
    Reader,
)
from .errors import RegistryAway
from .registry import Registry

CONFLUENT = b"\0"
FRAME_BYTES = 5  # the zero and the id, big-endian
EVENT_TOPICS = frozenset({SESSION_EVENTS, MEMORY_EVENTS})
"""Topics whose records are events. Framing is translated only in these topics: a dead letter keeps
its original bytes, and the other topics contain no Avro.
"""

LOGGER = logging.getLogger("foldlog.log.client")


def to_confluent(value: bytes | None, topic: str, registry: Registry) -> bytes | None:
    """The value in Confluent framing. `topic`: the topic's full name. Raises RegistryAway."""
    if value is None or value[:2] != MAGIC:
        return value
    head = value[:HEAD_BYTES]
    if not is_ours(head):
        return value
    return CONFLUENT + registry.id_of(topic, head).to_bytes(4, "big") + value[HEAD_BYTES:]


def from_confluent(value: bytes | None, registry: Registry) -> bytes | None:
    """The value in Avro single-object encoding. Raises RegistryAway."""
    if value is None or len(value) < FRAME_BYTES or value[:1] != CONFLUENT:
        return value
    head = registry.head_of(int.from_bytes(value[1:FRAME_BYTES], "big"))
    return value if head is None or not is_ours(head) else head + value[FRAME_BYTES:]


class FramedProducer:
    """See `door.Producer`. `append` also raises RegistryAway if it does not know the registry's
    schema id for the event's type and the registry is unavailable.
    """

    def __init__(self, inner: Producer, registry: Registry, prefix: str) -> None:
        self._inner, self._registry, self._prefix = inner, registry, prefix

    def append(
        self,
        topic: str,
        key: str | bytes | None,
        value: bytes | None,
        *rest: Any,
        **named: Any,
    ) -> None:
        if topic in EVENT_TOPICS:
            value = to_confluent(value, self._prefix + topic, self._registry)
        self._inner.append(topic, key, value, *rest, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FramedReader:
    """See `door.Reader` and `door.GroupReader`.

    While the registry is down, `poll` does not return a record that needs it, nor later records of
    the same partition. These records are read again until the registry responds. If there are no
    other records, `poll` returns nothing, as it does while the broker is down.
    """

    def __init__(self, inner: Reader | GroupReader, registry: Registry) -> None:
        self._inner, self._registry = inner, registry

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        found = self._inner.poll(timeout_s, max_records)
        for record in found:
            if record.value and record.value[0] == 0:
                break
        else:
            return found
        records = self._translated(found)
        if not records:  # the next poll returns the same ones at once
            time.sleep(max(0.0, deadline - time.monotonic()))
        return records

    def _translated(self, found: list[Record]) -> list[Record]:
        records: list[Record] = []
        waiting: set[int] = set()
        for record in found:
            if record.partition in waiting:
                continue
            try:
                value = from_confluent(record.value, self._registry)
            except RegistryAway as error:
                waiting.add(record.partition)
                self._inner.seek(record.partition, record.offset)
                place = f"{record.topic}/{record.partition} waits at offset {record.offset}"
                LOGGER.error("%s %s: %s", "REGISTRY", place, error)
                continue
            if value is not record.value:
                # As in kafka_reader.py: every replay runs this; _replace takes twice as long.
                record = tuple.__new__(Record, (*record[:5], value, record.headers))
            records.append(record)
        return records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FramedLog:
    """Implements `door.Log`: wraps the log `inner`, and reads its events in both framings.

    confluent: whether to write events in Confluent framing. prefix: the topic prefix that `inner`
    adds.
    """

    def __init__(self, inner: Log, registry: Registry, *, confluent: bool, prefix: str) -> None:
        self._inner, self._registry = inner, registry
        self._confluent, self._prefix = confluent, prefix

    def producer(self, on_fatal: OnFatal | None = None, **more: Any) -> Producer:
        inner = self._inner.producer(on_fatal, **more)
        return FramedProducer(inner, self._registry, self._prefix) if self._confluent else inner

    def reader(self, topic: str, start: Mapping[int, int], **more: Any) -> Reader:
        reader: Reader = self._framed(topic, self._inner.reader(topic, start, **more))
        return reader

    def group_reader(self, topic: str, *joining: Any) -> GroupReader:
        reader: GroupReader = self._framed(topic, self._inner.group_reader(topic, *joining))
        return reader

    def _framed(self, topic: str, reader: Any) -> Any:
        return FramedReader(reader, self._registry) if topic in EVENT_TOPICS else reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
