"""`dev` loads an agent again when its file changes: which files are watched, what is checked and
printed, and what the restart waits for.

The tests at the end run `foldlog dev` itself, on a real broker.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue

import pytest

from foldlog.cli.commands import reload
from foldlog.cli.commands.reload import Loaded, Reloader, load_elsewhere
from foldlog.cli.worker_info import is_ready
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.cli.test_on_a_broker import Machine
from foldlog.tests.kit.own_environment import NO_FLEET
from foldlog.tests.kit.programs import end
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.kit.waiting import joined

WAIT_S = allowed(60)
APP = """
from foldlog import Agent
from words import PROMPT
agent = Agent(name="clerk", model="m", system=PROMPT)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with an agent that imports another module of the directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clerk_app.py").write_text(APP)
    (tmp_path / "words.py").write_text('PROMPT = "Be brief."\n')
    (tmp_path / "unrelated.py").write_text("")
    return tmp_path


def check() -> Loaded:
    return load_elsewhere(["clerk_app:agent"])


def names_of(found: Loaded) -> set[str]:
    return {Path(file).name for file in found.files}


def test_the_agents_file_and_what_it_imports_from_its_directory_are_watched(project):
    found = check()
    assert (found.names, found.error) == (("clerk",), "")
    assert names_of(found) == {"clerk_app.py", "words.py"}
    assert not list(project.glob("__pycache__")), "two versions within a second would share one"


def test_the_files_of_an_agent_that_is_named_by_its_file_are_watched(project, tmp_path_factory):
    """Also after the file was deleted, so that the next version is loaded."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("clerk_app.py", "words.py"):
        (project / name).rename(elsewhere / name)
    found = load_elsewhere([f"{elsewhere}/clerk_app.py"])
    assert (found.names, found.error) == (("clerk",), "")
    assert names_of(found) == {"clerk_app.py", "words.py"}
    (elsewhere / "clerk_app.py").unlink()
    found = load_elsewhere([f"{elsewhere}/clerk_app.py"])
    assert "there is no file" in found.error and names_of(found) == {"clerk_app.py"}


def test_a_failed_import_shows_the_users_frames_and_watches_the_failing_file(project):
    (project / "words.py").write_text("def prompt():\n    return 1 / 0\n\nPROMPT = prompt()\n")
    found = check()
    assert names_of(found) >= {"clerk_app.py", "words.py"}
    assert "ZeroDivisionError" in found.trace and "return 1 / 0" in found.trace
    frames = re.findall(r'File ".*?([^/]+\.py)"', found.trace)
    assert frames == ["clerk_app.py", "words.py", "words.py"], "no frame of ours or of Python"
    assert "words.py, line 2" in found.error
    (project / "words.py").write_text("PROMPT = (\n")
    found = check()
    assert "SyntaxError" in found.trace and names_of(found) >= {"clerk_app.py", "words.py"}


def test_a_wrong_name_has_a_reason_and_no_traceback(project):
    found = load_elsewhere(["clerk_app:other"])
    assert found.trace == "" and "has no other" in found.error


def test_an_import_that_kills_its_process_or_hangs_is_an_error(project, monkeypatch):
    (project / "words.py").write_text("import os\nos._exit(7)\n")
    assert "ended with code 7" in check().error
    monkeypatch.setattr(reload, "IMPORT_S", 1.0)
    (project / "words.py").write_text("import signal\nsignal.pause()\n")
    assert "was ended by signal 9" in check().error


class Watched:
    """A Reloader over real files, with a scripted import."""

    def __init__(self, project: Path, monkeypatch) -> None:
        monkeypatch.setattr(reload, "LOOK_S", 0.01)
        self.file = project / "clerk_app.py"
        self.said: Queue[str] = Queue()
        self.next = Loaded((str(self.file),), ("clerk",), "", "")
        self.reloader = Reloader(
            ["clerk_app:agent"], self.next, project, self.said.put, lambda _: self.next
        )

    def save(self, text: str) -> None:
        self.file.write_text(text)

    def see(self, text: str) -> str:
        said = self.said.get(timeout=WAIT_S)
        assert text in said
        return said


@pytest.fixture
def watched(project, monkeypatch):
    made = Watched(project, monkeypatch)
    with made.reloader.watching():
        yield made


def test_a_version_that_fails_keeps_the_worker_and_the_next_good_one_replaces_it(watched):
    good = watched.next
    watched.next = good._replace(names=(), trace="Traceback: line 3", error="no luck.")
    watched.save("# broken, and longer\n")
    watched.see("Traceback: line 3")
    said = watched.see("clerk_app.py changed, and cannot be loaded: no luck.")
    assert "keeps running with the version before" in said
    assert not watched.reloader.wanted.is_set()
    watched.next = good
    watched.save("# good\n")
    watched.see("clerk_app.py changed: replacing the worker")
    assert watched.reloader.wanted.wait(WAIT_S)


def test_new_and_missing_agents_are_named(watched):
    watched.next = watched.next._replace(names=("porter",))
    watched.save("# another agent\n")
    watched.see("replacing the worker")
    watched.see("foldlog chat --agent porter")
    watched.see("gone: agent clerk. Its sessions are kept")


def test_a_reload_waits_for_running_tools(watched, monkeypatch):
    counts = iter([2, 1, 0])
    monkeypatch.setattr(reload, "tools_running", lambda _: next(counts))
    watched.save("# while tools run\n")
    watched.see("replacing the worker")
    watched.see("2 tools still running")
    assert watched.reloader.wanted.wait(WAIT_S) and next(counts, None) is None


def test_bad_input_an_agent_that_fails_to_import_starts_nothing(project, tmp_path, capsys):
    (project / "words.py").write_text("PROMPT = undefined_name\n")
    program = [sys.executable, "-m", "foldlog.cli", "dev", "clerk_app.py"]
    env = {**os.environ, "FOLDLOG_HOME": str(tmp_path / "home")}
    ran = subprocess.run(program, env=env, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == 2 and "undefined_name" in ran.stderr
    assert "Traceback" in ran.stderr and "/cli/commands/run.py" not in ran.stderr
    assert not (tmp_path / "home").exists()


def test_bad_input_a_taken_port_starts_nothing(tmp_path, capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = make_shell(tmp_path, capsys)(f"dev --port {other.getsockname()[1]}")
    assert ran.code == 2 and "Nothing was started" in ran.err
    assert make_shell(tmp_path, capsys)("dev --port 70000").code == 2


SHOP = """
import asyncio, pathlib
from foldlog import Agent, tool
import prices

