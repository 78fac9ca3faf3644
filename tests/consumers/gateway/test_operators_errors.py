"""Errors of the log: the operator reads their text, a client a sentence that names no broker."""

import pytest
from confluent_kafka import KafkaError

from foldlog.log.client import denied, unreachable
from foldlog.log.errors import LogFatal, TopicMismatch
from foldlog.log.faults import LOST, NORMAL, Faults
from foldlog.log.memory import MemoryLog
from foldlog.schemas.topics import topics
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import PARTITIONS, settings_in

SERVERS = "kafka-7.internal.example:9092"
REASON = "_TRANSPORT: ssl://kafka-7.internal.example:9092/bootstrap: Connect to ipv4#10.1.2.3"


class Lossy(Faults):
    """Loses what is appended while it is told to."""

    lost = False

    def fate(self, *_given):
        """What becomes of an append."""
        return LOST if self.lost else NORMAL


@pytest.fixture(scope="module")
def faults():
    return Lossy()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, faults):
    place = tmp_path_factory.mktemp("operators")
    log = MemoryLog(topics(PARTITIONS), threaded=True, faults=faults)
    with served(log, settings_in(place), place / "gateway") as running:
        yield running


@pytest.mark.parametrize(("error", "status", "code", "told"), [
    (unreachable(SERVERS, REASON), 503, "log_unreachable", "Try again"),
    (denied(KafkaError(KafkaError._AUTHENTICATION, REASON), SERVERS), 503, "log_unreachable",
     "Try again"),
    (TopicMismatch(f"the topic secret.session-events at {SERVERS} has 3 partitions"), 503, "topic",
     "nothing was changed"),
    (LogFatal(f"the client of {SERVERS} is finished: {REASON}"), 500, "failed", "operator"),
])
def test_an_error_of_the_log_names_no_broker_to_a_client_and_all_of_it_to_the_operator(
    gateway, monkeypatch, error, status, code, told
):
    with gateway.http() as http:
        http.post("/v1/sessions", json={"session_id": f"s-{code}"})

        def away(_topic):
            raise error

        monkeypatch.setattr(gateway.gateway.client.log, "first_offsets", away)
        before = len(gateway.said)
        for _ in range(3):
            answer = http.get(f"/inspector/api/sessions/s-{code}/events")
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
            assert told in answer.json()["detail"]
            for private in ("kafka-7", "10.1.2.3", "_TRANSPORT", "KAFKA_", "secret."):
                assert private not in answer.text
    printed = gateway.said[before:]
    assert len(printed) == 1 and str(error) in printed[0], printed


def test_what_the_log_did_not_acknowledge_names_the_id_to_repeat_it_by(gateway, faults):
    with gateway.http() as http:
        http.post("/v1/sessions", json={"session_id": "lossy"}).raise_for_status()
        faults.lost = True
        try:
            say = {"text": "hi", "message_id": "m1"}
            answer = http.post("/v1/sessions/lossy/messages", json=say)
        finally:
            faults.lost = False
        detail = answer.json()["detail"]
        assert (answer.status_code, answer.json()["code"]) == (503, "log_unreachable"), detail
        assert "with the id m1: it takes effect once" in detail and "injected" not in detail
        assert any("injected" in line for line in gateway.said)
