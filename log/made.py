"""Stores the number of partitions that a log was created with, as a fact in the log itself.

A session's partition is computed from its key and this number. If partitions were added, a key
would be written to one partition and read from another. So writers compare the topic's number with
the recorded number and stop if they differ; readers use the recorded number. The facts are records
of the topic `log-facts`, keyed by the id of the topic `session-events`, because a recreated topic
is another log.
"""

import json
import time
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..schemas.topics import (
    LOG_FACTS,
    MEMORY_EVENTS,
    ONE_REPLICA,
    PARTITION_COUNT,
    SESSION_EVENTS,
    SESSION_FACTS,
    USER_SESSIONS,
    Replication,
    topics,
)
from .door import Log, TopicReport
from .errors import AppendError, LogUnreachable, TopicMismatch, TopicMissing

READ_S = 5.0
POLL_S = 0.05


class LogGrown(TopicMismatch):
    """The log has more partitions than it was created with. Nothing was written.

    For the operator: the sessions are still in their partitions; move them with `foldlog move` to
    a log with the number of partitions that you want.
    """

    def __init__(self, made: int, now: int) -> None:
        super().__init__(
            f"{SESSION_EVENTS} was created with {made} partitions and has {now} now. Kafka cannot "
            "remove partitions, and new events of a session would go to a partition from which no "
            "reader expects them. Nothing was written; the log is intact and can be read. End all "
            "workers and gateways, then move the sessions to a new log: foldlog move --to-prefix "
            f"NEW --partitions {now}"
        )
        self.made, self.now = made, now


class LogMoved(TopicMismatch):
    """The sessions of this log were moved to another log."""

    def __init__(self, prefix: str) -> None:
        super().__init__(
            f"the sessions of this log were moved to the topics beginning with {prefix!r}. Nothing "
            f"was written here, and this log can still be read. Set FOLDLOG_TOPIC_PREFIX={prefix} "
            "(or topic_prefix in foldlog.toml), and `partitions` to the number of that log."
        )
        self.prefix = prefix


class Facts(NamedTuple):
    """The recorded facts of a log.

    partitions: the number of partitions at creation, or None if no number was recorded.
    moved_to: the topic prefix of the log to which the sessions were moved, or None.
    """

    partitions: int | None = None
    moved_to: str | None = None


_MADE: "WeakKeyDictionary[Log, int]" = WeakKeyDictionary()


def partitions_of(log: Log) -> int:
    """The number of partitions that the log's keys are mapped to; read once per Log object.

    The number is correct for reading even if partitions were added. Raises TopicMissing,
    LogUnreachable.
    """
    made = _MADE.get(log)
    if made is None:
        now = log.partitions(SESSION_EVENTS)
        made = _MADE[log] = facts_of(log).partitions or now
    return made


def demand_as_made(log: Log) -> int:
    """Like `partitions_of`, but for writers. Also raises LogGrown, LogMoved."""
    now, facts = log.partitions(SESSION_EVENTS), facts_of(log)
    if facts.moved_to is not None:
        raise LogMoved(facts.moved_to)
    if facts.partitions not in (None, now):
        raise LogGrown(facts.partitions, now)
    return now


class Note(NamedTuple):
    """A record of `log-facts`: a fact about the log whose `session-events` has this id."""

    topic_id: str
    name: str
    value: object


def facts_of(log: Log) -> Facts:
    """The recorded facts of the log. Raises TopicMissing, LogUnreachable."""
    about = log.topic_id(SESSION_EVENTS)
    found: dict[str, object] = {}
    for noted in notes_of(log):
        if noted.topic_id == about:
            found.setdefault(noted.name, noted.value)
    partitions, moved_to = found.get("partitions"), found.get("moved_to")
    return Facts(
        partitions if isinstance(partitions, int) else None,
        moved_to if isinstance(moved_to, str) else None,
    )


def notes_of(log: Log) -> list[Note]:
    """Every record of `log-facts`, oldest first. Raises LogUnreachable."""
    try:
        at, end = log.first_offsets(LOG_FACTS)[0], log.end_offsets(LOG_FACTS)[0]
    except TopicMissing:
        return []  # created by an earlier version, or a bundle
    found: list[Note] = []
    if at == end:
        return found
    reader = log.reader(LOG_FACTS, {0: at})
    until = time.monotonic() + READ_S
    try:
        while reader.positions()[0] < end:
            for record in reader.poll(POLL_S):
                # Split from the right, because a topic's id is base64 and may contain a slash.
                topic_id, _, name = (record.key or b"").decode("utf-8", "replace").rpartition("/")
                if record.value is not None:
                    found.append(Note(topic_id, name, json.loads(record.value)))
            if time.monotonic() > until:
                raise LogUnreachable(
                    f"the log stopped answering while {LOG_FACTS} was read. Nothing was changed. "
                    "Check the broker (`foldlog status`), then try again."
                )
    finally:
        reader.close()
    return found


def note(log: Log, name: str, value: int | str) -> None:
    """Record a fact. Raises LogUnreachable if the log did not acknowledge it."""
    answers: list[object] = []
    producer = log.producer(brief=True)
    key = f"{log.topic_id(SESSION_EVENTS)}/{name}"
    producer.append(LOG_FACTS, key, json.dumps(value).encode(), on_delivery=answers.append)
    producer.flush(READ_S)
    producer.close()
    if not answers or isinstance(answers[0], AppendError):
        raise LogUnreachable(
            f"{LOG_FACTS} did not acknowledge a record within {READ_S:g} s. It may or may not be "
            "in the log. Check the broker (`foldlog status`), then try again: the record counts "
            "once."
        )


def apply_topics(
    log: Log, partitions: int, replication: Replication = ONE_REPLICA
) -> TopicReport:
    """Create missing topics, and record the number of partitions. Raises LogGrown, LogMoved."""
    with suppress(TopicMissing):
        demand_as_made(log)
    report = log.apply_topics(topics(partitions, replication))
    if not any(found.what == PARTITION_COUNT for found in report.differs):
        note_made(log)
    return report


def note_made(log: Log) -> None:
    """Record the number of partitions if no number is recorded yet. Raises LogUnreachable."""
    if facts_of(log).partitions is None:
        note(log, "partitions", log.partitions(SESSION_EVENTS))


def demand_topics(
    log: Log, partitions: int, replication: Replication = ONE_REPLICA, *, notes: bool = False
) -> None:
    """Check that the topics have the required properties, replicas and partition count.

    notes: whether to record the count if the log lacks it because an earlier version of foldlog
    created the log. Raises LogGrown, LogMoved, TopicMissing, TopicMismatch.
    """
    made = demand_as_made(log)
    noted = facts_of(log).partitions
    if noted is not None and partitions != noted:
        raise TopicMismatch(
            f"this log was created with {made} partitions, and `partitions` (FOLDLOG_PARTITIONS) "
            f"is {partitions}. Nothing was changed. Set it to {made}; for more partitions, move "
            f"the sessions: foldlog move --to-prefix NEW --partitions {partitions}"
        )
    log.check_topics(topics(partitions, replication)).demand()
    for topic in (USER_SESSIONS, SESSION_FACTS, MEMORY_EVENTS):
        log.partitions(topic)  # from now on keys are mapped by these numbers
    if notes:
        note_made(log)
