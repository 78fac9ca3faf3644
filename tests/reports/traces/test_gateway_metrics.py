"""The metrics and health checks of a gateway."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foldlog.log import LogUnreachable
from foldlog.producers import Sessions
from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.kit.waiting import until
from foldlog.tests.web.gateway.served import served

SECRET = "s" * 40


@pytest.fixture
def log():
    return memory_log(threaded=True)


def numbers(http) -> dict[str, dict[tuple[str, ...], float]]:
    """The gateway's metrics, once it has read the whole log."""

    def numbers_at_the_end():
        answer = http.get("/metrics").raise_for_status()
        assert answer.headers["content-type"].startswith("text/plain")
        assert "s1" not in answer.text and "ana" not in answer.text, "no id"
        found = {
            family.name: {tuple(s.labels.values()): s.value for s in family.samples}
            for family in text_string_to_metric_families(answer.text)
        }
        return None if sum(found["foldlog_lag_records"].values()) else found

    return until("the gateway has read the whole log", numbers_at_the_end)


def test_viewers_sessions_answers_and_lag(log, tmp_path):
    settings = settings_in(tmp_path)
    Sessions(log, settings).open("s1", agent="shop")
    with served(log, settings, tmp_path / "gateway", secret=SECRET) as running:
        with running.http() as http:
            assert (http.get("/healthz").text, http.get("/readyz").text) == ("ok\n", "ready\n")
            assert http.get("/sessions").status_code in (401, 404)
            before = numbers(http)
            subscription = running.gateway.hub
            assert before["foldlog_viewers"] == {(): subscription.viewers} == {(): 0}
            assert before["foldlog_sessions"] == {("new", "idle"): 1}, "reason, status"
            assert sum(before["foldlog_folded_offset"].values()) == 1
            after = numbers(http)["foldlog_gateway_answers"]
            assert after["200",] > before["foldlog_gateway_answers"]["200",] >= 2
            assert sum(v for (status,), v in after.items() if status.startswith("4")) == 1


def test_a_gateway_without_its_broker_is_healthy_but_not_ready(log, tmp_path, monkeypatch):
    with served(log, settings_in(tmp_path), tmp_path / "gateway", secret=SECRET) as running:
        with running.http() as http:
            assert http.get("/readyz").status_code == 200

            def away(topic):
                raise LogUnreachable("no broker at 10.1.2.3")

            monkeypatch.setattr(log, "end_offsets", away)
            found = http.get("/readyz")
            assert found.status_code == 503 and "no broker answers" in found.text
            assert "10.1.2.3" not in found.text
            assert http.get("/healthz").status_code == 200, "a restart would not help"
            monkeypatch.undo()
            assert http.get("/readyz").status_code == 200, "it recovers without a restart"


def test_a_gateway_that_no_longer_follows_the_log_is_unhealthy(log, tmp_path):
    with served(log, settings_in(tmp_path), tmp_path / "gateway", secret=SECRET) as running:
        running.gateway.tail.failed = OSError("a secret reason")
        with running.http() as http:
            assert (http.get("/healthz").status_code, http.get("/readyz").status_code) == (503, 503)
            assert "secret" not in http.get("/healthz").text
