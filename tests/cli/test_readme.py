"""README taken literally: its commands in an empty home, its agent, and the demo of `make run`."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foldlog.cli.run import load_agents

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
WAIT_S = 90
BLOCKS = dict(enumerate(re.findall(r"```(?:sh|python)\n(.*?)```", README, re.DOTALL)))


def commands() -> list[str]:
    """The `foldlog` lines of the quickstart, without their comments."""
    typed = [line.partition("#")[0].strip() for line in "\n".join(BLOCKS.values()).split("\n")]
    return [line for line in typed if line.startswith("foldlog ")]


@pytest.fixture
def foldlog(tmp_path):
    """Runs one line of README in an empty home."""
    kept = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME", "VIRTUAL_ENV")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"FOLDLOG_HOME": str(tmp_path / "home"), "FOLDLOG_USER": "ana"}

    def start(line: str, **options) -> subprocess.Popen:
        words = shlex.split(line)
        assert words[0] == "foldlog"
        command = [sys.executable, "-m", "foldlog.cli", *words[1:]]
        options = {"stdin": subprocess.DEVNULL, **options}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, env=env, cwd=tmp_path, **pipes, **options)

    def run(line: str, said: str | None = None, code: int = 0) -> str:
        stdin = subprocess.DEVNULL if said is None else subprocess.PIPE
        process = start(line, stdin=stdin)
        out, _ = process.communicate(said, timeout=WAIT_S)
        assert process.returncode == code and "Traceback" not in out, (line, out)
        return out

    run.start = start
    yield run
    run("foldlog down")


@pytest.mark.broker
def test_the_quickstart_of_readme_works_as_written(foldlog):
    lines = commands()
    assert lines[:2] == ["foldlog dev", "foldlog chat"], "the order a new user types them in"
    dev = foldlog.start(lines[0])
    try:
        shown = [dev.stdout.readline() for _ in range(3)]
        assert any("foldlog chat" in line for line in shown), shown
        _until(foldlog, "foldlog status", "partitions 0")
        foldlog("foldlog chat s1", "hello\nno\n")  # no: it asks to run a command
        assert "s1" in foldlog(_line(lines, "sessions"))
        assert "hello" in foldlog(_line(lines, "show"))
        assert '{"model"' in foldlog(_line(lines, "request"))
        assert "strategy compacted" in foldlog(_line(lines, "context show"))
        assert "nothing was ever left out" in foldlog(_line(lines, "context diff"))
        assert "s1" in foldlog(_line(lines, "search"))
        assert "ana" in foldlog(_line(lines, "memory"))
        assert "no problem found" in foldlog(_line(lines, "doctor"))
        assert "is what the log says" in foldlog(_line(lines, "replay"))
    finally:
        dev.send_signal(2)
        dev.communicate(timeout=WAIT_S)


def _line(lines: list[str], command: str) -> str:
    found = next(line for line in lines if line.startswith(f"foldlog {command}"))
    return found.replace("SESSION", "s1")


def _until(foldlog, line: str, wanted: str) -> None:
    until = time.monotonic() + WAIT_S
    while wanted not in (shown := foldlog(line)):
        assert time.monotonic() < until, shown


def test_every_command_of_readme_has_a_help(foldlog):
    for line in commands():
        assert "Usage:" in foldlog(" ".join([*line.split()[:2], "--help"]))


def test_the_agent_of_readme_is_the_one_that_its_commands_name(tmp_path, monkeypatch):
    code = next(block for block in BLOCKS.values() if "@tool" in block)
    (dev,) = (line for line in commands() if line.startswith("foldlog dev --agent"))
    name = re.search(r"--agent (\w+):agent", dev)[1]
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    (agent,) = load_agents([f"{name}:agent"])
    monkeypatch.delitem(sys.modules, name)
    assert agent.tool("charge").effect == "once"
    assert f"foldlog chat --agent {agent.name}" in commands()


@pytest.mark.broker
@pytest.mark.crash
def test_S2_7_S2_8_S2_9_the_demo_is_killed_twice_and_loses_nothing(foldlog, tmp_path):
    (tmp_path / "README.md").write_text("# A project\n\nIt is small.\n")
    shown = foldlog("foldlog demo")
    assert shown.count(">>> kill -9") == 2
    for said in ("row T6 owed", "row S3 owed", "happened once", "arrived whole", "byte for byte"):
        assert said in shown, shown
