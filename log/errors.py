"""Errors, named by what the caller must do next.

    FoldlogError
     + Refused         the command is invalid now: views are unchanged, the caller gets an answer
     + Parked          an effect is uncertain: say so in the log, wait for a human or a reconciler
     + Retry           transient: try again later
     |  + LogUnreachable   no broker answered in time (exit code 3 of the command line)
     |  |  + AccessDenied   brokers answer and refuse our credentials, certificate or rights
     |  + LogBusy          the producer's queue is full: let it drain
     |  + RegistryAway     the schema registry is unavailable; it is LogUnreachable and LogBusy
     |  + AppendError      one record was not acknowledged; it may or may not be in the log
     + Corrupt         local state disagrees with the log: delete it and refold
     |  + OffsetGone       the requested offset is before the first or after the last record
     |  + LogCut           records that must be folded were deleted from the log
     + RecordTooLarge  the broker would reject the record; nothing was produced
     + SettingsError   a setting is missing, misspelt or out of range
     + TopicMismatch   a topic is not what the installation needs; nothing was changed
     |  + TopicMissing     it does not exist
     + LogFatal        this producer or reader is finished: end the process, the log is safe
        + Fenced           another process runs under my instance id

All packages above use this tree.
A message says what happened, what was kept and what to do.
"""


class FoldlogError(Exception):
    """Root of every error that foldlog raises on purpose."""


class Refused(FoldlogError):
    """The command is invalid now. The log keeps the attempt, no view changes."""


class Parked(FoldlogError):
    """An effect may or may not have happened. It waits for a human or a reconciler."""


class Retry(FoldlogError):
    """It failed for a passing reason and may be tried again."""


class LogUnreachable(Retry):
    """No broker answered in time. Nothing was read or written by this call."""


class AccessDenied(LogUnreachable):
    """The cluster refuses us. The message names what it refuses, and never holds a secret.

    For the operator: correct `client.properties`, or grant the right (docs/security.md). It counts
    as unreachable, not as fatal: whoever outlives an outage outlives a rotated password as well.
    """


class LogBusy(Retry):
    """The producer's queue is full because the broker is slow or away. Nothing was queued."""


class RegistryAway(LogUnreachable, LogBusy):
    """The schema registry did not answer, or not as asked. Nothing was queued, nothing skipped."""


class AppendError(Retry):
    """One record was not acknowledged: it may be in the log or not (law 3: write it again).

    `partition` is None where none had been chosen yet. `denied`: the cluster refused it for want
    of a right, so it is not in the log. Handed to `on_delivery`, never raised.
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
    """What we kept disagrees with the log.

    For the operator: stop the worker, delete its state directory, start it; it refolds the log.
    """


class OffsetGone(Corrupt):
    """A reader asked for an offset that the log does not hold: a hole must be loud.

    For the operator: the topic was trimmed, deleted and made anew, or restored from an older copy.
    What was folded from it is no longer the log's; delete the store of that partition and refold.
    """

    def __init__(self, topic: str, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"offset {offset} of {topic}/{partition} is not in the log, which holds {first} to "
            f"{end} (end excluded): its records were deleted, or this is another log. Nothing was "
            "skipped. Delete what was kept for this partition and refold it."
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.first, self.end = first, end


class LogCut(Corrupt):
    """The beginning of a partition was deleted before it was folded: no views can be made of it.

    For the operator: bring the records back (another replica, a backup), and have nothing delete
    records of the log: its topics have no retention. Where they are lost, begin a new installation.
    """

    def __init__(self, partition: str | int, folded: int, first: int) -> None:
        super().__init__(
            f"partition {partition}: records from offset {folded} on would have to be folded, and "
            f"the log begins at {first}: somebody deleted what was before (foldlog never does). "
            "Nothing was changed and nothing was skipped. Bring the records back; or, if they are "
            "lost for good, begin a new installation with another FOLDLOG_TOPIC_PREFIX."
        )
        self.first = first


class RecordTooLarge(FoldlogError):
    """The record exceeds what a broker takes; nothing was produced.

    Large content belongs into the blob store, the event holds a reference to it.
    """

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a record for {topic} has {size_bytes} bytes, the limit is {limit_bytes}. Nothing was "
            "produced. Put its content into the blob store and log a reference."
        )
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class SettingsError(FoldlogError):
    """A setting is missing, misspelt or out of range; the message names it and its source."""


class TopicMismatch(FoldlogError):
    """A topic is not what the installation needs. Nothing was changed.

    For the operator: a number of partitions is final. Set `partitions` to what the topic has, or
    choose another topic prefix, or move the data to a new topic.
    """


class TopicMissing(TopicMismatch):
    """The topic does not exist on this cluster: run `foldlog topics apply`."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} does not exist here: run `foldlog topics apply`")
        self.topic = topic


class LogFatal(FoldlogError):
    """The client can not go on: end the process and start a new one. The log is safe."""


class Fenced(LogFatal):
    """Another process joined the group under my instance id. It owns the partitions now.

    For the operator: two workers share one state directory or worker id; stop one of them.
    """
