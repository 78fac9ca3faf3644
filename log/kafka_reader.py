"""Reads given partitions of a Kafka cluster, or those that a consumer group assigns.

The client delivers errors in place of records; this file maps them to foldlog's errors. A reader
keeps its next offsets in memory only and never starts from committed offsets.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..schemas.record import Record
from .client import LOGGER, MISSING, denied, is_fatal, meaning, open_client
from .door import Offsets, OnAssigned, OnRevoked
from .errors import (
    AccessDenied,
    Fenced,
    FoldlogError,
    LogUnreachable,
    OffsetGone,
    TopicMissing,
)

_GONE = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,  # these offsets now belong to other records
    }
)
_FORBIDDEN = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
)

OUT_S = 30.0
"""How long an evicted member may have no partitions while brokers respond, before its client is
replaced. A client rejoins within 10 s, or never (once in 9 broker pauses of 30 s each).
"""

_EVICTED = "the group evicted this member while no broker answered"

_OUT_CHECK_S = 5.0
"""How many seconds an evicted member waits before it checks again whether a broker responds."""


def _headers(messages: list[Message]) -> list[Any]:
    """The headers of each message as the client returns them: a list of pairs, or None.

    The headers of a message are empty if one of the header names is not valid UTF-8.

    Any producer may write such a name, which must neither lose the record nor crash the process.
    For such a message, `message.headers()` returns a broken list and leaves an exception set. If
    `map` calls the method, CPython raises the exception. If a hot loop calls it, CPython 3.11 and
    newer do not check for the exception, and the process dies of SIGSEGV at the first use of the
    list. Read such headers only once.
    """
    found: list[Any] = []
    header_lists = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(header_lists)
        except (SystemError, UnicodeDecodeError):
            bad = messages[len(found)]
            LOGGER.warning("HEADER names are not UTF-8: %s offset %d", bad.topic(), bad.offset())
            found.append(())
    return found


class KafkaReader:
    """See `door.Reader`."""

    def __init__(self, properties: Mapping[str, Any], prefix: str, topic: str) -> None:
        self._topic, self._full = topic, prefix + topic
        self._servers = str(properties["bootstrap.servers"])
        self._group = str(properties["group.id"])
        self._positions: Offsets = {}
        self._moved: set[int] = set()
        """Partitions assigned or revoked since the last `poll` of the client returned."""
        self._failures: list[FoldlogError] = []
        self._properties = {**properties, "error_cb": self._on_error}
        self._client = open_client(Consumer, self._properties, logger=LOGGER)

    def start(self, start: Mapping[int, int]) -> "KafkaReader":
        self._positions = dict(start)
        self._client.assign([TopicPartition(self._full, p, o) for p, o in start.items()])
        return self

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        left = timeout_s
        while True:
            if self._failures:
                raise self._failures.pop(0)
            records = self._records(self._messages(left, max_records))
            left = deadline - time.monotonic()
            if records or (left <= 0 and not self._failures):
                return records

    def _messages(self, timeout_s: float, max_records: int) -> list[Message]:
        """The client's messages, including errors and ends of partitions."""
        try:
            first = self._client.poll(timeout_s)
            self._moved.clear()
            if first is None:
                return []
            # Never use consume(n, t), which waits all of t for n messages (52 ms instead of 0.5
            # ms).
            messages = self._client.consume(max_records - 1, 0) if max_records > 1 else []
        except KafkaException as error:
            self._failures.append(meaning(error.args[0], self._servers))
            return []
        # If the group moved the partition inside consume(), the record fetched before is stale.
        return messages if first.partition() in self._moved else [first, *messages]

    def _records(self, messages: list[Message]) -> list[Record]:
        topic, positions, records = self._topic, self._positions, []
        new = tuple.__new__  # saves a third of this loop's cost, which every replay pays
        for message, headers in zip(messages, _headers(messages), strict=True):
            error = message.error()
            if error is not None:
                self._fail(error, message)
                continue
            partition, offset = message.partition(), message.offset()
            if partition not in positions or offset is None:
                continue
            positions[partition] = offset + 1
            for _, content in headers or ():
                if content is None:  # other producers may write it
                    headers = [(name, content or b"") for name, content in headers]
                    break
            read = tuple(headers or ())
            time_ms = message.timestamp()[1]
            fields = (topic, partition, offset, time_ms, message.key(), message.value(), read)
            records.append(new(Record, fields))
        return records

    def _fail(self, error: KafkaError, message: Message) -> None:
        """Handle an error delivered instead of a record, or the end of a partition."""
        code, partition = error.code(), message.partition()
        if code == KafkaError._PARTITION_EOF:
            # Past the last record if compaction or a transaction left a gap at the end.
            end = message.offset()
            if partition in self._positions and end is not None:
                self._positions[partition] = end
        elif code in _GONE and partition in self._positions:
            self._failures.append(self._offset_gone(partition))
        elif code in MISSING:
            self._failures.append(TopicMissing(self._full))
        elif is_fatal(error) or code in _FORBIDDEN:
            self._failures.append(meaning(error, self._servers, self._about(code)))
        else:
            LOGGER.warning("%s: %s", error.name(), error.str())

    def _about(self, code: int) -> str:
        """The group or topic that a missing right is for."""
        return self._group if code == KafkaError.GROUP_AUTHORIZATION_FAILED else self._full

    def _offset_gone(self, partition: int) -> OffsetGone:
        first = end = -1
        try:
            at = TopicPartition(self._full, partition)
            first, end = self._client.get_watermark_offsets(at, timeout=1.0, cached=False)
        except KafkaException as error:
            LOGGER.info("%s", error)  # the bounds only improve the message
        return OffsetGone(self._full, partition, self._positions[partition], first, end)

    def _on_error(self, error: KafkaError) -> None:
        """Record a fatal error; log any other error, since the client retries by itself."""
        if is_fatal(error):
            self._failures.append(meaning(error, self._servers))
        elif refused := denied(error, self._servers):
            LOGGER.error("%s", refused)
        else:
            LOGGER.info("%s: %s", error.name(), error.str())

    def positions(self) -> Offsets:
        return dict(self._positions)

    def seek(self, partition: int, offset: int) -> None:
        assert partition in self._positions, f"partition {partition} is not read here"
        # Do not use the client's seek(), which fails on a partition whose offset is out of range.
        at = TopicPartition(self._full, partition, offset)
        self._client.incremental_unassign([at])
        self._client.incremental_assign([at])
        self._positions[partition] = offset

    def close(self) -> None:
        self._client.close()


