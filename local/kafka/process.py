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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

_POLL_S = 0.02  # only where the system has no pidfd
_UMASK = 0o077  # what it writes is its owner's alone
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


@contextmanager
def spawned(
    command: Sequence[str],
    *,
    cwd: Path,
    log: IO[bytes],
    tied: bool,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Starts `command` and gives its pid; if the block fails or is interrupted, it is killed.

    It gets a session of its own, so Ctrl-C in a terminal does not reach it. If the block ends well
    it goes on. `tied`: on Linux it gets SIGTERM when this process ends, however it ends.
    """
    if tied and sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]

    def start() -> int:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=_UMASK,
        )
        _children[child.pid] = child
        return child.pid

    # Another thread forks, because Ctrl-C strikes the main one anywhere, inside Popen too, and the
    # child would be forgotten. Here it is either not started yet, or known in a moment.
    pid: Future[int] = Future()
    try:
        _ask_starter(start, pid)
        yield pid.result()
    except BaseException:
        if not pid.cancel() and not pid.exception():
            kill(pid.result())
        raise


# One thread that lasts as long as the process starts all children: the kernel ends a tied child
# when the *thread* that forked it ends, and a test may start a broker from any thread.
_starts: SimpleQueue[tuple[Callable[[], int], Future[int]]] = SimpleQueue()
_starter: threading.Thread | None = None
_starter_guard = threading.Lock()


def _ask_starter(start: Callable[[], int], pid: Future[int]) -> None:
    global _starter
    with _starter_guard:
        if _starter is None or not _starter.is_alive():  # a fork of ours has no threads
            _starter = threading.Thread(target=_run_starts, daemon=True, name="starter")
            _starter.start()
    _starts.put((start, pid))


def _run_starts() -> None:
    while True:
        start, pid = _starts.get()
        if pid.set_running_or_notify_cancel():
            try:
                pid.set_result(start())
            except BaseException as error:
                pid.set_exception(error)


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
    """Of a process that `spawned` started and `wait_gone` saw end; None for any other."""
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
        group = os.getpgid(pid)  # `spawned` made it a session, hence a group, of its own
        if group == os.getpgid(0):
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
    wait_gone(pid, _KILL_S)
