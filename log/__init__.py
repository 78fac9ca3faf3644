"""The package `log`: the only access to Kafka, and an in-memory log with the same contract.

Read in this order:
    errors.py     the errors, named by what the caller must do next
    extras.py     the extras of the package, and the refusal of what needs a missing one
    door.py       the protocols: Producer, Reader, GroupReader, Log
    access.py     the rights that each role needs on a cluster with an authorizer
    settings.py   the settings, in one frozen object, and the source of each setting
    setting_row.py   how one setting is read: its variables, its valid values
    environment.py   which variables other processes may read, and which ones children inherit
    partition.py  which partition holds a key
    memory_state.py, memory_reader.py, memory_group.py, memory.py   the in-memory log
    faults.py     the faults that a simulator may inject into the in-memory log
    kafka.py, kafka_reader.py, admin.py, client.py   Kafka; only they import confluent_kafka
    admin_process.py   the process in which admin.py runs
    made.py       the number of partitions that a log was created with
    topic_commands.py   Kafka's own commands for topics that differ from their definition
    channels.py   the push channels of an installation
    durable_files.py, objects.py   content and snapshots outside the log: as files,
    object_store.py   or in an object store; only this file imports obstore
    blob_cache.py, blobs.py   the content-addressed blobs in either
    bundle_file.py, archive.py, archived.py   what `foldlog retain` deleted from the log, in files
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
    from .archived import ArchivedLog

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
    "Retry",
    "Settings",
    "SettingsError",
    "TopicMismatch",
    "TopicMissing",
    "TopicReport",
    "open_log",
    "partition_for",
]


def open_log(settings: Settings) -> "ArchivedLog":
    """Create the log that the settings describe. It connects on first use. From now on, this
    process decodes records as the setting `decoder` says.

    Raises SettingsError if the settings name no broker.

    The imports are in the function because folds, tests and the simulator do not need the client
    library.
    """
    from ..schemas.codec import use_compiled
    from .archive import archive_of
    from .archived import ArchivedLog
    from .kafka import KafkaLog

    if settings.bootstrap_servers is None:
        raise SettingsError(
            "no Kafka broker is configured. Nothing was read or written. Set "
            "KAFKA_BOOTSTRAP_SERVERS, or bootstrap_servers in foldlog.toml. `foldlog up` starts a "
            "local broker, if none is running, and prints its address."
        )
    use_compiled(settings.decoder == "auto")
    kafka = KafkaLog(
        settings.bootstrap_servers,
        topic_prefix=settings.topic_prefix,
        client_properties=settings.client_properties,
        linger_ms=settings.linger_ms,
    )
    return ArchivedLog(kafka, archive_of(settings))
