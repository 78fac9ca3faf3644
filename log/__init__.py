"""The package `log`: the only access to Kafka, and its in-memory twin under one contract test.

Read in this order:
    errors.py     what can go wrong, named by what the caller must do next
    door.py       the protocols: Producer, Reader, GroupReader, Log
    access.py     the rights that each role needs on a cluster with an authorizer
    settings.py   the one frozen object of settings, and where each comes from
    environment.py   what other processes may read of the environment, and what children get
    partition.py  which partition holds a key
    memory_state.py, memory_reader.py, memory_group.py, memory.py   the twin: deterministic and fast
    faults.py     what a simulator may do to the twin
    kafka.py, kafka_reader.py, admin.py, client.py   Kafka; only they import confluent_kafka
    framing.py, registry.py   Confluent framing over Kafka or the twin, for a schema registry
Imports `schemas` (records, topics) and no other package of foldlog.
"""

from typing import TYPE_CHECKING

from ..schemas.record import Record
from .door import (
    Delivered,
    Difference,
    GroupReader,
    Headers,
    Log,
    Member,
    Offsets,
    Producer,
    Reader,
    TopicReport,
)
from .errors import (
    AccessDenied,
    AppendError,
    Corrupt,
    Fenced,
    FoldlogError,
    LogBusy,
    LogCut,
    LogFatal,
    LogUnreachable,
    OffsetGone,
    Parked,
    RecordTooLarge,
    Refused,
    RegistryAway,
    Retry,
    SettingsError,
    TopicMismatch,
    TopicMissing,
)
from .faults import DUPLICATE, LOST, LOST_ACK, NORMAL, Clock, Fate, Faults
from .memory import MemoryLog
from .partition import partition_for
from .settings import Settings

if TYPE_CHECKING:
    from .framing import FramedLog
    from .kafka import KafkaLog

__all__ = [
    "AccessDenied",
    "AppendError",
    "Clock",
    "Corrupt",
    "DUPLICATE",
    "Delivered",
    "Difference",
    "Fate",
    "Faults",
    "Fenced",
    "FoldlogError",
    "GroupReader",
    "Headers",
    "Log",
    "LogBusy",
    "LogCut",
    "LogFatal",
    "LOST",
    "LOST_ACK",
    "LogUnreachable",
    "Member",
    "MemoryLog",
    "NORMAL",
    "OffsetGone",
    "Offsets",
    "Parked",
    "Producer",
    "Reader",
    "Record",
    "RecordTooLarge",
    "Refused",
    "RegistryAway",
    "Retry",
    "Settings",
    "SettingsError",
    "TopicMismatch",
    "TopicMissing",
    "TopicReport",
    "open_log",
    "partition_for",
]


def open_log(settings: Settings) -> "KafkaLog | FramedLog":
    """The log that `settings` name. It does not connect yet. Raises SettingsError without a broker,
    or without the schema registry that this home has used before.

    Imported here and not above: the client library, because folds, tests and the simulator use this
    package without it, and framing, because only users of a schema registry need it.
    """
    from .kafka import KafkaLog

    if settings.bootstrap_servers is None:
        raise SettingsError(
            "no Kafka broker is configured. Nothing was read or written. Set "
            "KAFKA_BOOTSTRAP_SERVERS, or bootstrap_servers in foldlog.toml. `foldlog up` starts a "
            "local broker, if none is running, and prints its address."
        )
    kafka = KafkaLog(
        settings.bootstrap_servers,
        topic_prefix=settings.topic_prefix,
        client_properties=settings.client_properties,
        linger_ms=settings.linger_ms,
    )
    if not settings.uses_registry:
        return kafka
    from .framing import FramedLog
    from .registry import registry_of

    confluent = settings.framing == "confluent"
    registry = registry_of(settings)
    return FramedLog(kafka, registry, confluent=confluent, prefix=settings.topic_prefix)
