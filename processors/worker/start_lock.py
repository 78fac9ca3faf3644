"""Who may start in a state directory: at once, after a short wait, or not at all.

A second worker there is a mistake, and told so at once. One case is none: a supervisor that was
killed leaves a worker that has seen it and is ending, which takes seconds; a person who starts it
again is made to wait for that, not to try again. The supervisor's own lock tells the two apart: its
file names a process while one supervises, and still does when that was killed. This file must not
know what a worker does.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..store.state_dir import StateDir, StateDirTaken

WAIT_S = 30.0  # a clean end is 10 s for the poll thread, some more for effects and the group
LOOK_S = 0.1


@contextlib.contextmanager
def sole(
    path: Path, worker_id: str | None, say: Callable[[str], None], *, supervises: bool
) -> Iterator[None]:
    """Nobody else works in this directory; with `supervises`, no supervisor may for the block.

    Waits `WAIT_S` seconds at most for the worker of a supervisor that was killed, and says so.
    Raises StateDirTaken, or OSError where the directory can not be written.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(path / "supervisor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            named = _named(held)
            raise StateDirTaken(
                f"a supervised worker{named and f' (process {named})'} works in {path}: `foldlog "
                "dev` or `foldlog worker --supervise` runs already. Nothing was changed: use that "
                "one, stop it, or give this one its own directory with FOLDLOG_STATE_DIR. To serve "
                "an agent of yours, stop it and run `foldlog dev --agent MODULE:ATTR`."
            ) from None
        _await_free(path, worker_id, _named(held), say)
        os.ftruncate(held, 0)
        if supervises:
            os.pwrite(held, str(os.getpid()).encode(), 0)
            yield
            os.ftruncate(held, 0)
    finally:
        os.close(held)
    if not supervises:
        yield


def _named(held: int) -> str:
    text = os.pread(held, 20, 0)
    return text.decode() if text.isdigit() else ""


def _await_free(
    path: Path, worker_id: str | None, killed: str, say: Callable[[str], None]
) -> None:
    """Until the worker's own lock is free. `killed`: the supervisor that left its worker, or ''."""
    until, told = time.monotonic() + WAIT_S, False
    while True:
        try:
            StateDir(path, worker_id).close()
            return
        except StateDirTaken:
            if not killed or time.monotonic() > until:
                raise
        if not told:
            told = True
            say(f"the supervisor that ran here (process {killed}) was killed; its worker is "
                f"ending: waiting for it, {WAIT_S:g} s at most")
        time.sleep(LOOK_S)
