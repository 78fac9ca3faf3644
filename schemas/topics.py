"""The topics of an installation, as data.

Lists their names, keys, cleanup policies and configuration; `log/admin.py` applies these to the
cluster. The names lack the prefix of the installation, which the log adds on writing and removes on
reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

SESSION_EVENTS = "session-events"
USER_SESSIONS = "user-sessions"
SESSION_FACTS = "session-facts"
FLEET_SESSIONS = "fleet-sessions-changelog"
FLEET_INBOX = "fleet-inbox-changelog"
FLEET_HOURS = "fleet-hours-changelog"
MEMORY_EVENTS = "memory-events"
DEAD_LETTERS = "dlq.session-events"

LOG_FACTS = "log-facts"
OPERATOR_LOOKS = "operator-looks"

FOREVER_MS = -1
"""Kafka's value for unlimited retention."""

DEAD_LETTERS_MS = 90 * 24 * 3600 * 1000
"""90 days. The undecodable record itself stays in its own topic;
the dead letter is only a notice."""

BATCH_BYTES_MAX = 1024 * 1024 + 12
"""The largest record batch of a broker: 1 MiB plus 12 bytes of framing, which is Kafka's default.
It is set explicitly so that a cluster with another value is detected when the topics are applied,
not when the first large record is rejected."""

RECORD_BYTES_MAX = 1024 * 1024 - 1024
"""The largest key, value and headers of one record together, in bytes: 1 MiB minus the overhead of
a batch. The overhead is 61 bytes of batch header, at most 40 of varints, and 10 for each record
header, so 90 headers fit."""


class Replication(NamedTuple):
    """How many brokers keep each record.

    factor: the replicas of each partition.
    in_sync_min: how many replicas must have a record before it is acknowledged.
    required: whether processes refuse to start on a topic with weaker properties than its
        definition, because it could lose acknowledged records.
    flushed: whether a broker writes each record to its disk before it is acknowledged.
    """

    factor: int = 1
    in_sync_min: int = 1
    required: bool = False
    flushed: bool = False


ONE_REPLICA = Replication()
"""The replication on a single broker. More is not possible there, so nothing is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The definition of one topic.

    `partitions` None stands for `Settings.partitions`. That number never changes, because a key
    must stay in the same partition. A compacted topic does not use `retention_ms`. `config` holds
    the remaining topic properties, under Kafka's names.
    """

    name: str
    key: str
    cleanup: str
    holds: str
    partitions: int | None = None
    retention_ms: int = FOREVER_MS
    replication: Replication = ONE_REPLICA
    config: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """Every topic property that the cluster must have."""
        in_sync = str(self.replication.in_sync_min)
        wanted = {"cleanup.policy": self.cleanup, IN_SYNC_MIN: in_sync, **self.config}
        if self.replication.flushed:
            wanted[FLUSH_MESSAGES] = "1"
        if self.cleanup == "delete":
            wanted["retention.ms"] = str(self.retention_ms)
            wanted["retention.bytes"] = "-1"
        return wanted


PARTITION_COUNT, REPLICATION_FACTOR = "number of partitions", "replication factor"
"""What a topic has besides its properties."""

FLUSH_MESSAGES = "flush.messages"
"""After how many records a broker flushes a partition, by default by the operating system only."""

IN_SYNC_MIN = "min.insync.replicas"
BATCH_BYTES = "max.message.bytes"
AT_LEAST = frozenset({IN_SYNC_MIN, BATCH_BYTES})
"""Properties of which a topic may have more than its definition."""

UNCLEAN = "unclean.leader.election.enable"
_CONFIG: MappingProxyType[str, str] = MappingProxyType(
    {
        # Broker time: one clock for all writers, and no record can be backdated.
        "message.timestamp.type": "LogAppendTime",
        BATCH_BYTES: str(BATCH_BYTES_MAX),
        # A replica that lacks acknowledged records must not become leader, because offsets are
        # identities.
        UNCLEAN: "false",
    }
)

_READ_BY_FAUST: MappingProxyType[str, str] = MappingProxyType(
    {
        # The broker stores every batch uncompressed, because Faust's client does not support zstd
        # and its process dies at the first batch that it cannot read.
        "compression.type": "uncompressed",
    }
)

TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec(
        name=SESSION_EVENTS,
        key='session_id ("#partition" for PARTITION_TAKEN and OWNER_GONE)',
        cleanup="delete",
        config=_CONFIG,
        holds="every event of every session; the order of the offsets decides every race",
    ),
    TopicSpec(
        name=USER_SESSIONS,
        key="user_id/session_id, partitioned by user_id",
        cleanup="compact",
        config=_CONFIG | _READ_BY_FAUST,
        holds="the open sessions of each user, which the user's tabs show",
    ),
    TopicSpec(
        name=SESSION_FACTS,
        key="user_id",
        cleanup="delete",
        config=_CONFIG | _READ_BY_FAUST,
        holds="facts about sessions, for programs that read many of them: turns, cost, approvals",
    ),
    *(
        TopicSpec(name=name, key=key, cleanup="compact", config=_CONFIG | _READ_BY_FAUST,
                  holds=f"the changelog of the fleet's table of {table}")
        for name, key, table in (
            (FLEET_SESSIONS, "user_id/session_id", "sessions"),
            (FLEET_INBOX, "user_id", "what waits for a person"),
            (FLEET_HOURS, "scope|value|hour|partition", "sums per hour"),
        )
    ),
    TopicSpec(
        name=MEMORY_EVENTS,
        key="scope (user:ID, project:ID)",
        cleanup="delete",
        config=_CONFIG,
        holds="memory, preferences and todos, which outlive sessions",
    ),
    TopicSpec(
        name=LOG_FACTS,
        key="id of the topic session-events / fact",
        cleanup="compact",
        partitions=1,
        config=_CONFIG,
        holds="facts about the log: its number of partitions, and where it was moved",
    ),
    TopicSpec(
        name=OPERATOR_LOOKS,
        key="user_id",
        cleanup="delete",
        partitions=1,
        config=_CONFIG,
        holds="what operators read of other users' sessions",
    ),
    TopicSpec(
        name=DEAD_LETTERS,
        key="the key of the record",
        cleanup="delete",
        partitions=1,
        retention_ms=DEAD_LETTERS_MS,
        config=_CONFIG | _READ_BY_FAUST,
        holds="records of session-events that could not be decoded, with the offset and the reason",
    ),
)


def topics(partitions: int, replication: Replication = ONE_REPLICA) -> tuple[TopicSpec, ...]:
    """TOPICS with the installation's number of partitions and replication filled in."""
    assert partitions > 0, partitions
    return tuple(
        replace(spec, partitions=spec.partitions or partitions, replication=replication)
        for spec in TOPICS
    )
