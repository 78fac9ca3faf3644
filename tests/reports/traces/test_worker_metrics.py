"""The metrics, health checks and JSON logs of a worker on a broker."""

import json
import signal
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foldlog.tests.cli.test_on_a_broker import WAIT_S, machine

pytestmark = pytest.mark.broker
__all__ = ["machine"]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=90) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except urllib.error.URLError:
        return 0, ""  # the worker's pages are not served yet


def measured(web: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The worker's metrics, by family and labels."""
    _, text = fetch(f"{web}/metrics")
    assert "s1" not in text and "secret" not in text, "no id and no content"
    return {
        family.name: {tuple(s.labels.values()): s.value for s in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_S2_worker_metrics_count_a_turn_and_its_json_logs_have_no_content(machine, tmp_path):
    worker = machine.start("worker", "--log-json")
    try:
        machine("send", "s1", "a secret word")
        web = ""
        values: dict = {}
        until = time.monotonic() + WAIT_S
        while not values.get("foldlog_claims") and time.monotonic() < until:
            if not web and (files := list(tmp_path.glob("**/worker.json"))):
                web = json.loads(files[0].read_text())["web"]
            values = measured(web) if web else {}
            time.sleep(0.05)
        machine("cancel", "s1")
        while not values.get("foldlog_turns") and time.monotonic() < until:
            values = measured(web)
            time.sleep(0.05)
        assert fetch(f"{web}/healthz") == (200, "ok\n")
        assert fetch(f"{web}/readyz") == (200, "ready\n")
    finally:
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=WAIT_S)
    assert values["foldlog_turns"] == {("cancelled",): 1}
    assert values["foldlog_claims"]["models", "accepted"] >= 1
    assert values["foldlog_wake_rows"]["S1",] >= 1
    assert values["foldlog_dead_letters"] == {(): 0}, "an alert needs a 0 before the first"
    assert values["foldlog_facts_failed"] == {(): 0}
    assert values["foldlog_facts_waiting"].keys() == values["foldlog_folded_offset"].keys()
    assert values["foldlog_log_reachable"] == {(): 1}
    assert abs(values["foldlog_clock_skew_seconds"][()]) < 10
    assert sum(values["foldlog_lag_records"].values()) >= 0
    assert sum(values["foldlog_folded_offset"].values()) > 5
    assert values["foldlog_partitions_held"]["sessions",] == 2
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert any("runs" in line["text"] and line["logger"] == "foldlog.worker" for line in lines)
    assert "secret" not in err
