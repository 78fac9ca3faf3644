"""Errors, named by what the caller must do next.

    FoldlogError
     + Refused         the command is invalid now: views are unchanged, the caller gets an answer
     + Parked          an effect is in doubt: record that, wait for a human or a reconciler
     + Retry           transient: try again later
     |  + LogUnreachable   no broker answered in time (exit code 3 of the command line)
     |  |  + AccessDenied   brokers respond, but reject our credentials, certificate or rights
     |  + LogBusy          the producer's queue is full: wait until it has drained
     |  + AppendError      one record was not acknowledged; it may or may not be in the log
     + Corrupt         local state disagrees with the log: delete it and refold
     |  + OffsetGone       the requested offset is before the first or after the last record
     |  + LogCut           records that must be folded were deleted from the log
     + RecordTooLarge  the broker would reject the record; nothing was produced
     + SettingsError   a setting is missing, misspelt or out of range
     |  + ExtraMissing     a part of the package is not installed (extras.py)
     + TopicMismatch   a topic is not what the installation needs; nothing was changed
     |  + TopicMissing     it does not exist
     + LogFatal        this producer or reader is finished: end the process, the log is safe
        + Fenced           another process runs under this instance id

All packages that import `log` use these errors.
A message has three parts: what happened, what was kept, what to do.
"""

import errno
from collections.abc import Mapping
from typing import Any

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SQLITE_FULL = 13


def is_out_of_space(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, means that a disk is full."""
    while error is not None:
        is_full = isinstance(error, OSError) and error.errno in NO_SPACE
        if is_full or getattr(error, "sqlite_errorcode", None) == SQLITE_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


class FoldlogError(Exception):
    """Root of every error that foldlog raises on purpose. It can be pickled, so that a process can
    pass an error to the process that started it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the message, but some classes build their message.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[FoldlogError], args: tuple[Any, ...], fields: Mapping[str, Any]
) -> FoldlogError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class Refused(FoldlogError):
    """The command is invalid now and changes no view."""


class Parked(FoldlogError):
    """An effect may or may not have happened. It waits for a human or a reconciler."""


class Retry(FoldlogError):
    """A transient failure: the operation may be retried."""


class LogUnreachable(Retry):
    """No broker responded in time. Nothing was read or written by this call."""


class AccessDenied(LogUnreachable):
    """The cluster denies access. The message names what was denied and contains no secret.

    For the operator: correct `client.properties`, or grant the right (docs/security.md). It counts
    as unreachable, not as fatal: a process that survives an outage also survives a rotated
    password.
    """


class LogBusy(Retry):
    """The producer's queue is full because the broker is slow or down. Nothing was queued."""


class AppendError(Retry):
    """One record was not acknowledged, so it may or may not be in the log. Write the record again:
    the fold ignores a duplicate.

    `partition` is None if none had been chosen yet. `denied`: whether the cluster rejected the
    record because a right is missing, so that it is not in the log. This error is passed to
    `on_delivery`, never raised.
    """

    def __init__(
        self,
        topic: str,
        key: bytes | None,
        partition: int | None,
        reason: str,
        denied: AccessDenied | None = None,
    ) -> None:
        super().__init__(
            f"a record for {topic} (key {key!r}) was not acknowledged: {reason}. It may or may not "
            "be in the log; writing it again is harmless."
        )
        self.topic, self.key, self.partition, self.reason = topic, key, partition, reason
        self.denied = denied


class Corrupt(FoldlogError):
    """Local state disagrees with the log.

    For the operator: stop the worker, delete its state directory and start the worker again. It
    then refolds the log.
    """


class OffsetGone(Corrupt):
    """A reader requested an offset that is not in the log. A reader never skips to the next offset
    that exists.

    For the operator: the topic was trimmed, deleted and recreated, or restored from an older copy.
    The stored state no longer matches the log: delete the store of that partition and refold.
    """

    def __init__(self, topic: str, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"offset {offset} of {topic}/{partition} is not in the log, which has {first} to "
            f"{end} (end excluded): its records were deleted, or this is another log. Nothing was "
            "skipped. Delete the local state of this partition and refold it."
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.first, self.end = first, end


class LogCut(Corrupt):
    """The beginning of a partition was deleted before it was folded, and the archive does not have
    it, so its views cannot be built.

    For the operator: give this process access to the archive that `foldlog retain` made, or restore
    the records (from another replica or a backup). Make sure that nothing else deletes records: the
    topics must have no retention limit. If the records are lost, start a new installation.
    """

    def __init__(
        self, partition: str | int, folded: int, first: int,
        why: str = "no archive that this process can read has them",
    ) -> None:
        super().__init__(
            f"partition {partition}: folding must start at offset {folded}, but the log begins at "
            f"{first}: the records before it were deleted, and {why}. "
            "Nothing was changed and nothing was skipped. Set FOLDLOG_ARCHIVE to the directory "
            "that `foldlog retain` used, or restore the records. If they are "
            "lost, start a new installation with another FOLDLOG_TOPIC_PREFIX."
        )
        self.first = first


class RecordTooLarge(FoldlogError):
    """The record exceeds the broker's limit; nothing was produced.

    Large content belongs in the blob store; the event refers to it.
    """

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a record for {topic} has {size_bytes} bytes, the limit is {limit_bytes}. Nothing was "
            "produced. Put its content in the blob store and log a reference."
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class SettingsError(FoldlogError):
    """A setting is missing, misspelt or out of range; the message names it and its source."""


class TopicMismatch(FoldlogError):
    """A topic is not what the installation needs. Nothing was changed.

    For the operator: the number of partitions is final. Set `partitions` to the topic's number,
    choose another topic prefix, or move the data to a new topic. Properties and replicas can be
    changed with the commands that `foldlog topics apply` prints.
    """


class TopicMissing(TopicMismatch):
    """The topic does not exist on this cluster: run `foldlog topics apply`."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist here. Run `foldlog topics apply`.")
        self.topic = topic


class LogFatal(FoldlogError):
    """The client cannot continue: end the process and start a new one. The log is safe."""


class Fenced(LogFatal):
    """Another process joined the group under this instance id. It owns the partitions now.

    For the operator: two workers share one state directory or worker id; stop one of them.
    """
