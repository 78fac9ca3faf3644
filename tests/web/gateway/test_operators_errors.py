"""Errors of the log: the operator gets the text; a client gets a sentence that names no broker."""

import pytest
from confluent_kafka import KafkaError

from foldlog.log.client import denied, unreachable
from foldlog.log.errors import LogFatal, TopicMismatch
from foldlog.log.faults import LOST, NORMAL, Faults
from foldlog.log.memory import MemoryLog
from foldlog.schemas.topics import topics
from foldlog.tests.kit.played import PARTITIONS, settings_in
from foldlog.tests.web.gateway.served import served

SERVERS = "kafka-7.internal.example:9092"
REASON = "_TRANSPORT: ssl://kafka-7.internal.example:9092/bootstrap: Connect to ipv4#10.1.2.3"


class Lossy(Faults):
    """A fault that loses appends while `is_lossy` is true."""

    is_lossy = False

    def fate(self, *_append):
        """The result of an append."""
        return LOST if self.is_lossy else NORMAL


@pytest.fixture(scope="module")
def faults():
    return Lossy()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, faults):
    directory = tmp_path_factory.mktemp("operators")
    log = MemoryLog(topics(PARTITIONS), threaded=True, faults=faults)
    with served(log, settings_in(directory), directory / "gateway") as running:
        yield running


@pytest.mark.parametrize(("error", "status", "code", "detail"), [
    (unreachable(SERVERS, REASON), 503, "log_unreachable", "Try again"),
    (denied(KafkaError(KafkaError._AUTHENTICATION, REASON), SERVERS), 503, "log_unreachable",
     "Try again"),
    (TopicMismatch(f"the topic secret.session-events at {SERVERS} has 3 partitions"), 503, "topic",
     "nothing was changed"),
    (LogFatal(f"the client of {SERVERS} is finished: {REASON}"), 500, "failed", "operator"),
])
def test_an_error_of_the_log_is_printed_whole_and_names_no_broker_to_a_client(
    gateway, monkeypatch, error, status, code, detail
):
    with gateway.http() as http:
        http.post("/v1/sessions", json={"session_id": f"s-{code}"})

        def fail(_topic):
            raise error

        monkeypatch.setattr(gateway.gateway.client.log, "first_offsets", fail)
        before = len(gateway.output)
        for _ in range(3):
            response = http.get(f"/inspector/api/sessions/s-{code}/events")
            assert (response.status_code, response.json()["code"]) == (status, code)
            assert detail in response.json()["detail"]
            for private in ("kafka-7", "10.1.2.3", "_TRANSPORT", "KAFKA_", "secret."):
                assert private not in response.text
    printed = gateway.output[before:]
    assert len(printed) == 1 and str(error) in printed[0], printed


def test_an_unacknowledged_message_is_answered_with_the_id_for_a_retry(gateway, faults):
    with gateway.http() as http:
        http.post("/v1/sessions", json={"session_id": "lossy"}).raise_for_status()
        faults.is_lossy = True
        try:
            message = {"text": "hi", "message_id": "m1"}
            response = http.post("/v1/sessions/lossy/messages", json=message)
        finally:
            faults.is_lossy = False
        detail = response.json()["detail"]
        assert (response.status_code, response.json()["code"]) == (503, "log_unreachable"), detail
        assert "with the id m1: it takes effect once" in detail and "injected" not in detail
        assert any("injected" in line for line in gateway.output)
