"""The properties of the topics, and the limits on the size of a record."""

import pytest

from foldlog.log import MemoryLog, RecordTooLarge
from foldlog.log.door import HEADER_OVERHEAD_BYTES, compare
from foldlog.log.settings import INLINE_LIMIT_BYTES_MAX
from foldlog.schemas.topics import (
    BATCH_BYTES_MAX,
    DEAD_LETTERS,
    RECORD_BYTES_MAX,
    SESSION_EVENTS,
    TOPICS,
    USER_SESSIONS,
    topics,
)


def test_S2_1_events_are_retained_forever_and_never_compacted():
    by_name = {spec.name: spec.properties() for spec in topics(8)}
    assert list(by_name) == [
        "session-events", "user-sessions", "user-tabs", "memory-events", "log-facts",
        "dlq.session-events",
    ]  # fmt: skip
    for name in (SESSION_EVENTS, "memory-events"):
        retained = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        assert by_name[name].items() >= retained.items()
    assert by_name[USER_SESSIONS]["cleanup.policy"] == "compact"
    assert int(by_name[DEAD_LETTERS]["retention.ms"]) > 0


def test_S2_2_every_topic_uses_the_brokers_clock():
    assert {s.properties()["message.timestamp.type"] for s in TOPICS} == {"LogAppendTime"}


def test_topics_of_sessions_have_the_configured_number_of_partitions():
    assert {spec.name: spec.partitions for spec in topics(3)} == {
        "session-events": 3, "user-sessions": 3, "user-tabs": 3, "memory-events": 3,
        "log-facts": 1, "dlq.session-events": 1,
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
    (found,) = compare(spec, spec.name, 1, have)
    assert "unclean.leader.election.enable" in str(found)
