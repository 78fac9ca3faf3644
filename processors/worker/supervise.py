"""Keeps a worker running: one that dies is replaced at once by a spare that is already warm.

Importing the model SDK takes seconds; a spare has done it and waits for a byte on its
control pipe. The pipe's end also tells a worker that its supervisor is gone, so that none is left
behind. The supervisor knows nothing of the log: it starts processes and waits for them.
"""

import contextlib
import importlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from ...log.environment import start_process

GO = b"g"
QUICK_S = 10.0  # an end sooner than this after its go is a failure to start; a busy machine needs 5
QUICK_MAX = 3  # failures to start in a row, then it is given up
PAUSE_S = 1.0  # before another try when so many in a row died of a signal as soon as they started
AWAY = 3  # exit code: the log can't be reached. A broker comes back, so it is tried again
AWAY_PAUSE_S = 3.0  # between two such tries; a worker's start is seconds of one core
MISUSE = 2  # exit code: two workers under one id, say. The next would only fence the other again
SAY_S = 2.0  # an end that takes longer is told to whoever waits for it
STOP_S = 15.0  # for a clean end: the grace of effects and a round of the poll loop
WARM_AFTER_S = 1.0  # before a spare warms up: a start or a takeover has the machine to itself
HEAVY = (  # what a worker imports, some of it only when it is first used
    "anthropic",
    "httpcore2",
    "confluent_kafka",
    "rocksdict",
    "msgspec",
    "fastavro",
    f"{__package__}.host",
)


class Child:
    """One worker process with its control pipe."""

    def __init__(self, command: Sequence[str]) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self.process = start_process(
                [*command, "--control-fd", str(read_end)],
                pass_fds=(read_end,),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the supervisor, which ends it cleanly
            )
        finally:
            os.close(read_end)
        self.started_at = 0.0

    def go(self) -> None:
        """Let it work."""
        self.started_at = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, GO)

    def end(self, timeout_s: float, say: Callable[[str], None]) -> int:
        """Ask it to end, wait, and insist."""
        if self.process.poll() is None:
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(min(SAY_S, timeout_s))
        if self.process.poll() is None:
            say(f"the worker is ending: {timeout_s:g} s at most")
        try:
            code = self.process.wait(max(0.0, timeout_s - SAY_S))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.close()
        return code

    def close(self) -> None:
        """Close the pipe of a child that has ended."""
        with contextlib.suppress(OSError):
            os.close(self._write_end)


def run(command: Sequence[str], say: Callable[[str], None]) -> int:
    """Supervise `command` until SIGTERM or SIGINT; the exit code of the last worker."""
    stopping = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    active, spare = _taken_over(Child(command), command)
    failures = deaths = 0
    away = False
    try:
        while True:
            code = _wait(active, stopping)
            if code is None:
                code = active.end(STOP_S, say)
                return 0 if code == -signal.SIGTERM else code  # it had not begun to listen to it
            quick = time.monotonic() - active.started_at < QUICK_S
            active.close()
            if code == 0:
                return 0
            if code == AWAY:
                if not away:
                    say(f"the worker could not reach the log: tried again every {AWAY_PAUSE_S:g} s "
                        "until it is back; what it had accepted is kept")
                away = True
                stopping.wait(AWAY_PAUSE_S)
                active, spare = _taken_over(spare, command)
                continue
            away = False
            failures = failures + 1 if quick and code > 0 else 0
            deaths = deaths + 1 if quick and code < 0 else 0
            if failures >= QUICK_MAX or code == MISUSE:
                say(f"the worker can not work (exit code {code}): given up; its reason is above")
                return code
            if deaths >= QUICK_MAX:
                say(f"workers die by signal {-code} as they start: the next try in {PAUSE_S:g} s")
                stopping.wait(PAUSE_S)
            active, spare = _taken_over(spare, command)
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            say(f"the worker ended {how}; its spare, pid {active.process.pid}, took over at once")
    finally:
        spare.process.kill()
        spare.process.wait()
        spare.close()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _taken_over(spare: Child, command: Sequence[str]) -> tuple[Child, Child]:
    """The spare, which works now, and the next spare."""
    spare.go()
    return spare, Child(command)


def _wait(child: Child, stopping: threading.Event) -> int | None:
    """The exit code of a child once it has ended, or None when we are to stop."""
    ended = threading.Event()

    def watch() -> None:
        child.process.wait()
        ended.set()
        wake.set()

    wake = threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    while not ended.is_set() and not stopping.is_set():
        wake.wait(0.2)  # signals set `stopping` in this thread, between two waits
    return None if stopping.is_set() else child.process.returncode


def await_go(control_fd: int, warm: Callable[[], object] = lambda: None) -> None:
    """In a child: import what is heavy, wait for the go, then end with the supervisor.

    `warm` does more of what will be needed; what is wrong with it is said when it is needed.
    Raises SystemExit if the supervisor is gone before it says go.
    """
    select.select([control_fd], [], [], WARM_AFTER_S)
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        warm()
    if os.read(control_fd, 1) != GO:
        raise SystemExit(0)

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(control_fd, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
