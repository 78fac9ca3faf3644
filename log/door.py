"""The interface to the log: the protocols that `kafka.py` (a broker) and `memory.py` implement.

One contract test runs against both. Topic and group names are passed without prefix: the log adds
the prefix of the installation. Offsets are per partition; a start offset is the offset of the first
record to read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..schemas.record import Record
from ..schemas.topics import (
    AT_LEAST,
    FOREVER_MS,
    PARTITION_COUNT,
    RECORD_BYTES_MAX,
    REPLICATION_FACTOR,
    TopicSpec,
)
from .errors import AppendError, LogFatal, RecordTooLarge, TopicMismatch, TopicMissing

Headers = Sequence[tuple[str, bytes]]
Offsets = dict[int, int]
"""An offset for each partition."""

SHOWN_MAX = 3
"""The most differences that an error names; they often have the same cause."""

HEADER_OVERHEAD_BYTES = 10
"""The overhead of a header: two varints of at most 5 bytes each."""


class Delivered(NamedTuple):
    """Where the broker put a record."""

    partition: int
    offset: int


OnDelivery = Callable[[Delivered | AppendError], None]
OnAssigned = Callable[[list[int]], Mapping[int, int]]
OnRevoked = Callable[[list[int]], None]
OnFatal = Callable[[LogFatal], None]


class Member(NamedTuple):
    """A live member of a group. `label`: the label with which it joined, or ''."""

    group: str
    instance_id: str
    label: str


class Producer(Protocol):
    """Writes records. May be used from several threads."""

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
        """Queue one record and return at once; `on_delivery` receives the outcome.

        The key chooses the partition (`partition_for`) unless one is given. Records that one
        producer queues for one partition keep their order. A None value is a tombstone.
        `on_delivery` is called exactly once, on any thread; it must not block.
        Raises RecordTooLarge, LogBusy, TopicMissing (where known at once), LogFatal.
        """

    def flush(self, timeout_s: float) -> int:
        """Wait at most `timeout_s` seconds until every record has an outcome; returns how many have
        none.
        """

    def close(self) -> None:
        """Flush briefly and close the producer. Appending afterwards is a bug."""


class Reader(Protocol):
    """Reads given partitions of one topic from given offsets. One thread at a time."""

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[Record]:
        """New records, in offset order within each partition; none if nothing comes for `timeout_s`
        seconds.

        Returns nothing while the broker is down, without an error. Raises TopicMissing, LogFatal or
        OffsetGone, but first returns the records that were read before the error. OffsetGone is
        raised once per partition; the reader then returns no records of that partition until
        `seek`.
        """

    def positions(self) -> Offsets:
        """For every partition, the offset of the next record that `poll` will return."""

    def seek(self, partition: int, offset: int) -> None:
        """Read `partition` from `offset` on; it must be assigned to this reader."""

    def close(self) -> None:
        """Stop reading. A static member keeps its partitions for one session timeout."""


class GroupReader(Reader, Protocol):
    """A reader to which a group assigns partitions, cooperatively: only moved partitions are
    revoked.

    `poll` calls `on_revoked(partitions)` for partitions that were revoked or lost without notice,
    then `on_assigned(partitions)`, which returns the start offset of each new partition. Records of
    a partition come only while it is assigned. If `on_assigned` raises LogUnreachable, the reader
    calls `on_revoked` with the same partitions, some of which may be unopened, and joins again.
    `poll` raises every other exception of a callback, including AccessDenied. `poll` raises Fenced
    when another process has taken this instance id. An outage of the brokers never ends the reader:
    if the group evicts it meanwhile, it joins again.
    """

    def rejoin(self, why: str) -> None:
        """Revoke every partition and join again: the next polls assign them. Needs no broker."""

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of the next records to read. Does not wait for the broker.

        Only lag metrics use committed offsets; no reader does.
        """


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a topic and its spec.

    `fatal`: whether it prevents workers from starting.
    """

    topic: str
    what: str
    want: str
    have: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.have}, wanted {self.want}"


class Replicas(NamedTuple):
    """The brokers that should have a partition; the first of them is preferred as leader."""

    topic: str
    partition: int
    brokers: tuple[int, ...]


class Behind(NamedTuple):
    """A partition some of whose replicas are not in sync, because their broker is down or slow."""

    topic: str
    partition: int
    in_sync: int
    replicas: int
    in_sync_min: int

    @property
    def is_read_only(self) -> bool:
        """Whether Kafka accepts no record until more replicas are in sync."""
        return self.in_sync < min(self.in_sync_min, self.replicas)

    def __str__(self) -> str:
        count = f"{self.in_sync} of {self.replicas} replicas are in sync"
        return f"{self.topic}, partition {self.partition}: {count}"


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The result of applying or checking topics, by full name. Existing topics never change.

    reassignment: the brokers for partitions that have too few replicas; empty if the cluster has
        too few brokers.
    """

    created: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    differs: tuple[Difference, ...] = ()
    behind: tuple[Behind, ...] = ()
    reassignment: tuple[Replicas, ...] = ()

    def demand(self) -> None:
        """Raise TopicMissing or TopicMismatch if no worker may start on these topics."""
        if self.missing:
            raise TopicMissing(self.missing[0])
        fatal = [found for found in self.differs if found.fatal]
        counts = [str(found) for found in fatal if found.what == PARTITION_COUNT]
        if counts:
            raise TopicMismatch(
                "; ".join(counts) + ". Nothing was changed; the number of partitions is final. Set "
                "`partitions` to the number that the log was created with. If partitions were "
                "added later, see `foldlog doctor`."
            )
        if fatal:
            more = f"; {len(fatal) - SHOWN_MAX} more" if len(fatal) > SHOWN_MAX else ""
            raise TopicMismatch(
                "the topics may lose records, or reject them: "
                + "; ".join(map(str, fatal[:SHOWN_MAX]))
                + more
                + '. `durability` is "replicated", so nothing starts on such topics. Nothing was '
                "changed. `foldlog topics apply` prints the commands that correct them. If one "
                'copy of the log is enough, set `durability` to "local" (FOLDLOG_DURABILITY).'
            )


