"""A topic that is deleted and made again under a worker; a broker that stands still."""

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
from foldlog.tests.broker_fixture import unique_name
from foldlog.tests.consumers.played import settings_in

pytestmark = pytest.mark.broker
WAIT_S = 60.0


def remake(servers: str, topic: str, log) -> None:
    """Delete the topic, and make it again as soon as it is gone."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(WAIT_S)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            log.topic_id(SESSION_EVENTS)
        except TopicMissing:
            break
    log.apply_topics(topics(1))


def test_a_topic_made_again_longer_than_before_is_read_from_its_beginning(broker, tmp_path):
    """Its records were folded onto those of the old topic; those below the old offset never."""
    servers, prefix = broker.bootstrap_servers, unique_name() + "-"
    settings = settings_in(tmp_path, bootstrap_servers=servers, topic_prefix=prefix)
    settings = replace(settings, partitions=1)
    with closing(open_log(settings)) as log, closing(Sessions(log, settings)) as sessions:
        log.apply_topics(topics(1)).demand()
        parts = Parts(settings, [Agent(name="a", model="m")], ("sessions",), None)
        reader = parts.loop.reader()

        def round_until(holds) -> None:
            until = time.monotonic() + WAIT_S
            while not holds():
                assert time.monotonic() < until
                parts.loop.round(reader)

        def knows(session_id: str) -> bool:
            found = parts.worker.owned[0].views(session_id) if parts.worker.owned else None
            return found is not None and found.turn.known

        watch = TopicWatch(parts.log, parts.loop.topic_is, look_s=0.05)
        try:
            sessions.open("old", agent="a")
            round_until(lambda: knows("old"))
            # As of a worker that stands still: its client asks for nothing meanwhile.
            place = TopicPartition(settings.topic(SESSION_EVENTS), 0)
            reader._client.pause([place])
            remake(servers, settings.topic(SESSION_EVENTS), log)
            with closing(Sessions(log, settings)) as anew:
                for number in range(20):  # beyond what the worker has read of the old one
                    anew.open(f"new-{number}", agent="a")
            reader._client.resume([place])
            watch.start()
            round_until(lambda: knows("new-0") and knows("new-19"))
            assert not knows("old"), "the store is that of the new topic"
        finally:
            watch.close()
            parts.worker.close()
            reader.close()
            parts.close()


def test_asking_for_the_members_of_a_broker_that_stands_still_says_that_it_is_away(own_broker):
    """It raised AttributeError, which ended a worker whose group had put it out meanwhile."""
    broker = own_broker()
    with closing(KafkaLog(broker.bootstrap_servers, timeout_s=1.0)) as log:
        log.identity()
        pid = broker.state().pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(LogUnreachable):
                log.members("foldlog")
        finally:
            os.kill(pid, signal.SIGCONT)
