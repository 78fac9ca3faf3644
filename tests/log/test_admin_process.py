"""The admin client's process: it dies, hangs or is interrupted, and ours continues."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from foldlog.log import LogUnreachable, SettingsError
from foldlog.log.admin import Cluster
from foldlog.log.admin_process import AdminProcess
from foldlog.log.kafka import KafkaLog
from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.programs import ended, line_of
from foldlog.tests.kit.waiting import joined, until

UNREACHABLE = "127.0.0.1:1"  # a privileged port without a listener
SILENT_S = 3_600.0
SECRET = "canary-of-a-password"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def silent_server():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent(silent_server):
    """A log whose requests get no answer, and have no end of their own within the test."""
    log = KafkaLog(silent_server, timeout_s=SILENT_S / 2)
    yield log
    log.close()


def pid_of(log: KafkaLog) -> int:
    child = log._admin._child
    assert child is not None
    return child.process.pid


def begun(log: KafkaLog, count: int = 1) -> "list[Waiting]":
    """This many requests that wait for an answer."""
    requests = [Waiting(log) for _ in range(count)]
    until("the requests wait", lambda: has_waiting(log, count))
    return requests


def has_waiting(log: KafkaLog, count: int) -> bool:
    child = log._admin._child
    return child is not None and len(child._waiting) == count


class Waiting(threading.Thread):
    """A request on its own thread, and the error with which it ended."""

    def __init__(self, log: KafkaLog) -> None:
        super().__init__(daemon=True)
        self.log, self.error = log, None
        self.start()

    def run(self) -> None:
        try:
            self.log.identity()
        except Exception as error:
            self.error = error

    def failed(self) -> str:
        """Wait for the end. Returns the message of the LogUnreachable."""
        joined(self)
        assert isinstance(self.error, LogUnreachable), self.error
        return str(self.error)


def is_running(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV])
def test_S0_2_the_death_of_the_admin_client_fails_its_requests_and_ends_nothing_else(
    silent, number
):
    """The defect: librdkafka aborted the worker when an admin request timed out in an outage."""
    waiting = begun(silent, 3)
    os.kill(pid_of(silent), number)
    for request in waiting:
        assert "no Kafka broker answers" in request.failed()
        assert f"signal {number:d}" in request.failed()


@pytest.mark.broker
def test_S0_2_the_next_request_after_a_death_starts_another_process(broker):
    log = KafkaLog(broker.bootstrap_servers)
    identity, pids = log.identity(), {pid_of(log)}
    assert log.identity() == identity and {pid_of(log)} == pids, "one process for all requests"
    for _ in range(3):
        child = log._admin._child
        os.kill(pid_of(log), signal.SIGABRT)
        until("the death is noticed", lambda child=child: child.is_dead)
        assert log.identity() == identity
        pids.add(pid_of(log))
    assert len(pids) == 4
    log.close()
    assert not any(map(is_running, pids))


def test_a_request_to_a_process_that_has_just_died_is_an_unreachable_log(silent):
    begun(silent)
    pid = pid_of(silent)
    with silent._admin._lock:  # the death cannot be noticed yet
        os.kill(pid, signal.SIGKILL)
        until("it is dead", lambda: not is_running(pid))
        answer = silent._admin._child.send("identity")
    with pytest.raises(LogUnreachable, match="signal 9"):
        answer.result(60)


def test_waiting_requests_end_at_once_when_the_process_ends(silent):
    waiting = begun(silent, 2)
    silent.interrupt()
    for request in waiting:
        assert "this process is ending" in request.failed()
    assert "this process is ending" in Waiting(silent).failed(), "a later one does not wait either"


def test_a_hanging_process_is_replaced(silent, monkeypatch):
    monkeypatch.setattr("foldlog.log.admin_process.HUNG_S", 0.2)
    pids = set()
    for _ in range(2):
        assert "hangs" in Waiting(silent).failed()
        child = silent._admin._child
        until("it is dead", lambda child=child: child.is_dead)
        pids.add(child.process.pid)
    assert len(pids) == 2


def test_the_signals_that_end_us_do_not_end_the_admin_client_first(silent):
    begun(silent)
    pid = pid_of(silent)
    until("it serves", lambda: ignores(pid, signal.SIGTERM))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert ignores(pid, number)
        os.kill(pid, number)
    stopped_process.stop(pid)  # after these signals
    os.kill(pid, signal.SIGCONT)
    assert is_running(pid)
    assert os.getsid(pid) == pid, "Ctrl-C reaches only the processes of the terminal"


def ignores(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@LINUX
def test_a_closed_log_leaves_no_process_and_no_waiting_request(silent):
    (waiting,) = begun(silent)
    pid = pid_of(silent)
    silent.close()
    assert "this log was closed" in waiting.failed() and not is_running(pid)
    silent.close()


@LINUX
def test_a_forgotten_log_leaves_no_process():
    def used() -> int:
        log = KafkaLog(UNREACHABLE, timeout_s=0.3)
        with suppress(LogUnreachable):
            log.identity()
        return pid_of(log)

    pid = used()
    gc.collect()
    until("its process has ended", lambda: not is_running(pid))


@LINUX
@pytest.mark.parametrize("end", ["kill -9", "exit", "abort"])
def test_the_admin_client_ends_with_our_process(silent_server, end):
    code = """if True:
        import os, sys, threading
        from foldlog.log.kafka import KafkaLog
        log = KafkaLog(sys.argv[1], timeout_s=600)
        threading.Thread(target=log.identity, daemon=True).start()
        while (child := log._admin._child) is None:
            pass
        print(child.process.pid, flush=True)
        sys.stdin.readline()
        os.abort() if sys.argv[2] == "abort" else None
    """
    command = [sys.executable, "-c", code, silent_server, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        pid = int(line_of(process.stdout, "the process of the admin client"))
        assert is_running(pid)
        if end == "kill -9":
            process.kill()
        else:
            process.stdin.close()
        ended(process)
        until("it ends too", lambda: not is_running(pid))


@LINUX
def test_secrets_are_neither_arguments_nor_variables_of_the_admin_client(
    silent_server, monkeypatch
):
    monkeypatch.setenv("SOME_PASSWORD", SECRET)
    properties = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": SECRET,
                  "security.protocol": "SASL_PLAINTEXT"}
    log = KafkaLog(silent_server, client_properties=properties, timeout_s=SILENT_S)
    try:
        begun(log)
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid_of(log)}/{name}").read_bytes()
            assert shown and SECRET.encode() not in shown
    finally:
        log.close()


def test_errors_arrive_with_their_kind_message_and_fields():
    admin = AdminProcess({"bootstrap.servers": UNREACHABLE, "foo.bar": SECRET}, 1.0)
    for _ in range(2):
        with pytest.raises(SettingsError, match=r'"foo\.bar"') as caught:
            admin.ask(Cluster.identity)
        assert SECRET not in str(caught.value)
    admin.close()


def test_a_bug_in_the_other_process_arrives_with_its_traceback():
    admin = AdminProcess({"bootstrap.servers": UNREACHABLE}, 1.0)
    with pytest.raises(AssertionError, match="(?s)Traceback.*TypeError.*offsets_at"):
        admin.ask(Cluster.offsets_at)
    admin.close()


def test_a_module_of_the_users_directory_does_not_replace_a_module_of_the_admin_client(
    tmp_path, monkeypatch
):
    for name in ("signal.py", "confluent_kafka.py", "foldlog.py"):
        (tmp_path / name).write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    log = KafkaLog(UNREACHABLE, timeout_s=0.3)
    with pytest.raises(LogUnreachable, match="Connection refused"):
        log.identity()
    log.close()
