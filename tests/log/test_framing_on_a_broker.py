"""Confluent framing on a real cluster, with readers and group readers."""

import pytest

from foldlog.log import RegistryAway, Settings, open_log
from foldlog.schemas.codec import encode as encoded, entry_of, headers_for
from foldlog.schemas.events import EVENT_TYPES
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.broker_fixture import unique_name
from foldlog.tests.log.contract import POLL_S, read, until
from foldlog.tests.log.mock_registry import MockRegistry
from foldlog.tests.schemas.arbitrary import example_of

pytestmark = pytest.mark.broker
EXAMPLES = [example_of(row.cls) for row in EVENT_TYPES]
START = {0: 0, 1: 0}


@pytest.fixture
def opened(broker, tmp_path):
    logs = []

    def open_with(home: str, **more: str):
        env = {"HOME": str(tmp_path / home), "USER": "ada"}
        env["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
        env["FOLDLOG_TOPIC_PREFIX"] = prefix
        env |= {f"FOLDLOG_{name.upper()}": text for name, text in more.items()}
        logs.append(open_log(Settings.load(env)))
        return logs[-1]

    prefix = unique_name() + "."
    yield open_with
    for log in logs:
        log.close()


def test_events_are_read_back_and_readers_wait_for_an_unavailable_registry(opened):
    mock = MockRegistry()
    with mock.serving():
        url = {"registry_url": mock.url}
        writer = opened("writer", framing="confluent", **url)
        writer.apply_topics(topics(2))
        plain = opened("plain")
        for log in (writer, plain):
            producer = log.producer()
            for event in EXAMPLES:
                headers = headers_for(event, "producer")
                producer.append(SESSION_EVENTS, "s", encoded(event), headers, partition=1)
            assert producer.flush(30) == 0
        subjects = set(mock.subjects)
    count = 2 * len(EXAMPLES)
    assert all(name.startswith(writer._prefix + "session-events-foldlog") for name in subjects)
    raw = read(plain.reader(SESSION_EVENTS, START), count)
    assert [r.value[0] for r in raw] == [0] * len(EXAMPLES) + [0xC3] * len(EXAMPLES)
    # This home has every type in its cache and needs no registry.
    cached = opened("writer", framing="confluent", **url)
    assert _events(read(cached.reader(SESSION_EVENTS, START), count)) == EXAMPLES * 2
    # The readers of other homes wait at the first record.
    reader = opened("other", **url).reader(SESSION_EVENTS, START)
    member = opened("third", **url).group_reader(
        SESSION_EVENTS, unique_name(), "w", lambda parts: dict.fromkeys(parts, 0), list
    )
    until(lambda: 1 in member.positions(), lambda: member.poll(POLL_S))
    for waiting in (reader, member):
        assert [waiting.poll(POLL_S) for _ in range(3)] == [[]] * 3
        assert waiting.positions()[1] == 0
    with pytest.raises(RegistryAway):
        opened("other", framing="confluent", **url).producer().append(
            SESSION_EVENTS, "s", encoded(EXAMPLES[0])
        )
    with mock.serving():
        for waiting in (reader, member):
            assert _events(read(waiting, count)) == EXAMPLES * 2


def _events(records):
    return [entry_of(record, chunks=True).event for record in records]
