"""The units of deploy/ have the keys that they need, and systemd accepts them where it is
installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.cli.__main__ import USAGE
from foldlog.processors.worker import supervise
from foldlog.tests.structure.tree import ROOT

UNITS = sorted((ROOT / "deploy").glob("*.service"))
INSTALLED = "/opt/foldlog/bin/foldlog"


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Every value of every key. systemd allows a key several times."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text("utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_S2_7_S2_13_there_is_a_unit_for_each_part_of_an_installation():
    parts = ("broker", "fleet", "gateway", "topics", "worker@")
    assert [unit.name for unit in UNITS] == [f"foldlog-{part}.service" for part in parts]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("planted", ["", "Restrat=always\n", "TimeoutStopSec=soon\n"])
def test_S2_7_systemd_accepts_the_unit_and_no_misspelling(unit: Path, planted: str, tmp_path: Path):
    for each in UNITS:  # a unit may require another one
        text = each.read_text("utf-8").replace(INSTALLED, sys.executable)
        (tmp_path / each.name).write_text(text)
    checked = tmp_path / unit.name
    checked.write_text(checked.read_text().replace("[Service]\n", f"[Service]\n{planted}"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(checked)], capture_output=True, text=True,
        timeout=60,
    )
    # systemd ignores an unknown key, with a warning.
    wrong = [line for line in ran.stderr.splitlines() if checked.name in line]
    assert bool(wrong) == bool(planted), ran.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_S2_7_the_service_starts_with_the_machine_and_whenever_it_has_ended(unit: Path):
    settings = settings_of(unit)
    assert settings["WantedBy"] == ["multi-user.target"]
    is_short = settings["Type"] == ["oneshot"]
    assert settings["Restart"] == ["on-failure" if is_short else "always"]
    assert settings["StartLimitIntervalSec"] == ["0"]
    assert settings["RestartPreventExitStatus"] == [str(supervise.MISUSE)] == [str(USAGE)]
    assert is_short or float(settings["TimeoutStopSec"][0]) > supervise.STOP_S
    assert settings["NoNewPrivileges"] == ["yes"] and settings["ProtectSystem"] == ["strict"]
    # The service writes only where ProtectSystem allows it.
    assert settings["StateDirectory"] == ["foldlog"]
    written = [value.partition("=")[2] for value in settings["Environment"] if "=/" in value]
    assert written and all(path.startswith("/var/lib/foldlog") for path in written)
    assert settings["ExecStart"][0].startswith(INSTALLED)


def test_C12_a_worker_is_not_given_the_secret_of_the_gateway():
    files = {unit.name: set(settings_of(unit)["EnvironmentFile"]) for unit in UNITS}
    assert files["foldlog-broker.service"] == files["foldlog-topics.service"] == {
        "-/etc/foldlog/foldlog.env"}
    gateway, worker = files["foldlog-gateway.service"], files["foldlog-worker@.service"]
    assert gateway & worker == {"-/etc/foldlog/foldlog.env"}
    assert gateway - worker == {"-/etc/foldlog/gateway.env"}
    assert worker - gateway == {"-/etc/foldlog/worker.env"}
