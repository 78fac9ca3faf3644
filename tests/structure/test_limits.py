"""The limits of tests: what hangs is named, and the run ends."""

import os
import sys

import pytest

from foldlog.tests import limits
from foldlog.tests.kit.programs import run

CONFTEST = """
import os

from foldlog.tests import limits
from foldlog.tests.kit import slowness

limits.GRACE_S, slowness.SLOWNESS = 1.0, float(os.environ["SLOWNESS"])
pytest_plugins = ["foldlog.tests.limits"]
"""
ENDLESS = """
import asyncio, subprocess, threading, time

import pytest

from foldlog.tests.limits import alive

def endless():
    while True:
        time.sleep(0.1)

@pytest.mark.timeout(1)
def test_main():
    endless()

@pytest.mark.timeout(1)
def test_thread():
    async def play():
        await asyncio.to_thread(endless)
    asyncio.run(play())

@pytest.mark.timeout(1)
def test_much_work():
    end = time.perf_counter() + 1.5
    while time.perf_counter() < end:
        pass

def test_left():
    threading.Thread(target=endless).start()

def test_moves_the_clock(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        pass

def test_shared(tmp_path):
    (tmp_path / "log").write_text("out of memory")
    with subprocess.Popen(["sleep", "100"]) as shared:
        with alive(shared.pid, "the shared broker", str(tmp_path / "log")):
            shared.kill()
            endless()
"""


@pytest.fixture
def play(tmp_path):
    """A function that runs one of the tests of ENDLESS, and returns the finished run."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_planted.py").write_text(ENDLESS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def play(name, *options, slowness=1.0):
        chosen = f"test_planted.py::{name}"
        plugins = ["-p", "pytest_timeout", "-p", "xdist.plugin", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *plugins, *options, chosen]
        env = {**os.environ, "SLOWNESS": str(slowness), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return run(command, within_s=60, cwd=tmp_path, env=env)

    return play


def test_an_endless_test_fails_by_name(play):
    ran = play("test_main")
    assert ran.returncode == 1 and "FAILED test_planted.py::test_main" in ran.stdout


def test_a_limit_is_longer_on_a_slow_machine(play):
    assert play("test_much_work").returncode == 1
    assert play("test_much_work", slowness=4.0).returncode == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("test_thread", "test_planted.py::test_thread did not end"),
        ("test_left", "the exit after test_planted.py::test_left did not end"),
        ("test_shared", "the shared broker"),
    ],
)
def test_what_the_signal_cannot_end_ends_the_process_by_name(play, name, shown):
    ran = play(name)
    assert ran.returncode == limits.EXIT_CODE and shown in ran.stderr
    assert "in endless" in ran.stderr, "the stacks are printed"
    if name == "test_shared":
        assert "test_planted.py::test_shared; its log ends:\nout of memory" in ran.stderr


def test_the_run_ends_with_the_process_and_names_the_test(play):
    ran = play("test_shared", "-n", "1", "--max-worker-restart=0")
    assert ran.returncode == 1
    assert "crashed while running 'test_planted.py::test_shared'" in ran.stdout


def test_a_test_may_move_its_clock(play):
    assert play("test_moves_the_clock").returncode == 0
