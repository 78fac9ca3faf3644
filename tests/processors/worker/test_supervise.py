"""The supervisor: what it replaces, what it gives up, and how it ends."""

import os
import signal
import sys
import threading

import pytest

from foldlog.processors.worker import supervise

ENDING = "the worker is ending; waiting at most 0.1 s"

WORKER = """
import os, signal, sys
fd, path, does = int(sys.argv[-1]), sys.argv[1], sys.argv[2]
if not os.read(fd, 1):
    sys.exit(0)
with open(path, "a") as file:
    print("works", file=file, flush=True)
exec(does)
"""


@pytest.fixture
def supervised(tmp_path):
    """Supervise workers that do as told: (exit code, how many have worked, what was said)."""
    path, said = tmp_path / "worked", []

    def run(does: str, say=said.append):
        command = [sys.executable, "-c", WORKER, str(path), does]
        code = supervise.run(command, say)
        return code, path.read_text().count("works"), said

    return run


def test_a_worker_that_may_not_work_is_not_replaced_however_long_it_has_worked(
    supervised, monkeypatch
):
    """Two workers under one id fenced each other in turns, each replaced by its supervisor."""
    monkeypatch.setattr(supervise, "QUICK_S", 0.0)
    code, worked, said = supervised("sys.exit(2)")
    assert (code, worked) == (2, 1)
    assert "gave up" in said[0]


def test_a_worker_that_can_not_start_is_given_up(supervised):
    assert supervised("sys.exit(1)")[:2] == (1, supervise.QUICK_MAX)


def test_workers_that_die_of_a_signal_at_once_are_replaced_with_a_pause(supervised, monkeypatch):
    """One that broke at its first instruction was replaced as fast as processes start."""
    monkeypatch.setattr(supervise, "PAUSE_S", 3_600.0)

    def say(text: str) -> None:
        if "next try" in text:
            os.kill(os.getpid(), signal.SIGTERM)  # which ends the pause

    _, worked, _ = supervised("os.kill(os.getpid(), signal.SIGKILL)", say)
    assert worked >= supervise.QUICK_MAX


def test_ending_while_the_worker_starts_is_a_clean_end(supervised, tmp_path):
    """Before it listens to SIGTERM, a worker ends by it; nothing is held then, nothing is lost."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def stop() -> None:
        fifo.read_bytes()  # until the worker has begun
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    code, worked, _ = supervised(f"open({str(fifo)!r}, 'w').close(); signal.pause()")
    thread.join()
    assert (code, worked) == (0, 1)


def test_an_end_that_takes_long_is_told_and_bounded(supervised, tmp_path, monkeypatch):
    """After Ctrl-C nothing was said for fifteen seconds."""
    monkeypatch.setattr(supervise, "SAY_S", 0.05)
    monkeypatch.setattr(supervise, "STOP_S", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def stop() -> None:
        fifo.read_bytes()
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code, worked, said = supervised(f"{deaf}; open({str(fifo)!r}, 'w').close(); signal.pause()")
    thread.join()
    assert (code, worked, said) == (-signal.SIGKILL, 1, [ENDING])


def test_a_worker_that_can_not_reach_the_log_is_tried_until_it_can(supervised, monkeypatch):
    """A broker that was killed with its worker had the supervisor give up, and nobody noticed."""
    monkeypatch.setattr(supervise, "UNREACHABLE_PAUSE_S", 0.0)
    tries = supervise.QUICK_MAX + 1
    does = f"sys.exit(3 if open(path).read().count('works') < {tries} else 0)"
    code, worked, said = supervised(does)
    assert (code, worked) == (0, tries)
    assert len(said) == 1, "it is said once"
