"""The log on a Kafka cluster: the producer, and KafkaLog, which opens everything else.

Choices that look odd were measured. Each is explained where it is made, here or in `client.py`.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Message, Producer as Client

from ..schemas.topics import DEAD_LETTERS, SESSION_EVENTS, TopicSpec
from .admin import Cluster
from .admin_process import AdminProcess
from .client import (
    ALARM,
    LOGGER,
    MISSING,
    common_properties,
    denied,
    group_properties,
    is_fatal,
    meaning,
    open_client,
    producer_properties,
    reader_properties,
)
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
)
from .errors import (
    AppendError,
    FoldlogError,
    LogBusy,
    LogFatal,
    RecordTooLarge,
    TopicMissing,
)
from .kafka_reader import KafkaGroupReader, KafkaReader
from .partition import partition_for

_POLL_S = 0.2
"""How long the producer's thread waits for acknowledgements before it checks whether to end."""

_CLOSE_S = 5.0
"""How long closing waits for acknowledgements.

Unacknowledged records may or may not be in the log.
"""


class KafkaProducer:
    """Implements `door.Producer`.

    A thread polls for acknowledgements, so that each callback runs as soon as the broker has
    answered.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        prefix: str,
        on_fatal: OnFatal | None,
        counts: Mapping[str, int],
    ) -> None:
        self._prefix, self._on_fatal, self._counts = prefix, on_fatal, counts
        self._servers = str(properties["bootstrap.servers"])
        self._fatal: LogFatal | None = None
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._flushing = 0
        noted = {**properties, "error_cb": self._on_error}
        self._client = open_client(Client, noted, logger=LOGGER)
        self._thread = threading.Thread(target=self._answers, name="foldlog-producer", daemon=True)
        self._thread.start()

    def _answers(self) -> None:
        while not self._ended.is_set():
            try:
                answered = self._client.poll(_POLL_S)
            except (KafkaException, SystemError) as error:
                LOGGER.warning("%s", error)
                # A fatal error may leave the client here and never reach the callback.
                raised = error if isinstance(error, KafkaException) else error.__cause__
                if isinstance(raised, KafkaException) and is_fatal(raised.args[0]):
                    self._on_error(raised.args[0])
                answered = self._ended.wait(_POLL_S)
            if answered and self._flushing:
                with self._changed:
                    self._changed.notify_all()

    def _on_error(self, error: KafkaError) -> None:
        """End the producer on a fatal error.

        Any other error is only logged: if it made a record fail, the callback of that record gets
        the error, too.
        """
        if is_fatal(error):
            self._die(meaning(error, self._servers))
        elif refused := denied(error, self._servers):
            LOGGER.error("%s", refused)
        else:
            LOGGER.info("%s: %s", error.name(), error.str())

    def _die(self, error: FoldlogError) -> None:
        if self._fatal is None:
            self._fatal = error if isinstance(error, LogFatal) else LogFatal(str(error))
            ALARM.error("FATAL %s", self._fatal)
            with self._changed:
                self._changed.notify_all()
            if self._on_fatal is not None:
                self._on_fatal(self._fatal)

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
        assert not self._ended.is_set(), "the producer is closed"
        if self._fatal is not None:
            raise self._fatal
        raw = key.encode() if isinstance(key, str) else key
        check_size(topic, raw, value, headers)
        if partition is None and raw is not None and topic in self._counts:
            # Do not use the client's count, because partitions may be added at any time.
            partition = partition_for(raw, self._counts[topic])

        try:
            self._client.produce(
                self._prefix + topic,
                value=value,
                key=raw,
                headers=list(headers),
                partition=-1 if partition is None else partition,
                on_delivery=(
                    partial(self._answered, topic, raw, on_delivery) if on_delivery else _log_lost
                ),
            )
        except BufferError as error:
            raise LogBusy(
                "the producer's queue is full: the broker is down or slower than the writers. "
                "This record was not queued; those before it stay queued. Try again later."
            ) from error
        except KafkaException as error:
            raise self._refused(topic, raw, value, headers, error.args[0]) from error

    def _answered(
        self,
        topic: str,
        key: bytes | None,
        on_delivery: OnDelivery,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """The callback of one record, on this producer's thread."""
        try:
            partition, offset = _partition(message), message.offset()
            if error is None and partition is not None and offset is not None:
                on_delivery(Delivered(partition, offset))
            elif error is None:  # a repetition that the broker recognized, but no longer found
                on_delivery(AppendError(topic, key, partition, "its offset is unknown"))
            else:
                refused = denied(error, self._servers, self._prefix + topic)
                on_delivery(AppendError(topic, key, partition, error.str(), refused))
        except Exception as error:
            # This thread has no caller, so a bug in a callback must be logged and end the producer.
            ALARM.exception("BUG on_delivery raised")
            self._die(LogFatal(
                f"on_delivery raised {error!r}, which is a bug. Acknowledged records are safe in "
                "the log. End this process and start it again."
            ))

    def _refused(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        error: KafkaError,
    ) -> FoldlogError:
        if error.code() in MISSING:
            return TopicMissing(self._prefix + topic)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            size = len(key or b"") + len(value or b"") + sum(len(v) for _, v in headers)
            return RecordTooLarge(topic, size, size - 1)
        return self._fatal or meaning(error, self._servers, self._prefix + topic)

    def flush(self, timeout_s: float) -> int:
        # Not the client's flush(): it would run callbacks on this thread too, and checks only every
        # 10 ms whether the polling thread has received the last acknowledgement. The client counts
        # a record until its callback has returned.
        assert threading.current_thread() is not self._thread, "a callback must not flush"
        with self._changed:
            self._flushing += 1
            self._changed.wait_for(lambda: self._fatal or not len(self._client), timeout_s)
            self._flushing -= 1
            return len(self._client)

    def close(self) -> None:
        if self._ended.is_set():
            return
        left = 0 if self._fatal else self.flush(_CLOSE_S)
        self._ended.set()
        self._thread.join(_CLOSE_S)
        if left:
            ALARM.error("LOST %d records had no answer when the producer was closed", left)


