"""Decides whether a worker may start in a state directory: at once, after a short wait, or never.

A second worker in the same directory is a mistake and is refused at once, with one exception. If a
supervisor was killed, its worker notices this and takes seconds to end. A restart then waits until
that worker has ended, and is not refused. The file of the supervisor's lock distinguishes the two
cases: a supervisor writes its process id into the file and removes it at a clean end. So a process
id in an unlocked file means that the supervisor was killed.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..store.state_dir import WAYS_OUT, StateDir, StateDirTaken

WAIT_S = 30.0  # a clean end takes 10 s for the poll thread, then some for effects and the group
POLL_S = 0.1


@contextlib.contextmanager
def exclusive_start(
    path: Path, worker_id: str | None, say: Callable[[str], None], *, supervises: bool
) -> Iterator[None]:
    """Refuse to start if another worker uses this directory. With `supervises`, hold the
    supervisor's lock in the block.

    Waits at most `WAIT_S` seconds for the worker of a killed supervisor, and logs the wait.
    Raises StateDirTaken, or OSError if the directory cannot be written.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock_fd = os.open(path / "supervisor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            named = _process_in(lock_fd)
            raise StateDirTaken(
                f"a supervised worker{named and f' (process {named})'} works in {path}: `foldlog "
                f"dev` or `foldlog worker --supervise` is already running. {WAYS_OUT}"
            ) from None
        _await_free(path, worker_id, _process_in(lock_fd), say)
        os.ftruncate(lock_fd, 0)
        if supervises:
            os.pwrite(lock_fd, str(os.getpid()).encode(), 0)
            yield
            os.ftruncate(lock_fd, 0)
    finally:
        os.close(lock_fd)
    if not supervises:
        yield


def _process_in(lock_fd: int) -> str:
    text = os.pread(lock_fd, 20, 0)
    return text.decode() if text.isdigit() else ""


def _await_free(
    path: Path, worker_id: str | None, killed: str, say: Callable[[str], None]
) -> None:
    """Wait until the worker's lock is free.
    `killed`: the process id of the killed supervisor, or ''."""
    until, is_reported = time.monotonic() + WAIT_S, False
    while True:
        try:
            StateDir(path, worker_id).close()
            return
        except StateDirTaken:
            if not killed or time.monotonic() > until:
                raise
        if not is_reported:
            is_reported = True
            say(f"the supervisor that ran here (process {killed}) was killed; waiting at most "
                f"{WAIT_S:g} s for its worker to end")
        time.sleep(POLL_S)
