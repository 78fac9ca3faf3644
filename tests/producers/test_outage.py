"""A broker outage: a call that was not acknowledged may be repeated."""

import pytest

from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.log import LogUnreachable, open_log
from foldlog.producers import Sessions, Unacknowledged
from foldlog.schemas.topics import topics
from foldlog.tests.kit.played import PARTITIONS, settings_in

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]


def test_F3_a_killed_broker_loses_nothing_and_a_repeated_message_counts_once(own_broker, tmp_path):
    broker = own_broker()
    settings = settings_in(tmp_path, bootstrap_servers=broker.bootstrap_servers)
    with LogClient(settings) as client:
        client.log.apply_topics(topics(PARTITIONS))
        Session(client, "s1").say("one", message_id="m1")
        broker.kill()
        impatient = Sessions(client.log, settings, ack_s=0.5)
        with pytest.raises(Unacknowledged, match="with the id m2: it counts once") as lost:
            impatient.say("s1", "two", message_id="m2")
        assert lost.value.id == "m2"
        with pytest.raises(LogUnreachable):
            Session(client, "s1").views()
        broker.up()
        decision = Session(client, "s1").say("two", message_id="m2")
        assert decision.counted
        impatient.close()  # its queued record is in the log by now, before or after the repetition
        again = Session(client, "s1").say("two", message_id="m2")
        assert again.verdict == "duplicate"
        received = [row.message_id for row in Session(client, "s1").views().messages.received]
        assert received == ["m1", "m2"]


def test_an_address_without_a_broker_fails_within_seconds(tmp_path):
    settings = settings_in(tmp_path, bootstrap_servers="127.0.0.1:1")
    log = open_log(settings)
    with pytest.raises(Unacknowledged, match="no broker answered within 0.3 s"):
        Sessions(log, settings, ack_s=0.3).say("s1", "hi")
    with pytest.raises(LogUnreachable, match=r"127\.0\.0\.1:1"):
        Session(LogClient(settings, log), "s1").views()
    log.close()
