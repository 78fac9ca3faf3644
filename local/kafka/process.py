"""Processes of the broker: start, find, wait, end. It knows nothing of Kafka.

A broker outlives the command that started it, so the truth about "is it running" is the table of
processes: each broker carries a marker argument with its directory. A pid in a file alone may by
now belong to somebody else.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

_POLL_S = 0.02  # only where the system has no pidfd
_KILL_S = 10.0  # a killed process is gone at once, unless its disk hangs

_children: dict[int, subprocess.Popen[bytes]] = {}  # ours, to be reaped when they end

# Asks Linux to end us with our parent, then becomes the program. The second line covers a parent
# that died before the first.
_TIED = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def spawn(command: Sequence[str], *, cwd: Path, log: IO[bytes], tied: bool) -> int:
    """Starts `command` in a session of its own (Ctrl-C does not reach it); returns its pid.

    `tied`: on Linux it gets SIGTERM when this process ends, however it ends.
    """

    def start() -> int:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        _children[child.pid] = child
        return child.pid

    if not (tied and sys.platform == "linux"):
        return start()
    command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
    return _in_lasting_thread(start)


# The kernel ends a tied child when the *thread* that started it ends. A test may start a broker
# from any thread, so one thread that lasts as long as the process starts them all.
_jobs: SimpleQueue[tuple[Callable[[], int], Future[int]]] = SimpleQueue()
_lasting_thread: threading.Thread | None = None
_lasting_thread_guard = threading.Lock()


def _in_lasting_thread(start: Callable[[], int]) -> int:
    global _lasting_thread
    with _lasting_thread_guard:
        if _lasting_thread is None:
            _lasting_thread = threading.Thread(target=_run_jobs, daemon=True, name="spawn")
            _lasting_thread.start()
    done: Future[int] = Future()
    _jobs.put((start, done))
    return done.result()


def _run_jobs() -> None:
    while True:
        start, done = _jobs.get()
        try:
            done.set_result(start())
        except BaseException as error:
            done.set_exception(error)


def find(marker: str) -> tuple[int, list[str]] | None:
    """Pid and arguments of the process that has `marker` among its arguments."""
    for pid, arguments in _table():
        if marker in arguments and pid != os.getpid():
            return pid, arguments
    return None


def _table() -> list[tuple[int, list[str]]]:
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True)
        lines = (line.split() for line in listed.stdout.splitlines())
        return [(int(words[0]), words[1:]) for words in lines if words]
    table = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                raw = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue  # it ended between the two calls
            # a zombie has no arguments, so it is found by nobody
            table.append((int(name), raw.decode(errors="surrogateescape").split("\0")))
    return table


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Waits until the process has ended; False if it has not in `timeout_s`."""
    gone = _wait_pidfd(pid, timeout_s) if hasattr(os, "pidfd_open") else _poll(pid, timeout_s)
    if gone and (child := _children.get(pid)):
        child.wait()
    return gone


def exit_code(pid: int) -> int | None:
    """Of a process that `spawn` started and `wait_gone` saw end; None for any other."""
    child = _children.get(pid)
    return child.returncode if child else None


def _wait_pidfd(pid: int, timeout_s: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _poll(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        if child := _children.get(pid):
            child.poll()  # reaps it, so that the next line sees it gone
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def end(pid: int, *, patience_s: float) -> None:
    """SIGTERM, and SIGKILL if that takes longer than `patience_s`; returns when it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_gone(pid, patience_s):
        kill(pid)


def kill(pid: int) -> None:
    """SIGKILL to the process and what it started; returns when it has ended."""
    with suppress(ProcessLookupError):
        group = os.getpgid(pid)  # `spawn` made it a session, hence a group, of its own
        if group == os.getpgid(0):
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
    wait_gone(pid, _KILL_S)