def _log_lost(error: KafkaError | None, message: Message) -> None:
    """The callback for a record that was appended without `on_delivery`."""
    if error is not None:
        LOGGER.error("LOST a record for %s: %s", message.topic(), error.str())


def _partition(message: Message | None) -> int | None:
    found = message.partition() if message is not None else None
    return found if found is not None and found >= 0 else None


class KafkaLog:
    """See `door.Log`. It connects on first use.

    linger_ms: how long a producer waits to fill a batch, 0 to 5.
    timeout_s: how long a request to the cluster may take before it raises LogUnreachable.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic_prefix: str = "",
        client_properties: Mapping[str, str] | None = None,
        linger_ms: float = 0,
        timeout_s: float = 5.0,
    ) -> None:
        self._prefix, self._linger_ms = topic_prefix, linger_ms
        self._common = common_properties(bootstrap_servers, client_properties or {})
        self._admin = AdminProcess(self._common, timeout_s)
        self._counts: dict[str, int] = {}
        """The number of partitions of each topic when this log first asked for it."""
        self._open: WeakSet[KafkaProducer | KafkaReader] = WeakSet()

    def producer(self, on_fatal: OnFatal | None = None, *, brief: bool = False) -> KafkaProducer:
        properties = producer_properties(self._common, self._linger_ms, brief)
        producer = KafkaProducer(properties, self._prefix, on_fatal, self._counts)
        self._open.add(producer)
        return producer

    def reader(
        self, topic: str, start: Mapping[int, int], *, keys: Collection[bytes] | None = None
    ) -> KafkaReader:
        del keys  # a broker cannot filter records by key
        # The client would wait for a missing topic forever, without an error.
        self._demand(topic, start)
        properties = reader_properties(self._common, self._prefix + "foldlog-readers")
        reader = KafkaReader(properties, self._prefix, topic).start(start)
        self._open.add(reader)
        return reader

    def group_reader(
        self,
        topic: str,
        group: str,
        instance_id: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        label: str = "",
    ) -> KafkaGroupReader:
        self._demand(topic, ())
        properties = group_properties(self._common, self._prefix + group, instance_id, label)
        reader = KafkaGroupReader(
            properties, self._prefix, topic, on_assigned, on_revoked, self.identity
        )
        self._open.add(reader)
        return reader

    def members(self, prefix: str) -> list[Member]:
        found = self._admin.ask(Cluster.members, self._prefix + prefix)
        return [member._replace(group=member.group[len(self._prefix):]) for member in found]

    def prefixes(self) -> list[str]:
        names = self._admin.ask(Cluster.topic_names)
        names = [n for n in names if n.endswith(SESSION_EVENTS) and not n.endswith(DEAD_LETTERS)]
        return sorted(name.removesuffix(SESSION_EVENTS) for name in names)

    def _demand(self, topic: str, partitions: Iterable[int]) -> None:
        count = self.partitions(topic)
        for partition in partitions:
            if not 0 <= partition < count:
                raise TopicMissing(f"{self._prefix}{topic}/{partition}")

    def partitions(self, topic: str) -> int:
        count = self._admin.ask(Cluster.partitions, self._prefix + topic)
        self._counts.setdefault(topic, count)
        return count

    def first_offsets(self, topic: str) -> Offsets:
        return self._admin.ask(Cluster.first_offsets, self._prefix + topic)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._admin.ask(Cluster.delete_before, self._prefix + topic, dict(offsets))

    def end_offsets(self, topic: str) -> Offsets:
        return self._admin.ask(Cluster.end_offsets, self._prefix + topic)

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        return self._admin.ask(Cluster.offsets_at, self._prefix + topic, timestamp_ms)

    def identity(self) -> str:
        return self._admin.ask(Cluster.identity)

    def topic_id(self, topic: str) -> str:
        return self._admin.ask(Cluster.topic_id, self._prefix + topic)

    def apply_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        return self._admin.ask(Cluster.apply_topics, self._full(specs))

    def check_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        return self._admin.ask(Cluster.check_topics, self._full(specs))

    def _full(self, specs: Iterable[TopicSpec]) -> list[TopicSpec]:
        # A read-only view cannot be pickled.
        return [
            replace(spec, name=self._prefix + spec.name, config=dict(spec.config))
            for spec in specs
        ]

    def interrupt(self) -> None:
        self._admin.interrupt()

    def close(self) -> None:
        for client in list(self._open):
            client.close()
        self._admin.close()
