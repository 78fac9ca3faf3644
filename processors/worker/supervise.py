"""Keeps a worker running: a warm spare replaces a dead worker at once.

The import of the model SDK takes seconds. A spare has imported it and waits for a byte on its
control pipe. End-of-file on the pipe informs a worker that the supervisor died, so that no worker
is orphaned. The supervisor does not use the log: it only starts processes and waits for them.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from ...log.environment import start_process

GO = b"g"
QUICK_S = 10.0  # a worker that ends within this time failed to start; a busy machine needs 5
QUICK_MAX = 3  # failed starts in a row before the supervisor gives up
PAUSE_S = 1.0  # before the next try, after QUICK_MAX workers in a row died of a signal
LOG_UNREACHABLE = 3  # exit code: the start is retried until the broker is back
DISK_FULL = 4  # exit code: the start is retried until there is space
UNREACHABLE_PAUSE_S = 3.0  # between two such tries, since a start takes seconds of CPU time
RETRIED = {
    LOG_UNREACHABLE: "the worker could not reach the log; it is restarted until it can",
    DISK_FULL: "the disk is full; the worker is restarted until there is space",
}
MISUSE = 2  # exit code: for example two workers with one id; a restart would fence the other
REPORT_S = 2.0  # an end that takes longer is reported
STOP_S = 15.0  # limit of a clean end: the grace of effects and a round of the poll loop
LOOK_S = 0.2  # a signal or a reload is noticed within this time
WARM_AFTER_S = 1.0  # a spare's imports wait, to not compete with a start or takeover
HEAVY = (  # a worker's slow imports, some of which it makes only at first use
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
        """Let the child start its work."""
        self.started_at = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, GO)

    def end(self, timeout_s: float, say: Callable[[str], None]) -> int:
        """Ask the child to end, and kill it if it has not ended after `timeout_s`. Returns its exit
        code."""
        if self.process.poll() is None:
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(min(REPORT_S, timeout_s))
        if self.process.poll() is None:
            say(f"the worker is ending; waiting at most {timeout_s:g} s")
        try:
            code = self.process.wait(max(0.0, timeout_s - REPORT_S))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.close()
        return code

    def discard(self) -> None:
        """End a child that has not begun to work."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the pipe of an ended child. A second call does nothing."""
        if self._write_end >= 0:
            os.close(self._write_end)
        self._write_end = -1


def run(
    command: Sequence[str],
    say: Callable[[str], None],
    reload: threading.Event | None = None,
    unreachable: Callable[[], None] = lambda: None,
    ending: Callable[[], None] = lambda: None,
) -> int:
    """Supervise `command` until SIGTERM or SIGINT. Returns the exit code of the last worker.

    reload: the caller sets this event to replace the worker with one that imports everything again.
        With `reload`, the supervisor never gives up: a worker that cannot run is started again at
        the next reload.
    unreachable: called, in a thread, when a worker could not reach the log.
    ending: called when the end begins, so that what runs beside the worker ends at the same time.
    """
    stopping = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    active, spare = _activate(Child(command), command)
    failures = deaths = 0
    retried: int | None = None
    helper: threading.Thread | None = None
    try:
        while True:
            code = _wait(active, stopping, reload)
            if stopping.is_set():
                ending()
                code = active.end(STOP_S, say)
                return 0 if code == -signal.SIGTERM else code  # no signal handler was set yet
            if code is None:
                assert reload is not None
                reload.clear()
                active, spare = _reloaded(active, spare, command, say)
                failures = deaths = 0
                continue
            quick = time.monotonic() - active.started_at < QUICK_S
            active.close()
            if code == 0:
                return 0
            if code in RETRIED:
                if code != retried:
                    say(f"{RETRIED[code]}, every {UNREACHABLE_PAUSE_S:g} s. Acknowledged messages "
                        "are kept")
                retried = code
                if code == LOG_UNREACHABLE and not (helper and helper.is_alive()):
                    helper = threading.Thread(target=unreachable, daemon=True)
                    helper.start()
                stopping.wait(UNREACHABLE_PAUSE_S)
                active, spare = _activate(spare, command)
                continue
            retried = None
            failures = failures + 1 if quick and code > 0 else 0
            deaths = deaths + 1 if quick and code < 0 else 0
            if (failures >= QUICK_MAX or code == MISUSE) and reload is not None:
                say(f"the worker cannot run (exit code {code}). Its reason is above; "
                    "acknowledged messages are kept, and it starts again when a file of the agent "
                    "changes")
                while not stopping.is_set() and not reload.wait(LOOK_S):
                    pass
                continue
            if failures >= QUICK_MAX or code == MISUSE:
                say(f"the worker cannot run (exit code {code}); gave up. Its reason is above")
                return code
            if deaths >= QUICK_MAX:
                say(f"workers die of signal {-code} while starting; next try in {PAUSE_S:g} s")
                stopping.wait(PAUSE_S)
            active, spare = _activate(spare, command)
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            say(f"the worker ended {how}; its spare, pid {active.process.pid}, took over at once")
    finally:
        spare.discard()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _activate(spare: Child, command: Sequence[str]) -> tuple[Child, Child]:
    """Start the work of the spare, which becomes the worker. Returns it and a new spare."""
    spare.go()
    return spare, Child(command)


def _reloaded(
    active: Child, spare: Child, command: Sequence[str], say: Callable[[str], None]
) -> tuple[Child, Child]:
    """Replace the worker with one that has imported everything again. Returns the new worker and
    the next spare.

    The old worker first ends cleanly and releases its state directory. The claims of its effects
    are in the log, so nothing is lost.
    """
    spare.discard()  # it may have imported the old version
    fresh = Child(command)
    active.end(STOP_S, say)
    say(f"the worker was replaced: pid {fresh.process.pid} takes over")
    return _activate(fresh, command)


def _wait(
    child: Child, stopping: threading.Event, reload: threading.Event | None
) -> int | None:
    """Wait for a child to end. Returns the exit code,
    or None if the supervisor must stop or reload."""
    ended = threading.Event()

    def watch() -> None:
        child.process.wait()
        ended.set()
        wake.set()

    wake = threading.Event()
    threading.Thread(target=watch, daemon=True).start()

    def is_interrupted() -> bool:
        return stopping.is_set() or (reload is not None and reload.is_set())

    while not ended.is_set() and not is_interrupted():
        wake.wait(LOOK_S)  # a signal sets `stopping` in this thread, between two waits
    return None if is_interrupted() else child.process.returncode


def await_go(control_fd: int, warm: Callable[[], object] = lambda: None) -> None:
    """Called in a child: do the slow imports and wait for the go byte. A thread ends the process if
    the supervisor dies, even during the imports.

    `warm` makes further preparations. Its errors are ignored here, because they occur again at the
    first use.
    """
    go = threading.Event()

    def watch() -> None:
        if os.read(control_fd, 1) != GO:
            os._exit(0)  # nothing has begun
        go.set()
        with contextlib.suppress(OSError):
            os.read(control_fd, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
    go.wait(WARM_AFTER_S)
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(Exception):
        warm()
    while not go.wait(LOOK_S):  # a signal is handled between two waits
        pass
