"""`init`: the project that it writes passes its tests and runs, and nothing is ever overwritten."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from foldlog.cli.commands.init import TEMPLATES, agent_name
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.own_environment import NO_FLEET, bare_env
from foldlog.tests.kit.programs import line_of
from foldlog.tests.kit.slowness import allowed

WAIT_S = allowed(90)


@pytest.fixture
def run(tmp_path):
    """Runs a Python command in a directory, in a clean environment."""
    env = bare_env() | {"FOLDLOG_HOME": str(tmp_path / "home"), "FOLDLOG_USER": "ana"}

    def start(where: Path, *words: str, **more: str) -> subprocess.Popen:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [sys.executable, "-m", *words]
        return subprocess.Popen(command, cwd=where, env=env | more, text=True, **pipes)

    def run(where: Path, *words: str, typed: str = "", **more: str) -> str:
        process = start(where, *words, **more)
        out, _ = process.communicate(typed, timeout=WAIT_S)
        assert process.returncode == 0, out
        return out

    run.start = start
    return run


def written_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_new_project_passes_its_tests(run, tmp_path):
    shown = run(tmp_path, "foldlog.cli", "init", "my-shop")
    assert written_in(tmp_path / "my-shop") == set(TEMPLATES)
    for text in ("wrote my-shop/app.py", "cd my-shop", "python -m pytest", "--agent my-shop"):
        assert text in shown
    # -W error: what a user sees first must not be a warning
    assert "2 passed" in run(tmp_path / "my-shop", "pytest", "-q", "-W", "error")


@pytest.mark.broker
def test_a_new_project_runs_with_the_commands_of_its_readme(run, tmp_path, broker):
    project = tmp_path / "my-shop"
    found = json.loads(run(tmp_path, "foldlog.cli", "init", "my-shop", "--json"))
    assert found["agent"] == "my-shop" and len(found["written"]) == len(TEMPLATES)
    commands = re.findall(r"^foldlog (.+?)\s+#", (project / "README.md").read_text(), re.M)
    assert [f"foldlog {command}" for command in commands] == found["next"][-2:]
    dev_words, chat_words = (command.split() for command in commands)
    where = NO_FLEET | {
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "FOLDLOG_TOPIC_PREFIX": unique_name("init") + "-",
        "FOLDLOG_PARTITIONS": "1",
    }
    dev = run.start(project, "foldlog.cli", *dev_words, **where)
    try:
        read = partial(line_of, dev.stdout, "the address of the chat")
        text = next((line for line in iter(read, "") if "Next, in another terminal" in line), "")
        assert " ".join(chat_words) in text
        talk = run(project, "foldlog.cli", *chat_words, typed="refund 17\nyes\n", **where)
    finally:
        dev.send_signal(2)
        out, _ = dev.communicate(timeout=WAIT_S)
    assert "asks to run with" in talk and '"refunded":17' in talk, talk
    assert dev.returncode == 0 and "Traceback" not in out, out


@pytest.mark.parametrize("taken", [*TEMPLATES, "app"])
def test_bad_input_nothing_is_overwritten_and_nothing_else_is_written(shell, tmp_path, taken):
    project = tmp_path / "p"
    project.mkdir()
    (project / taken).write_text("mine")
    ran = shell("init", str(project))
    assert ran.code == 1 and f"already has {taken}. Nothing was written" in ran.err
    assert written_in(project) == {taken} and (project / taken).read_text() == "mine"
    (refusal,) = shell("init --json", str(project)).json
    assert refusal["verdict"] == "refused"


def test_bad_input_a_file_or_a_directory_without_a_right_in_place_of_dir(shell, tmp_path):
    (tmp_path / "file").write_text("")
    assert shell("init", str(tmp_path / "file")).code == 2
    ran = shell("init", str(tmp_path / "file" / "below"))
    assert ran.code == 1 and "Nothing was written. Give a directory" in ran.err


def test_the_printed_commands_work_for_a_name_with_a_blank(shell, tmp_path, monkeypatch):
    """The defect: `cd My Shop`."""
    monkeypatch.chdir(tmp_path)
    assert shell("init", "My Shop").code == 0
    (found,) = shell("init --json", "Their Shop").json
    assert found["next"][0] == "cd 'Their Shop'"


@pytest.mark.parametrize(
    ("directory", "name"),
    [("My Shop", "my-shop"), ("/", "agent"), ("x" * 300, "x" * 64), ("日本", "agent")],
)
def test_the_agent_is_named_after_the_directory(directory, name):
    assert agent_name(Path("/tmp") / directory) == name
