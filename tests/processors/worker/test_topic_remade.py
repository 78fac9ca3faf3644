"""A topic is deleted and recreated under a worker; a broker is paused."""

import os
import signal
import time
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from foldlog.log import LogUnreachable, open_log
from foldlog.log.errors import TopicMissing
from foldlog.log.kafka import KafkaLog
from foldlog.processors.agent import Agent
from foldlog.processors.worker.assemble import Parts
from foldlog.processors.worker.topic_watch import TopicWatch
from foldlog.producers.sessions import Sessions
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.slowness import allowed

pytestmark = pytest.mark.broker
WAIT_S = allowed(60.0)


def recreate(servers: str, topic: str, log) -> None:
    """Delete the topic, and create it again as soon as the deletion is complete."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(WAIT_S)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            log.topic_id(SESSION_EVENTS)
        except TopicMissing:
            break
    log.apply_topics(topics(1))


def test_a_recreated_topic_that_is_longer_is_read_from_its_beginning(broker, tmp_path):
    """The defect: the new records were folded onto the views of the old topic, and those below the
    old cursor were skipped."""
    servers, prefix = broker.bootstrap_servers, unique_name() + "-"
    settings = settings_in(tmp_path, bootstrap_servers=servers, topic_prefix=prefix)
    settings = replace(settings, partitions=1)
    with closing(open_log(settings)) as log, closing(Sessions(log, settings)) as sessions:
        log.apply_topics(topics(1)).demand()
        parts = Parts(settings, [Agent(name="a", model="m")], ("sessions",), None)
        reader = parts.loop.reader()

        def round_until(condition) -> None:
            until = time.monotonic() + WAIT_S
            while not condition():
                assert time.monotonic() < until
                parts.loop.round(reader)

        def has(session_id: str) -> bool:
            views = parts.worker.owned[0].views(session_id) if parts.worker.owned else None
            return views is not None and views.turn.known

        watch = TopicWatch(parts.log, parts.loop.topic_is, check_s=0.05)
        try:
            sessions.open("old", agent="a")
            round_until(lambda: has("old"))
            # Like a paused worker, whose client fetches nothing.
            place = TopicPartition(settings.topic(SESSION_EVENTS), 0)
            reader._client.pause([place])
            recreate(servers, settings.topic(SESSION_EVENTS), log)
            with closing(Sessions(log, settings)) as new_sessions:
                for number in range(20):  # more than the worker has read of the old topic
                    new_sessions.open(f"new-{number}", agent="a")
            reader._client.resume([place])
            watch.start()
            round_until(lambda: has("new-0") and has("new-19"))
            assert not has("old"), "the store is that of the new topic"
        finally:
            watch.close()
            parts.worker.close()
            reader.close()
            parts.close()


def test_members_of_a_paused_broker_raises_LogUnreachable(own_broker):
    """The defect: AttributeError was raised, and ended a worker that had been removed from its
    group."""
    broker = own_broker()
    with closing(KafkaLog(broker.bootstrap_servers, timeout_s=1.0)) as log:
        log.identity()
        pid = broker.state().pid
        stopped_process.stop(pid)
        try:
            with pytest.raises(LogUnreachable):
                log.members("foldlog")
        finally:
            os.kill(pid, signal.SIGCONT)