class KafkaGroupReader(KafkaReader):
    """See `door.GroupReader`."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        prefix: str,
        topic: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        ask: Callable[[], object],
    ) -> None:
        """ask: sends a request to the cluster, and raises LogUnreachable if no broker answers. It
        uses another client than the reader, whose client may be the only one that finds no
        broker."""
        super().__init__(properties, prefix, topic)
        self._on_assigned, self._on_revoked, self._ask = on_assigned, on_revoked, ask
        self._joined = self._closing = self._out = self._unopened = False
        self._answered_since_s: float | None = None
        """Since when every check by this evicted member has found a broker; None if the last check
        found none.
        """
        self._check_at_s = 0.0

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        if not self._joined:
            # Not earlier, because before its first poll a member would own partitions and not read
            # them.
            self._joined = True
            self._client.subscribe(
                [self._full], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
        try:
            found = super().poll(timeout_s, max_records)
            if self._unopened:
                self.rejoin("no broker answered while this member opened its partitions")
            elif self._out:
                self._check_joins()
            return found
        except Fenced:
            if not self._out:
                raise
            # No broker responded for a session timeout. The client rejoined under the same instance
            # id while its old heartbeat was in flight, and so fenced itself: 1 time in 20.
            self.rejoin(_EVICTED)
            return []

    def _check_joins(self) -> None:
        """Rejoin if brokers have responded for OUT_S and the client has not rejoined by itself."""
        now_s = time.monotonic()
        if now_s < self._check_at_s:
            return
        self._check_at_s = now_s + _OUT_CHECK_S
        try:
            self._ask()
        except FoldlogError:
            self._answered_since_s = None
            return
        if self._answered_since_s is None:
            self._answered_since_s = now_s
        elif now_s - self._answered_since_s > OUT_S:
            self.rejoin(_EVICTED)

    def rejoin(self, why: str) -> None:
        # With a new client, because an evicted one cannot join anymore.
        LOGGER.warning("%s; it joins the group again", why)
        self._revoke(self._client, [TopicPartition(self._full, p) for p in self._positions])
        self._closing = True
        self._client.close()
        self._closing = self._joined = self._out = self._unopened = False
        self._failures.clear()
        self._client = open_client(Consumer, self._properties, logger=LOGGER)

    def _lose(self, client: Consumer, lost: list[TopicPartition]) -> None:
        self._out, self._answered_since_s = True, None
        self._revoke(client, lost)

    def _assign(self, client: Consumer, assigned: list[TopicPartition]) -> None:
        self._out = False
        partitions = sorted(at.partition for at in assigned)
        if not partitions or self._closing:
            return
        try:
            start = self._on_assigned(partitions)
        except AccessDenied:
            raise
        except LogUnreachable as error:
            LOGGER.info("%s", error)
            self._unopened = True
            self._on_revoked(partitions)
            return
        client.incremental_assign([TopicPartition(self._full, p, start[p]) for p in partitions])
        for partition in partitions:
            self._positions[partition] = start[partition]
        self._moved.update(partitions)

    def _revoke(self, client: Consumer, revoked: list[TopicPartition]) -> None:
        """Called for revoked and for lost partitions; the client unassigns them by itself."""
        partitions = sorted(at.partition for at in revoked if at.partition in self._positions)
        for partition in partitions:
            del self._positions[partition]
        self._moved.update(partitions)
        if partitions and not self._closing:
            self._on_revoked(partitions)

    def commit(self, offsets: Mapping[int, int]) -> None:
        try:
            committed = [TopicPartition(self._full, p, offset) for p, offset in offsets.items()]
            self._client.commit(offsets=committed, asynchronous=True)
        except KafkaException as error:
            LOGGER.info("%s", error)  # only metrics use commits: the next commit repairs them

    def close(self) -> None:
        self._closing = True
        super().close()
