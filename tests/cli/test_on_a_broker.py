"""Commands with a real broker and a real worker. Services, and commands that a signal or another
process must meet, run as processes."""

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.cli.__main__ import main
from foldlog.cli.edge import Edge
from foldlog.log import Log, Settings, open_log
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.own_environment import installation_env
from foldlog.tests.kit.programs import line_of, output_of
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.kit.waiting import until

pytestmark = pytest.mark.broker
WAIT_S = allowed(60)


class _Edge(Edge):
    """Settings from an environment, and a connection that a machine's commands share."""

    def __init__(self, settings: Settings, log: Log) -> None:
        super().__init__(settings)
        self._shared = log

    @property
    def log(self) -> Log:
        return self._shared


class Machine:
    """Runs `foldlog` against the shared broker, with a separate topic prefix and home directory.

    `machine(...)` runs a command in the test's process; `process` and `start` run it as a user
    does.
    """

    def __init__(self, servers: str, home: Path) -> None:
        self.home = home
        self.env = installation_env(servers, home, "cli")
        self._connected: tuple[Settings, Log] | None = None

    def start(self, *args: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "foldlog.cli", *args],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def process(self, *args: str, code: int = 0) -> str:
        """The output of a command that runs as a process."""
        process = self.start(*args)
        out, err = output_of(process)
        return self._checked(args, code, process.returncode, out, err)

    def __call__(self, *args: str, code: int = 0) -> str:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with contextlib.chdir(self.home):
                returned = main(args, self._edge())
        out.seek(0)
        return self._checked(args, code, returned, out.read(), err.getvalue())

    def _checked(self, args: tuple[str, ...], code: int, returned: int, out: str, err: str) -> str:
        assert returned == code, (args, out, err)
        assert "Traceback" not in err
        return out if code == 0 else err

    def _edge(self) -> Edge:
        settings = Settings.load(self.env, None, {})
        if self._connected is None or self._connected[0] != settings:
            self.close()
            self._connected = settings, open_log(settings)
        return _Edge(*self._connected)

    def close(self) -> None:
        """Close the connection of the commands in the test's process."""
        if self._connected is not None:
            self._connected[1].close()
        self._connected = None


@pytest.fixture
def machine(broker, tmp_path):
    with contextlib.closing(Machine(broker.bootstrap_servers, tmp_path)) as machine:
        assert "session-events: created" in machine("topics", "apply")
        yield machine


def test_commands_without_a_worker(machine):
    assert "turn 1" in machine("send", "s1", "hi", "--message-id", "m1")
    assert "done before" in machine("send", "s1", "hi", "--message-id", "m1")
    assert "another user" in machine("cancel", "s1", "--user", "eve", code=1)
    assert "turn 1 is cancelled" in machine("cancel", "s1")
    types = [json.loads(line)["type"] for line in machine("tail", "--json").splitlines()]
    assert types == ["SESSION_OPENED", *["MESSAGE_RECEIVED"] * 2, *["CANCEL_REQUESTED"] * 2]
    assert "TURN_ENDED" in machine("wake", "s1")
    first = machine("replay", "--json")
    assert first == machine("replay", "--json") and "session_state" in first
    machine("doctor", code=1)


def test_tail_follow_continues_and_ends_cleanly_at_ctrl_c(machine):
    machine("open", "s1")
    following = machine.start("tail", "s1", "--follow", "--json")
    assert json.loads(line_of(following.stdout, "a line of its output"))["type"] == "SESSION_OPENED"
    machine("lock", "s1", "p1")
    assert json.loads(line_of(following.stdout, "a line of its output"))["project_id"] == "p1"
    following.send_signal(2)
    _, err = following.communicate(timeout=WAIT_S)
    assert (following.returncode, err.strip()) == (130, "")


def test_a_worker_answers_and_its_store_matches_the_log(machine):
    worker = machine.start("worker")
    try:
        sent = json.loads(machine("send", "s1", "what is this?", "--json"))
        approve_until_answered(machine, sent["message_id"])
        shown = json.loads(machine("show", "s1", "--json"))
        assert shown["turn"]["open"] is False
        assert machine("request", "s1", "1.1").startswith('{"model"')
        assert "matches the log" in machine("replay", "--verify")
        assert "no problem found" in machine("doctor")
        assert "worker: w-" in machine("status")
    finally:
        worker.terminate()
        _, err = worker.communicate(timeout=WAIT_S)
    assert "a scripted model answers" in err and "Traceback" not in err
    assert "matches the log" in machine("replay", "--verify"), "the closed store"


