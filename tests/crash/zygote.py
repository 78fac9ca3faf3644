"""A process that has imported what a worker needs, and forks workers.

A start by fork costs hundredths of a second of CPU instead of seconds, and a test run starts more
than a hundred workers.

python zygote.py LIFELINE_FD

A line on stdin is a JSON list, the arguments of worker_main.py. A line on stdout is {"pid": P} for
a forked worker, or {"ended": P, "code": C} for a worker that ended. The process that starts this
one holds the other end of the lifeline; when the lifeline closes, the workers die. This process
must have no threads, because a fork copies only the calling thread.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
import threading

from foldlog.processors.worker.supervise import HEAVY

LIGHT = (  # what a worker imports of foldlog itself
    "foldlog.cli.__main__",
    "foldlog.processors.worker.host",
    "foldlog.processors.effects.models.call",
    "foldlog.tests.crash.agents",
    "foldlog.tests.crash.worker_main",
)


def main() -> int:
    lifeline = int(sys.argv[1])
    for name in (*HEAVY, *LIGHT):
        importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()
    dead_end, death = os.pipe()
    os.set_blocking(death, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(death)
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(dead_end, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == dead_end:
                    os.read(dead_end, 4096)
                    _reap()
                    continue
                line = _line()
                if not line:
                    return 0
                _report({"pid": _fork(json.loads(line), lifeline, (dead_end, death))})


def _line() -> bytes:
    """One line of stdin. Reads no further, because the bytes after the line must wake the
    selector."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def _report(fact: dict[str, int]) -> None:
    os.write(1, json.dumps(fact).encode() + b"\n")


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _report({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _fork(arguments: list[str], lifeline: int, ours: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(null, number)
        for number in ours:
            os.close(number)
        threading.Thread(target=_die_with, args=(lifeline,), daemon=True).start()
        from foldlog.tests.crash import worker_main

        code = worker_main.main(arguments)
    finally:
        os._exit(code)
    raise AssertionError("unreachable")


def _die_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
