"""Stops a process by SIGSTOP and waits until each of its threads has stopped (Linux).

The signal is sent at once, but each thread stops only when it is next scheduled. On a busy machine,
a process was seen to answer requests for some milliseconds after the signal.
"""

import os
import signal
import time
from pathlib import Path

from foldlog.tests.kit.slowness import allowed

PATIENCE_S = allowed(30.0)
POLL_S = 0.005


def is_stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread ended, so another one may run
        return False
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def stop(pid: int) -> None:
    """Stop the process, and return when none of its threads is running. Raises TimeoutError if a
    thread does not stop in time."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + PATIENCE_S
    while not is_stopped(pid):
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} still runs {PATIENCE_S:g} s after SIGSTOP")
        time.sleep(POLL_S)
