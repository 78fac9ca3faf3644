"""The commands of README.md and docs/look-inside.md run in an empty home, and so does the demo of
`make run`."""

import re
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from foldlog.cli.agents import load_agents
from foldlog.tests.kit.own_environment import NO_FLEET, bare_env
from foldlog.tests.kit.programs import line_of
from foldlog.tests.kit.slowness import allowed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
LOOK_INSIDE = (ROOT / "docs" / "look-inside.md").read_text("utf-8")
WAIT_S = allowed(90)
AWAY = 3
"""The exit code when the broker did not answer in time, as on a busy machine."""
WORDS_MAX = 1_000


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are in this language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands(page: str) -> list[str]:
    """The `foldlog` lines of a page, without their comments."""
    typed = "\n".join(blocks(page, "sh")).splitlines()
    lines = [line.partition("#")[0].strip() for line in typed]
    return [line for line in lines if line.startswith("foldlog ")]


@pytest.fixture
def foldlog(tmp_path):
    """Runs one line of the README in an empty home."""
    env = bare_env() | NO_FLEET
    env |= {"FOLDLOG_HOME": str(tmp_path / "home"), "FOLDLOG_USER": "ana"}

    def start(line: str, **options) -> subprocess.Popen:
        words = shlex.split(line)
        assert words[0] == "foldlog"
        command = [sys.executable, "-m", "foldlog.cli", *words[1:]]
        options = {"stdin": subprocess.DEVNULL, **options}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, env=env, cwd=tmp_path, **pipes, **options)

    def run(line: str, typed: str | None = None, codes: tuple[int, ...] = (0,)) -> str:
        stdin = subprocess.DEVNULL if typed is None else subprocess.PIPE
        process = start(line, stdin=stdin)
        out, _ = process.communicate(typed, timeout=WAIT_S)
        assert process.returncode in codes and "Traceback" not in out, (line, out)
        return out

    run.start = start
    yield run
    run("foldlog down")


def written_agent(directory: Path) -> Path:
    """The README's agent, written to the file that the README names."""
    (name,) = re.findall(r"`(\w+\.py)`", README)
    (code,) = blocks(README, "python")
    path = directory / name
    path.write_text(code, "utf-8")
    return path


@pytest.mark.broker
@pytest.mark.timeout(240)  # every command of the page, each a process: 75 s on a slow machine
def test_the_quickstart_of_readme_works_as_written(foldlog, tmp_path):
    written_agent(tmp_path)
    dev_line, chat_line = commands(README)
    dev = foldlog.start(dev_line)
    try:
        shown = iter(partial(line_of, dev.stdout, f"the line {chat_line!r}"), "")
        assert any(chat_line in line for line in shown)
        _until(foldlog, "foldlog status", "partitions 0")
        (typed,) = re.findall(r"Type `(.+)`:", README)
        talk = foldlog(chat_line, f"hello\n{typed}\nyes\n")
        session = re.search(r"session (\S+);", talk)[1]
        assert "asks to run" in talk and '"charged":1900' in talk, talk
        _look_inside(foldlog, session)
        assert (tmp_path / "audit.html").exists()
    finally:
        dev.send_signal(2)
        dev.communicate(timeout=WAIT_S)


def _look_inside(foldlog, session: str) -> None:
    """Run every command of the page look-inside.md, and check the output of each."""
    ended = re.search(r"^\d+:(\d+) .* TURN_ENDED ", foldlog(f"foldlog tail {session}"), re.M)
    shows = {
        "sessions": session,
        "show": "hello",
        "wake": "no pending work",
        "context show": "strategy compacted",
        "context diff": "nothing was left out",
        "request": '{"model"',
        "search": session,
        "memory": "ana",
        "fork": session,
        "export": "audit.html",
        "sql": "input tokens",
        "replay": "matches the log",
        "doctor": "no problem found",
    }
    lines = commands(LOOK_INSIDE)
    assert len(lines) == len(shows)
    for line, (command, wanted) in zip(lines, shows.items(), strict=True):
        assert line.startswith(f"foldlog {command}"), line
        shown = foldlog(line.replace("SESSION", session).replace("OFFSET", ended[1]))
        assert wanted in shown, (line, shown)


def _until(foldlog, line: str, wanted: str) -> None:
    until = time.monotonic() + WAIT_S
    while wanted not in (shown := foldlog(line, codes=(0, AWAY))):
        assert time.monotonic() < until, shown
        time.sleep(1)  # a look is a process


def test_the_agent_of_readme_is_the_one_that_its_commands_name(tmp_path, monkeypatch):
    name = written_agent(tmp_path).stem
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    (agent,) = load_agents([f"{name}:agent"])
    monkeypatch.delitem(sys.modules, name)
    assert agent.tool("charge").effect == "once"
    dev_line, chat_line = commands(README)
    assert dev_line == f"foldlog dev --agent {name}:agent"
    assert chat_line == f"foldlog chat --agent {agent.name}"


def test_a_newcomer_reads_the_readme_in_a_few_minutes():
    assert len(README.split()) <= WORDS_MAX


def test_the_readme_names_the_command_that_runs_every_test():
    assert "`make test`" in README


@pytest.mark.broker
@pytest.mark.crash
def test_S2_7_S2_8_S2_9_the_demo_is_killed_twice_and_loses_nothing(foldlog, tmp_path):
    (tmp_path / "README.md").write_text("# A project\n\nIt is small.\n")
    shown = foldlog("foldlog demo")
    assert shown.count(">>> kill -9") == 2
    for text in ("row T6 owed", "row S3 owed", "happened once", "arrived whole", "byte for byte"):
        assert text in shown, shown
