"""The room `log`: the only door to Kafka, and its in-memory twin under one contract test.

Read in this order:
    errors.py     what can go wrong, named by what the caller must do next
    door.py       the protocols: Producer, Reader, GroupReader, Log
    settings.py   the one frozen object of settings, and where each comes from
    partition.py  which partition holds a key
    memory.py, memory_reader.py, memory_group.py   the twin: deterministic and fast
    faults.py     what a simulator may do to the twin
    kafka.py, kafka_reader.py, admin.py, client.py   the real one; they alone import confluent_kafka
Knows `schemas` (records, topics) and none of the rooms above it.
"""

from typing import TYPE_CHECKING

from ..schemas.record import Record
from .door import (
    Delivered,
    Difference,
    GroupReader,
    Headers,
    Log,
    Offsets,
    Producer,
    Reader,
    TopicReport,
)
from .errors import (
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
    Poison,
    RecordTooLarge,
    Refused,
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
    from .kafka import KafkaLog

__all__ = [
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
    "MemoryLog",
    "NORMAL",
    "OffsetGone",
    "Offsets",
    "Parked",
    "Poison",
    "Producer",
    "Reader",
    "Record",
    "RecordTooLarge",
    "Refused",
    "Retry",
    "Settings",
    "SettingsError",
    "TopicMismatch",
    "TopicMissing",
    "TopicReport",
    "open_log",
    "partition_for",
]


def open_log(settings: Settings) -> "KafkaLog":
    """The log that `settings` name. Connects to nothing yet; raises SettingsError without broker.

    The client library is imported here and not above: folds, tests and the simulator use this room
    without it.
    """
    from .kafka import KafkaLog

    if settings.bootstrap_servers is None:
        raise SettingsError(
            "no Kafka broker is configured: start the local one with `foldlog up`, or set "
            "KAFKA_BOOTSTRAP_SERVERS, or bootstrap_servers in foldlog.toml."
        )
    return KafkaLog(
        settings.bootstrap_servers,
        topic_prefix=settings.topic_prefix,
        client_properties=settings.client_properties,
        linger_ms=settings.linger_ms,
    )