class Log(Protocol):
    """One installation's topics on one cluster.

    Every request to the cluster raises LogUnreachable if no broker responds in time.
    """

    def producer(self, on_fatal: OnFatal | None = None, *, brief: bool = False) -> Producer:
        """A new producer. `on_fatal` is called once, on any thread, when the producer cannot
        continue.

        brief: for a process that writes a few records and ends, such as a command. The first
        acknowledgement comes 0.5 s earlier. A record may be stored twice, which is harmless because
        folds ignore duplicates.
        """

    def reader(
        self, topic: str, start: Mapping[int, int], *, keys: Collection[bytes] | None = None
    ) -> Reader:
        """A reader of the partitions named in `start`, outside of any group.

        keys: records with other keys may be left out.
        Raises TopicMissing (also for a partition that does not exist), LogUnreachable.
        """

    def group_reader(
        self,
        topic: str,
        group: str,
        instance_id: str,
        on_assigned: OnAssigned,
        on_revoked: OnRevoked,
        label: str = "",
    ) -> GroupReader:
        """A static member of `group`; it joins at its first poll.

        label: a text of letters, digits and `-`, which `members` returns. Raises TopicMissing,
        LogUnreachable.
        """

    def members(self, prefix: str) -> list[Member]:
        """The static members of every group whose name begins with `prefix`.

        A member that ended or was killed stays listed for one session timeout. Groups that this
        client may not see are left out. Raises LogUnreachable.
        """

    def prefixes(self) -> list[str]:
        """The topic prefixes of every installation on the cluster, including this one.
        Installations whose topics this client may not see are left out. Raises LogUnreachable.
        """

    def partitions(self, topic: str) -> int:
        """The number of partitions. Raises TopicMissing."""

    def first_offsets(self, topic: str) -> Offsets:
        """The oldest offset that still exists, by partition."""

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before an offset, by partition. They cannot be restored."""

    def end_offsets(self, topic: str) -> Offsets:
        """The offset that the next record will get, by partition."""

    def offsets_at(self, topic: str, timestamp_ms: int) -> Offsets:
        """For every partition, the offset of the first record whose broker time is `timestamp_ms`
        or later, or the end offset if there is no such record.
        """

    def identity(self) -> str:
        """The cluster's id."""

    def topic_id(self, topic: str) -> str:
        """The topic's id; it changes when the topic is deleted and recreated."""

    def apply_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        """Create missing topics and report differences. A second call changes nothing."""

    def check_topics(self, specs: Iterable[TopicSpec]) -> TopicReport:
        """Like `apply_topics`, but creates nothing."""

    def interrupt(self) -> None:
        """Make every request that waits, now or later, raise LogUnreachable, because this process
        is ending.
        """

    def close(self) -> None:
        """Close every producer and reader that is still open."""


def compare(
    spec: TopicSpec, name: str, partitions: int, replicas: int, properties: Mapping[str, str]
) -> list[Difference]:
    """The differences between a topic with these partitions, replicas and properties and its spec.

    replicas: those of the partition that has the fewest.
    """
    found = []
    wanted = spec.replication
    if partitions != spec.partitions:
        want, have = str(spec.partitions), str(partitions)
        found.append(Difference(name, PARTITION_COUNT, want, have, fatal=True))
    if replicas < wanted.factor:
        want, have = str(wanted.factor), str(replicas)
        found.append(Difference(name, REPLICATION_FACTOR, want, have, wanted.required))
    for what, want in spec.properties().items():
        have = properties.get(what, "unset")
        if not _is_met(what, want, have):
            # An operator may choose another retention for notices.
            expires = what == "retention.ms" and spec.retention_ms != FOREVER_MS
            found.append(Difference(name, what, want, have, wanted.required and not expires))
    return found


def _is_met(what: str, want: str, have: str) -> bool:
    if what in AT_LEAST and have.isdigit():
        return int(have) >= int(want)
    return have == want


def reassigned(
    replicas: Mapping[int, Sequence[int]], brokers: Collection[int], factor: int
) -> dict[int, tuple[int, ...]]:
    """For each partition, its brokers and as many others as `factor` needs. Partitions that have
    enough replicas are left out; the result is empty if the cluster has too few brokers.
    """
    if len(brokers) < factor:
        return {}
    ids = sorted(brokers)
    found: dict[int, tuple[int, ...]] = {}
    for partition, present in replicas.items():
        if len(present) < factor:
            others = [each for each in ids if each not in present]
            start = partition % len(others)  # spreads the new replicas over the brokers
            added = [*others[start:], *others[:start]][: factor - len(present)]
            found[partition] = (*present, *added)
    return found


def check_size(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
    """Raise RecordTooLarge if a broker would reject the record for its size."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content) + HEADER_OVERHEAD_BYTES
    if size > RECORD_BYTES_MAX:
        raise RecordTooLarge(topic, size, RECORD_BYTES_MAX)