def test_a_replay_in_two_processes_equals_one_and_reports_what_a_process_finds(machine):
    for name in ("s1", "s2", "s3", "s4", "s5"):
        machine("send", name, "hi")
    log = open_log(Settings.load(machine.env))
    try:
        ends = log.end_offsets(SESSION_EVENTS)
        assert sum(end > 0 for end in ends.values()) > 1, "else one process is enough"
        one = machine("replay", "--json", "--jobs", "1")
        two = machine.process("replay", "--json", "--jobs", "2")
        assert one.count("sha256") == 5 and two == one
        assert machine("replay", "--json", "--processes", "9") == one, "the old name of the option"
        fresh = str(machine.home / "fresh")
        machine("replay", "--into", fresh, "--jobs", "2")
        machine.env["FOLDLOG_STATE_DIR"] = fresh
        assert "every view of 5 sessions" in machine("replay", "--verify", "--jobs", "2")
        partition = max(ends, key=lambda p: ends[p])
        log.live.delete_before(SESSION_EVENTS, {partition: 1})
        cut = str(machine.home / "cut")
        why = machine("replay", "--into", cut, "--jobs", "2", code=1)
        assert f"partition {partition}: folding must start at offset 0" in why
    finally:
        log.close()


def approve_until_answered(machine, message_id):
    """Wait for the answer in one process, and approve the calls that it names in other
    processes."""
    waiting = machine.start("send", "s1", "--message-id", message_id, "--wait", "--json")
    for line in waiting.stderr:
        if "waits for approval" in line:
            call = line.split("`")[1].split()[-1]
            assert "is allowed" in machine("approve", "s1", call)
    out, _ = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 0
    answer = json.loads(out)
    assert answer["reason"] == "end_turn" and answer["text"]


def test_S2_9_a_killed_supervisor_can_be_started_again_at_once(machine):
    """The defect: the killed supervisor's worker needs a moment to end, and a restart in that
    moment was refused.

    At SIGTERM, the new supervisor exits with 0, whether it waits for the old worker, starts, or
    works.
    """
    first = machine.start("worker", "--supervise")
    try:
        machine("open", "s1")
        machine("send", "s1", "hi")
        until("the worker runs", (machine.home / "worker" / "worker.json").exists)
        second_by_mistake = machine.process("worker", "--supervise", code=2)
        assert "is already running" in second_by_mistake
        assert "is already running" in machine.process("worker", code=2)
    finally:
        first.kill()
    again = machine.start("worker", "--supervise")
    try:
        until("the worker is shown", lambda: "worker: w-" in machine.process("status"))
    finally:
        again.terminate()
        _, err = again.communicate(timeout=WAIT_S)
        first.communicate(timeout=WAIT_S)
    assert again.returncode == 0 and "Traceback" not in err, err


@pytest.mark.parametrize(
    ("of_gateway", "of_others"),
    [
        (signal.SIGTERM, signal.SIGINT),
        pytest.param(signal.SIGINT, signal.SIGTERM, marks=pytest.mark.full),
    ],
)
def test_every_service_ends_with_0_at_ctrl_c_and_at_sigterm(machine, of_gateway, of_others):
    """The defect: the gateway exited with 130 or died of the signal, which a supervisor takes for a
    failure."""
    services = {
        "gateway": machine.start("gateway", "--port", "0"),
        "fleet": machine.start("fleet"),
        "worker": machine.start("worker", "--supervise"),
    }
    try:
        gateway, fleet = services["gateway"].stdout, services["fleet"].stderr
        assert "the gateway serves http://" in line_of(gateway, "its address")
        assert "fleet member" in line_of(fleet, "its address")
        until("the worker runs", (machine.home / "worker" / "worker.json").exists)
    finally:
        for name, service in services.items():
            service.send_signal(of_gateway if name == "gateway" else of_others)
        ended = {name: service.communicate(timeout=WAIT_S) for name, service in services.items()}
    assert {name: service.returncode for name, service in services.items()} == dict.fromkeys(
        services, 0
    )
    assert not [err for _, err in ended.values() if "Traceback" in err]


@pytest.mark.parametrize(
    ("service", "number"),
    [
        ("worker", signal.SIGINT),
        ("worker --supervise", signal.SIGTERM),
        ("dev --port 0", signal.SIGINT),
        pytest.param("worker", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("worker --supervise", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("dev --port 0", signal.SIGTERM, marks=pytest.mark.full),
    ],
)
def test_a_worker_that_imports_the_sdk_ends_with_0(machine, service, number):
    """The defect: the end waited for the import of the model SDK, and after 13 s the exit code was
    1. Here the import never ends."""
    module, importing = machine.home / "slow" / "anthropic.py", machine.home / "importing"
    module.parent.mkdir()
    module.write_text(
        "import pathlib, threading\n"
        f"pathlib.Path({str(importing)!r}).touch()\n"
        "threading.Event().wait()\n"
    )
    machine.env["PYTHONPATH"] = str(module.parent)
    process = machine.start(*service.split())
    try:
        until("the SDK is imported", importing.exists)
    finally:
        process.send_signal(number)
        _, err = output_of(process)
    assert process.returncode == 0 and "Traceback" not in err, err
    assert "did not end cleanly" not in err
