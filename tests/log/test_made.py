"""The number of partitions with which a log was created: it is recorded once, and writers require
it."""

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.log import MemoryLog, TopicMismatch, partition_for
from foldlog.log.made import (
    Facts,
    LogGrown,
    LogMoved,
    apply_topics,
    demand_as_made,
    demand_topics,
    facts_of,
    note,
    partitions_of,
)
from foldlog.log.memory_state import Partition
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.schemas.topics import LOG_FACTS, SESSION_EVENTS, topics


@pytest.fixture
def log():
    log = MemoryLog(cluster_id="with/slash")  # a topic's id may contain one
    apply_topics(log, 2)
    return log


def grow(log, partitions: int) -> None:
    existing = log.topic(SESSION_EVENTS).partitions
    existing += [Partition() for _ in range(partitions - len(existing))]


def test_A5_the_number_is_recorded_once_when_the_topics_are_created(log):
    assert facts_of(log) == Facts(2)
    apply_topics(log, 2)
    demand_topics(log, 2)
    assert log.end_offsets(LOG_FACTS) == {0: 1}


def test_A5_after_growth_writers_are_refused_and_readers_use_the_old_number(log):
    grow(log, 3)
    for write in (demand_as_made, lambda to: demand_topics(to, 3), lambda to: apply_topics(to, 3)):
        with pytest.raises(LogGrown, match="created with 2 partitions and has 3 now"):
            write(log)
    assert partitions_of(log) == 2
    name = next(n for n in map(str, range(99)) if partition_for(n, 2) != partition_for(n, 3))
    assert SessionFold(log, name).partition == partition_for(name, 2)


def test_A5_the_first_worker_records_the_number_of_an_earlier_versions_log():
    log = MemoryLog(topics(3))
    assert facts_of(log) == Facts()
    with pytest.raises(TopicMismatch, match="number of partitions is 3, wanted 4"):
        demand_topics(log, 4)
    demand_topics(log, 3)
    assert facts_of(log) == Facts()
    demand_topics(log, 3, notes=True)
    assert facts_of(log) == Facts(3)


def test_A5_a_recreated_topic_is_another_log(log):
    log.delete_topic(SESSION_EVENTS)
    log.apply_topics(topics(5)[:1])
    assert facts_of(log) == Facts() and demand_as_made(log) == 5


def test_A5_a_moved_log_names_its_new_prefix(log):
    note(log, "moved_to", "v2-")
    with pytest.raises(LogMoved, match="FOLDLOG_TOPIC_PREFIX=v2-"):
        demand_as_made(log)
    assert partitions_of(log) == 2


def test_A5_a_running_worker_ends_when_an_added_partition_is_assigned(log):
    class StubWorker:
        identity = None

        def assigned(self, partitions):
            return dict.fromkeys(partitions, 0)

    loop = Loop(log, StubWorker(), "group", Mailbox())
    partitions_of(log)
    assert loop._assigned([0, 1]) == {0: 0, 1: 0}
    grow(log, 3)
    with pytest.raises(LogGrown):
        loop._assigned([2])