@tool(effect="once")
async def price(order: int) -> str:
    "The price of an order."
    return f"v{prices.VERSION} of order {order}"

@tool(effect="once")
async def ship(order: int) -> str:
    "Ship an order. Takes a while."
    with open("shipped", "a") as file:
        print(order, file=file)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)
    return f"shipped {order}"

@tool(effect="pure")
async def fail(order: int) -> str:
    "Fail."
    raise KeyError(f"\\x1b[31mno order {order}")

agent = Agent(name="shop", model="m", system="Brief.", tools=[price, ship, fail])
"""


class Dev(Machine):
    """A running `foldlog dev`, and the other commands that a test runs beside it."""

    def __init__(self, directory: Path, servers: str) -> None:
        super().__init__(servers, directory)
        self.env |= NO_FLEET
        self.shown: Queue[str] = Queue()
        self.write("prices.py", "VERSION = 1\n")
        self.write("shop.py", SHOP)
        self.process = self.start("dev", "./shop.py", "--port", "0")
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def write(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "foldlog.cli", *words], env=self.env, cwd=self.home,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def _read(self) -> None:
        for line in self.process.stdout:
            self.shown.put(line)

    def see(self, text: str) -> str:
        """Wait until the terminal shows a line with this text. Returns the output up to that
        line."""
        seen, until = "", time.monotonic() + WAIT_S
        while text not in seen:
            try:
                seen += self.shown.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                raise AssertionError(f"{text!r} did not appear in:\n{seen}") from None
        return seen

    def ask(self, session: str, text: str) -> str:
        return self("send", session, text, "--agent", "shop", "--wait")

    def reloaded(self) -> None:
        self.see("the worker was replaced")

    def end(self) -> str:
        self.close()
        end(self.process, WAIT_S, signal.SIGINT)
        joined(self._reader)
        return "".join(self.shown.get() for _ in range(self.shown.qsize()))


@pytest.fixture(scope="module")
def dev(broker, tmp_path_factory):
    running = Dev(tmp_path_factory.mktemp("dev"), broker.bootstrap_servers)
    try:
        running.see("Next, in another terminal")
        assert is_ready(running.home / "worker"), "its worker serves at once"
        yield running
    finally:
        running.end()
    assert running.process.returncode == 0


@pytest.mark.broker
def test_S2_a_session_continues_with_the_new_version_of_an_imported_module(dev):
    assert "v1 of order 17" in dev.ask("s1", "price 17")
    dev.write("prices.py", "VERSION = 2\n")
    dev.see("prices.py changed: replacing the worker")
    dev.reloaded()
    assert "v2 of order 17" in dev.ask("s1", "price 17")


@pytest.mark.broker
def test_a_version_that_fails_to_import_prints_its_traceback_and_the_old_one_serves(dev):
    dev.write("prices.py", "VERSION = 3\nraise RuntimeError('no luck')\n")
    shown = dev.see("keeps running with the version before")
    assert "Traceback" in shown and 'prices.py", line 2' in shown and "no luck" in shown
    assert "v2 of order 18" in dev.ask("s2", "price 18")
    dev.write("prices.py", "VERSION = 3\n")
    dev.reloaded()
    assert "v3 of order 18" in dev.ask("s2", "price 18")


@pytest.mark.broker
def test_S2_a_reload_while_a_once_tool_runs_neither_loses_nor_doubles_it(dev):
    waiting = dev.start("send", "s3", "ship 19", "--agent", "shop", "--wait")
    shipped, until = dev.home / "shipped", time.monotonic() + WAIT_S
    while not shipped.exists() or not shipped.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    dev.write("prices.py", "VERSION = 4\n")
    dev.see("1 tool still running")
    dev.write("go", "")
    dev.reloaded()
    out, _ = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 0 and "shipped 19" in out, out
    assert shipped.read_text() == "19\n"
    events = [json.loads(line)["type"] for line in dev("tail", "s3", "--json").splitlines()]
    assert events.count("TOOL_STARTED") == 1 and "TOOL_FAILED_UNCERTAIN" not in events


@pytest.mark.broker
def test_the_traceback_of_a_failing_tool_is_printed_and_stays_out_of_the_log(dev):
    dev.ask("s4", "fail 20")
    shown = dev.see("KeyError")
    assert "session s4: tool fail (call 1.1.0, attempt 1) raised an error" in shown
    assert "Traceback" in shown and 'shop.py", line' in shown
    assert "\x1b" not in shown, "a text from the model cannot control the terminal"
    log = dev("tail", "s4", "--json", "--resolve")
    assert "KeyError" in log and "Traceback" not in log and "shop.py" not in log
