"""Starts, finds, awaits and ends the broker's process.

A broker outlives the command that started it, so the process table decides whether it runs: each
broker has an argument derived from its directory as a marker. A pid from a file would not do,
because another process may have reused it.
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
_UMASK = 0o077  # only the owner may read its files
_KILL_S = 10.0  # a killed process ends at once, unless its disk hangs

_children: dict[int, subprocess.Popen[bytes]] = {}  # children of this process, to be reaped

# Asks Linux to end this process with its parent, then executes the program. The getppid line covers
# a parent that died before the prctl.
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
    """Start `command` and yield its pid; if the block fails or is interrupted, kill it.

    The process runs in its own session, so Ctrl-C in a terminal does not reach it. If the block
    succeeds, the process keeps running. `tied`: whether the process gets SIGTERM when this process
    ends, even if this process is killed with SIGKILL (only on Linux).
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

    # Another thread forks: Ctrl-C can interrupt the main thread anywhere, even inside Popen, and
    # the child would then be lost. This way it is either not started yet or its pid is known soon.
    pid: Future[int] = Future()
    try:
        _ask_starter(start, pid)
        yield pid.result()
    except BaseException:
        if not pid.cancel() and not pid.exception():
            kill(pid.result())
        raise


# One thread starts all children and lives as long as the process: the kernel ends a tied child when
# the *thread* that forked it ends, and a test may start a broker from any thread.
_starts: SimpleQueue[tuple[Callable[[], int], Future[int]]] = SimpleQueue()
_starter: threading.Thread | None = None
_starter_guard = threading.Lock()


def _ask_starter(start: Callable[[], int], pid: Future[int]) -> None:
    global _starter
    with _starter_guard:
        if _starter is None or not _starter.is_alive():  # a forked process has no threads
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
    """The pid and the arguments of the process that has `marker` among its arguments."""
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
            # a zombie has no arguments, so it never matches
            table.append((int(name), raw.decode(errors="surrogateescape").split("\0")))
    return table


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait until the process has ended; False if it is still running after `timeout_s`."""
    ended = _wait_pidfd(pid, timeout_s) if hasattr(os, "pidfd_open") else _poll(pid, timeout_s)
    if ended and (child := _children.get(pid)):
        child.wait()
    return ended


def exit_code(pid: int) -> int | None:
    """The exit code of a process that `spawned` started and that has ended; otherwise None."""
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
            child.poll()  # reaps the child, so that os.kill then fails
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def end(pid: int, *, patience_s: float) -> None:
    """Send SIGTERM, and SIGKILL after `patience_s` seconds. Returns when the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_gone(pid, patience_s):
        kill(pid)


def kill(pid: int) -> None:
    """Send SIGKILL to the process and its children. Returns when the process has ended."""
    with suppress(ProcessLookupError):
        group = os.getpgid(pid)  # `spawned` gave it a session, and so a process group, of its own
        if group == os.getpgid(0):
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
    wait_gone(pid, _KILL_S)
