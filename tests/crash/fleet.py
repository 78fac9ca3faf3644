"""Starts worker processes for a test, arms crash points in them, awaits their end, and kills them.

The workers are forked from one process that has imported everything (zygote.py), so a test's worker
starts as quickly as a warm spare takes over. Every process that this file starts is ended by
`close`, or ends together with the test's process.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.slowness import allowed

MAIN = Path(__file__).with_name("worker_main.py")
ZYGOTE = Path(__file__).with_name("zygote.py")
PATIENCE_S = allowed(90.0)  # for waits that take a second on an idle machine
POLL_S, POLL_MAX_S = 0.005, 0.1  # a wait that takes long checks less often


class Ended(NamedTuple):
    """The end of a worker. code: the return code as in `Popen`; at: the time in Unix seconds."""

    pid: int
    code: int
    at: float


def wait_until(what: str, found: Callable[[], Any], bound_s: float = PATIENCE_S) -> Any:
    """Wait until `found()` is true, and return its value. Raises a TimeoutError that names
    `what`."""
    began = time.monotonic()
    while not (value := found()):
        waited_s = time.monotonic() - began
        if waited_s > bound_s:
            raise TimeoutError(f"not within {bound_s:g} s: {what}")
        time.sleep(min(max(POLL_S, waited_s / 10), POLL_MAX_S))
    return value


class Zygote:
    """The process from which workers are forked."""

    def __init__(self) -> None:
        read_end, self._lifeline = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, str(ZYGOTE), str(read_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(read_end,),
        )
        os.close(read_end)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders, self._facts = self._process.stdin, self._process.stdout
        os.set_blocking(self._facts.fileno(), False)
        self._rest = b""
        self._forked: list[int] = []
        self._codes: dict[int, int] = {}

    def fork(self, arguments: list[str]) -> int:
        """Start a worker, and return its process id."""
        self._orders.write(json.dumps(arguments).encode() + b"\n")
        self._orders.flush()
        return wait_until("a worker is forked", self._next_forked)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a worker, or None while the worker runs."""
        self._listen()
        return self._codes.get(pid)

    def _next_forked(self) -> int | None:
        self._listen()
        return self._forked.pop(0) if self._forked else None

    def _listen(self) -> None:
        assert self._process.poll() is None, "the zygote has ended; its output is on stderr"
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._facts.fileno(), 65_536)
        *lines, self._rest = self._rest.split(b"\n")
        for fact in map(json.loads, lines):
            if "pid" in fact:
                self._forked.append(fact["pid"])
                self._codes.pop(fact["pid"], None)  # process ids are reused on a busy machine
            else:
                self._codes[fact["ended"]] = fact["code"]


@cache
def zygote() -> Zygote:
    """The zygote of this process. It ends when this process ends, because its stdin is then
    closed."""
    return Zygote()


class WorkerHandle:
    """Starts the workers of one state directory, one at a time. `flags`: the settings as
    command-line flags."""

    def __init__(self, directory: Path, flags: dict[str, Any], worker_id: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.flags, self.worker_id = directory, flags, worker_id
        self.log = directory / f"{worker_id}.log"
        self.active: int | None = None
        self.ends: list[Ended] = []

    @property
    def arguments(self) -> list[str]:
        """The arguments of worker_main.py."""
        given = ["--settings", json.dumps(self.flags), "--dir", str(self.directory)]
        return [*given, "--worker-id", self.worker_id, "--log", str(self.log)]

    @property
    def command(self) -> list[str]:
        """The command of a worker, for callers that start processes themselves."""
        return [sys.executable, str(MAIN), *self.arguments]

    @property
    def pid(self) -> int:
        """The process id of the running worker."""
        assert self.active is not None
        return self.active

    @property
    def _order(self) -> Path:
        return self.directory / f"{self.worker_id}.arm"

    def start(self, arm: str | None = None) -> None:
        """Start a worker. `arm`: the crash point to arm before the worker runs."""
        assert self.active is None, "one at a time"
        if arm is not None:
            self._order.write_text(arm)
        self.active = zygote().fork(self.arguments)

    def arm(self, at: str) -> None:
        """Arm a crash point in the running worker; '' disarms the worker."""
        scratch = self._order.with_suffix(".new")
        scratch.write_text(at)
        os.replace(scratch, self._order)
        has_ended = lambda: zygote().code_of(self.pid) is not None  # noqa: E731
        wait_until("the worker listens", lambda: has_ended() or self._catches(signal.SIGHUP))
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGHUP)
        wait_until(f"the worker arms {at}", lambda: not self._order.exists() or has_ended())
        self._order.unlink(missing_ok=True)

    def ended(self) -> Ended | None:
        """The end of the worker, or None while it runs. After its end, `start` may be called
        again."""
        if self.active is None:
            return None
        code = zygote().code_of(self.active)
        if code is None:
            return None
        pid, self.active = self.active, None
        self.ends.append(Ended(pid, code, time.time()))
        return self.ends[-1]

    def kill(self) -> Ended:
        """Kill the worker with SIGKILL, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        return self.await_end()

    def signal(self, number: int) -> None:
        """Send the worker this signal."""
        os.kill(self.pid, number)

    def await_end(self) -> Ended:
        """Wait for the worker's end."""
        return wait_until("the worker ends", self.ended)

    def _catches(self, number: int) -> bool:
        """Whether the worker has a handler for a signal that would otherwise end it (Linux
        only)."""
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False

    def is_stopped(self) -> bool:
        """Whether the worker is stopped by SIGSTOP (Linux only)."""
        return stopped_process.is_stopped(self.pid)

    def processes(self) -> list[int]:
        """The ids of all processes that run this handle's command, whoever started them (Linux
        only)."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                argv = path.read_bytes().split(b"\0")
                if argv[1:2] == [os.fsencode(MAIN)] and os.fsencode(self.directory) in argv:
                    found.append(int(path.parent.name))
        return found

    def info(self) -> dict[str, Any]:
        """The content of the worker's file `worker.json`: pid, web. Empty while there is no
        worker."""
        path = Path(self.flags["state_dir"]) / "worker.json"
        try:
            return json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            return {}

    def status(self) -> dict[str, Any]:
        """The status page of the worker."""
        web = self.info()["web"]
        with urllib.request.urlopen(f"{web}/status/", timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

    def stuck(self) -> dict[str, str]:
        """The sessions that the worker skips because WAKE and the fold disagreed (law 9)."""
        places = self.status()["partitions"].values()
        return {name: why for place in places for name, why in place["stuck"].items()}

    def has_logged(self, text: str) -> bool:
        """Whether a worker of this handle has logged a text."""
        return self.log.exists() and text in self.log.read_text("utf-8", "replace")

    def log_tail(self) -> str:
        """The end of the log, to explain a failure."""
        return self.log.read_text("utf-8", "replace")[-4000:] if self.log.exists() else ""

    def close(self) -> None:
        """End the worker, even a stopped one."""
        if self.active is not None:
            self.kill()
