"""The properties of the topics, and the limits on the size of a record."""

import json

import pytest

from foldlog.log import MemoryLog, RecordTooLarge, TopicMismatch, topic_commands
from foldlog.log.door import (
    HEADER_OVERHEAD_BYTES,
    Replicas,
    TopicReport,
    compare,
    reassigned,
)
from foldlog.log.settings import INLINE_LIMIT_BYTES_MAX
from foldlog.schemas.topics import (
    BATCH_BYTES_MAX,
    DEAD_LETTERS,
    RECORD_BYTES_MAX,
    SESSION_EVENTS,
    TOPICS,
    USER_SESSIONS,
    Replication,
    topics,
)


def test_S2_1_events_are_retained_forever_and_never_compacted():
    by_name = {spec.name: spec.properties() for spec in topics(8)}
    assert list(by_name) == [
        "session-events", "user-sessions", "session-facts", "fleet-sessions-changelog",
        "fleet-inbox-changelog", "fleet-hours-changelog", "memory-events", "log-facts",
        "operator-looks", "dlq.session-events",
    ]  # fmt: skip
    for name in (SESSION_EVENTS, "session-facts", "memory-events", "operator-looks"):
        retained = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        assert by_name[name].items() >= retained.items()
    assert by_name[USER_SESSIONS]["cleanup.policy"] == "compact"
    assert int(by_name[DEAD_LETTERS]["retention.ms"]) > 0


def test_S2_2_every_topic_uses_the_brokers_clock():
    assert {s.properties()["message.timestamp.type"] for s in TOPICS} == {"LogAppendTime"}


def test_topics_of_sessions_have_the_configured_number_of_partitions():
    assert {spec.name: spec.partitions for spec in topics(3)} == {
        "session-events": 3, "user-sessions": 3, "session-facts": 3, "memory-events": 3,
        "fleet-sessions-changelog": 3, "fleet-inbox-changelog": 3, "fleet-hours-changelog": 3,
        "log-facts": 1, "operator-looks": 1, "dlq.session-events": 1,
    }  # fmt: skip


def test_a_record_of_maximum_size_fits_into_a_batch_with_its_overhead():
    # A batch of one record in Kafka's message format: 61 bytes of batch header, and varints of at
    # most 5 bytes (10 for the times and offsets) around the record and its headers.
    record_varints = 5 + 1 + 10 + 5 + 5 + 5 + 5
    headers = (BATCH_BYTES_MAX - RECORD_BYTES_MAX - 61 - record_varints) // HEADER_OVERHEAD_BYTES
    assert headers >= 90


def test_S2_3_content_below_the_inline_limit_fits_three_times():
    assert 3 * INLINE_LIMIT_BYTES_MAX < RECORD_BYTES_MAX


def test_headers_count_towards_the_size_of_a_record():
    producer = MemoryLog(topics(8)).producer()
    room = RECORD_BYTES_MAX - 1 - 11  # the key, and a header of one byte with its overhead
    producer.append(SESSION_EVENTS, "k", bytes(room), (("n", b""),))
    with pytest.raises(RecordTooLarge):
        producer.append(SESSION_EVENTS, "k", bytes(room), (("n", b"1"),))
    with pytest.raises(RecordTooLarge):
        producer.append(SESSION_EVENTS, "k", bytes(room), (("é", b""),))  # two bytes in UTF-8


def test_a_topic_with_unclean_leader_election_is_reported():
    """Offsets identify records, and after an unclean election other records get these offsets."""
    (spec,) = [spec for spec in topics(1) if spec.name == SESSION_EVENTS]
    have = {**spec.properties(), "unclean.leader.election.enable": "true"}
    (found,) = compare(spec, spec.name, 1, 1, have)
    assert "unclean.leader.election.enable" in str(found)


THREE = Replication(3, 2, required=True)


def differences(spec, *, replicas=3, partitions=1, **properties):
    """The differences of a topic that has these properties instead of its definition's."""
    have = spec.properties() | {name.replace("_", "."): value for name, value in properties.items()}
    return compare(spec, spec.name, partitions, replicas, have)


def test_a_topic_that_can_lose_records_with_a_broker_stops_the_start_if_that_is_required():
    for spec in topics(1, THREE):
        weaker = [
            differences(spec, replicas=2),
            differences(spec, min_insync_replicas="1"),
            differences(spec, unclean_leader_election_enable="true"),
            differences(spec, cleanup_policy="compact,delete"),
            differences(spec, max_message_bytes="1000"),
        ]
        for found in weaker:
            (difference,) = found
            assert difference.fatal, difference
            with pytest.raises(TopicMismatch, match="FOLDLOG_DURABILITY"):
                TopicReport(differs=(difference,)).demand()
        (same, *_) = [each for each in topics(1) if each.name == spec.name]
        for found in (*differences(same, unclean_leader_election_enable="true"),):
            TopicReport(differs=(found,)).demand()  # one replica: reported, not refused


def test_a_topic_may_have_more_than_its_definition():
    spec = topics(1, THREE)[0]
    assert differences(spec, replicas=5, min_insync_replicas="3", max_message_bytes="9999999") == []


def test_only_topics_that_are_kept_forever_must_have_their_retention():
    by_name = {spec.name: spec for spec in topics(1, THREE)}
    (events,) = differences(by_name[SESSION_EVENTS], retention_ms="604800000")
    (letters,) = differences(by_name[DEAD_LETTERS], retention_ms="604800000")
    assert (events.fatal, letters.fatal) == (True, False)


def test_a_reassignment_keeps_replicas_and_spreads_the_new_ones():
    replicas = {0: [1], 1: [1], 2: [2, 3], 3: [1, 2, 3]}
    found = reassigned(replicas, [1, 2, 3], 3)
    assert found == {0: (1, 2, 3), 1: (1, 3, 2), 2: (2, 3, 1)}
    two = reassigned({p: [1] for p in range(4)}, [1, 2, 3], 2)
    assert sorted(brokers[1] for brokers in two.values()) == [2, 2, 3, 3]
    assert reassigned(replicas, [1, 2], 3) == {}


def test_the_printed_commands_name_every_correctable_difference():
    spec = topics(1, THREE)[0]
    found = differences(
        spec, partitions=2, replicas=1, min_insync_replicas="1", retention_ms="1000"
    )
    plan = (Replicas(spec.name, 0, (1, 2, 3)),)
    report = TopicReport(differs=tuple(found), reassignment=plan)
    configs, _, reassign = topic_commands.commands(report, "k:9092")
    assert configs.endswith(
        "--bootstrap-server k:9092 --alter --entity-type topics --entity-name session-events "
        "--add-config min.insync.replicas=2,retention.ms=-1"
    )
    assert "kafka-reassign-partitions.sh --bootstrap-server k:9092" in reassign
    assert json.loads(topic_commands.reassignment(report)) == {
        "version": 1,
        "partitions": [{"topic": "session-events", "partition": 0, "replicas": [1, 2, 3]}],
    }
    without_brokers = TopicReport(differs=tuple(found))
    assert topic_commands.commands(without_brokers, "k:9092") == [configs]
