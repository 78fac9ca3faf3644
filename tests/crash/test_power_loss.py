"""A device that loses power resumes mid-task from its units alone (S2.13).

The test runs the commands of the units of `deploy/` in the order of the units. A kill of all
processes at once stands for the power loss; what a real one loses is what the disk acknowledged too
early, which no test here can show.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from foldlog.local.messages_api import Reply, Script, ScriptedServer, text
from foldlog.tests.kit.own_environment import bare_env
from foldlog.tests.kit.programs import ended, run
from foldlog.tests.kit.waiting import until
from foldlog.tests.structure.test_systemd import INSTALLED, settings_of
from foldlog.tests.structure.tree import ROOT

pytestmark = [
    pytest.mark.broker, pytest.mark.crash, pytest.mark.spread,
    pytest.mark.timeout(300),  # a Kafka of its own starts twice
]
START_S = 120
UNITS = ("foldlog-broker.service", "foldlog-topics.service", "foldlog-worker@.service")
STORY = "one two three four five six seven eight nine ten"


def in_order() -> list[str]:
    """The units as systemd starts them: each after those that it names in After."""
    after = {
        unit: [name for value in settings_of(ROOT / "deploy" / unit)["After"]
               for name in value.split() if name in UNITS]
        for unit in UNITS
    }
    return list(TopologicalSorter(after).static_order())


class Device:
    """The units of one machine, whose /var/lib/foldlog is a directory of the test."""

    def __init__(self, home: Path, api: str) -> None:
        self.home = home
        self.settings = [  # the content of /etc/foldlog/*.env
            "FOLDLOG_DURABILITY=flushed", "ANTHROPIC_API_KEY=scripted", f"ANTHROPIC_BASE_URL={api}",
        ]
        self.running: list[subprocess.Popen] = []
        self.power_returns: Callable[[], None] = lambda: None

    def env(self, unit: str) -> dict[str, str]:
        """The environment of a unit. Kafka was downloaded before the tests."""
        lines = [*settings_of(ROOT / "deploy" / unit)["Environment"], *self.settings]
        named = dict(line.replace("%i", "1").split("=", 1) for line in lines)
        named.pop("FOLDLOG_CACHE_DIR", None)
        here = {name: value.replace("/var/lib/foldlog", str(self.home))
                for name, value in named.items()}
        return bare_env("FOLDLOG_CACHE_DIR", "FOLDLOG_CI_RUN") | here

    def start(self) -> None:
        """Start the units in their order, as at boot."""
        for unit in in_order():
            settings = settings_of(ROOT / "deploy" / unit)
            (line,) = settings["ExecStart"]
            program, *arguments = [word for word in line.split() if not word.startswith("$")]
            assert program == INSTALLED
            command = [sys.executable, "-m", "foldlog.cli", *arguments]
            if settings["Type"] == ["exec"]:
                self.running.append(subprocess.Popen(
                    command, env=self.env(unit), cwd=self.home, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                ))
                continue
            ran = run(command, within_s=START_S, env=self.env(unit), cwd=self.home)
            assert ran.returncode == 0, ran.stderr

    def processes(self) -> list[int]:
        """The ids of the device's processes: they have its directory or its environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                home = f"FOLDLOG_HOME={self.home}".encode()
                is_ours = home in (path / "environ").read_bytes().split(b"\0")
                if is_ours or Path(os.readlink(path / "cwd")).is_relative_to(self.home):
                    found.append(int(path.name))
        return found

    def lose_power(self) -> int:
        """Kill every process at once: all are stopped first, so that none reacts to another."""
        found = self.processes()
        for by in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, by)
        for process in self.running:
            ended(process)
        self.running.clear()
        until("no process is left", lambda: not self.processes(), show=self.processes)
        return len(found)

    def foldlog(self, *args: str, code: int | None = 0) -> str:
        """The output of a command of the device's user. code: the exit code, or None for any."""
        ran = run([sys.executable, "-m", "foldlog.cli", *args], within_s=START_S,
                  env=self.env("foldlog-worker@.service"), cwd=self.home)
        assert code in (None, ran.returncode), (args, ran.stdout, ran.stderr)
        return ran.stdout


@pytest.fixture
def device(tmp_path) -> Iterator[Device]:
    """A device whose model waits in the middle of each answer until the power has returned."""
    story = Reply([text(STORY)], chunk="word", gate="power", gate_after=8)
    with ScriptedServer(script=Script([story])) as server:
        found = Device(tmp_path, server.base_url)
        found.power_returns = partial(server.open, "power")
        try:
            yield found
        finally:
            found.lose_power()


def turn_of(device: Device) -> dict:
    return json.loads(device.foldlog("show", "s1", "--json"))["turn"]


def flushes(device: Device) -> bool:
    """Whether the broker writes every record to its disk at once, as doctor reads it back."""
    properties = (device.home / "kafka" / "server.properties").read_text("utf-8")
    found = map(json.loads, device.foldlog("doctor", "--json", code=None).splitlines())
    codes = [row["code"] for row in found if row["check"] == "topics"]
    return "log.flush.interval.messages=1\n" in properties and codes == ["topics_ok_flushed"]


def test_S2_13_after_a_power_loss_the_units_alone_end_the_open_turn(device):
    assert in_order() == list(UNITS)
    device.start()
    assert flushes(device)
    device.foldlog("send", "s1", "tell me a story", "--message-id", "m1")
    until("the answer has begun", lambda: "GEN_CHUNK" in device.foldlog("tail", "s1", "--chunks"))
    assert device.lose_power() >= 3, "Kafka, the supervisor and the worker"
    device.power_returns()
    device.start()
    until("the turn has ended", lambda: not turn_of(device)["open"], within_s=START_S)
    assert turn_of(device)["number"] == 1
    assert STORY in device.foldlog("show", "s1", "--view", "transcript")
