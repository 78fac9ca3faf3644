"""The supervisor: which workers it replaces, when it gives up, and how it ends."""

import os
import signal
import sys
import threading
from contextlib import contextmanager

import pytest

from foldlog.processors.worker import supervise
from foldlog.tests.kit.waiting import joined, until, within

ENDING = "the worker is ending; waiting at most 0.1 s"

WORKER = """
import os, signal, sys
fd, path, code = int(sys.argv[-1]), sys.argv[1], sys.argv[2]
if not os.read(fd, 1):
    sys.exit(0)
with open(path, "a") as file:
    print("works", file=file, flush=True)
exec(code)
"""


@pytest.fixture
def supervised(tmp_path):
    """A function that supervises workers with some code. It returns (exit code, number of workers,
    output)."""
    path, output = tmp_path / "started", []

    def run(code_to_run: str, say=output.append, reload=None):
        command = [sys.executable, "-c", WORKER, str(path), code_to_run]
        code = supervise.run(command, say, reload)
        return code, path.read_text().count("works"), output

    return run


@contextmanager
def stop_once_open(fifo):
    """Yield code that opens the fifo. Once a worker has run the code, stop the supervisor."""
    os.mkfifo(fifo)

    def stop() -> None:
        within("a worker has opened the fifo", fifo.read_bytes)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    yield f"open({str(fifo)!r}, 'w').close()"
    joined(thread)


def test_a_worker_that_ends_with_MISUSE_is_not_replaced_however_long_it_ran(
    supervised, monkeypatch
):
    """The defect: two workers with one id fenced each other in turns, and their supervisors
    replaced both."""
    monkeypatch.setattr(supervise, "QUICK_S", 0.0)
    code, workers, output = supervised("sys.exit(2)")
    assert (code, workers) == (2, 1)
    assert "gave up" in output[0]


def test_a_worker_that_cannot_start_is_given_up(supervised):
    assert supervised("sys.exit(1)")[:2] == (1, supervise.QUICK_MAX)


def test_workers_that_die_of_a_signal_at_once_are_replaced_after_a_pause(supervised, monkeypatch):
    """The defect: a worker that crashed at its first instruction was replaced as fast as processes
    can start."""
    monkeypatch.setattr(supervise, "PAUSE_S", 3_600.0)

    def say(text: str) -> None:
        if "next try" in text:
            os.kill(os.getpid(), signal.SIGTERM)  # ends the pause

    _, workers, _ = supervised("os.kill(os.getpid(), signal.SIGKILL)", say)
    assert workers >= supervise.QUICK_MAX


def test_SIGTERM_during_the_start_of_the_worker_is_a_clean_end(supervised, tmp_path):
    """A worker that does not yet handle SIGTERM dies of it. At that time it holds nothing, so
    nothing is lost."""
    with stop_once_open(tmp_path / "fifo") as opens_fifo:
        code, workers, _ = supervised(f"{opens_fifo}; signal.pause()")
    assert (code, workers) == (0, 1)


def test_what_runs_beside_the_worker_is_told_to_end_before_the_worker_has_ended(tmp_path):
    """The defect: `dev` waited for its worker and then for its gateway, up to 4 s."""
    told = tmp_path / "told"
    ends = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(5 * os.path.exists({str(told)!r})))"
    with stop_once_open(tmp_path / "fifo") as opens_fifo:
        command = [sys.executable, "-c", WORKER, str(tmp_path / "started")]
        command.append(f"{ends}; {opens_fifo}; signal.pause()")
        code = supervise.run(command, pytest.fail, ending=told.touch)
    assert code == 5


def test_a_slow_end_is_reported_and_bounded(supervised, tmp_path, monkeypatch):
    """The defect: for fifteen seconds after Ctrl-C, nothing was reported."""
    monkeypatch.setattr(supervise, "REPORT_S", 0.05)
    monkeypatch.setattr(supervise, "STOP_S", 0.1)
    ignore_signal = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    with stop_once_open(tmp_path / "fifo") as opens_fifo:
        code, workers, output = supervised(f"{ignore_signal}; {opens_fifo}; signal.pause()")
    assert (code, workers, output) == (-signal.SIGKILL, 1, [ENDING])


@pytest.mark.parametrize("why", [3, 4], ids=["the log is unreachable", "the disk is full"])
def test_a_worker_that_cannot_reach_the_log_is_restarted_until_it_can(
    supervised, monkeypatch, why
):
    """The defect: after a broker was killed together with its worker, or on a disk that was full
    for a moment, the supervisor gave up, and nobody noticed."""
    monkeypatch.setattr(supervise, "UNREACHABLE_PAUSE_S", 0.0)
    tries = supervise.QUICK_MAX + 1
    code_to_run = f"sys.exit({why} if open(path).read().count('works') < {tries} else 0)"
    code, workers, output = supervised(code_to_run)
    assert (code, workers) == (0, tries)
    assert len(output) == 1, "it is reported once"


def test_a_reload_replaces_the_worker_and_its_spare_after_a_clean_end(supervised, tmp_path):
    """The spare must be replaced too, because it has imported the code before the change."""
    reload, path = threading.Event(), tmp_path / "lives"
    path.write_text("")
    code_to_run = f"""
import pathlib
lives = pathlib.Path({str(path)!r})
def note(word):
    with open(lives, "a") as file: print(word, file=file)
def end(*_):
    note("ended"); sys.exit(0)
signal.signal(signal.SIGTERM, end)
note("began")
if lives.read_text().count("began") > 2: os.kill(os.getppid(), signal.SIGTERM)
while True: signal.pause()
"""
    pids = []

    def reload_twice() -> None:
        for count in (1, 2):  # each worker begins before it is replaced
            until("the next worker begins", lambda n=count: path.read_text().count("began") >= n)
            reload.set()

    thread = threading.Thread(target=reload_twice)
    thread.start()
    code, workers, _ = supervised(code_to_run, pids.append, reload)
    joined(thread)
    assert (code, workers) == (0, 3)
    assert path.read_text().split() == ["began", "ended"] * 3, "one after the other"
    assert [text.startswith("the worker was replaced: pid") for text in pids[:2]] == [True, True]


def test_with_a_reload_a_worker_that_cannot_run_starts_again_at_the_next_change(supervised):
    """The defect: `dev` ended at a mistake that the next save would have corrected."""
    reload, output = threading.Event(), []

    def say(text: str) -> None:
        output.append(text)
        if "cannot run" in text:
            reload.set()

    code_to_run = "sys.exit(2 if open(path).read().count('works') < 2 else 0)"
    code, workers, _ = supervised(code_to_run, say, reload)
    assert (code, workers) == (0, 2)
    assert [text.partition(":")[0] for text in output[1:]] == ["the worker was replaced"]
