"""Programs that tests run: each has a limit, and is killed when the limit passes."""

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from .slowness import allowed
from .waiting import PATIENCE_S, within

END_S = 30.0
"""How long a program may take to end after SIGTERM."""


def run(
    command: Sequence[str | Path], *, within_s: float = PATIENCE_S, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and its output as text.

    more: further arguments of subprocess.run. Raises subprocess.TimeoutExpired, which contains the
    output so far.
    """
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False, **more}
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(list(map(str, command)), timeout=allowed(within_s), **options)


def ended(process: "subprocess.Popen[Any]", within_s: float = PATIENCE_S) -> int:
    """Wait until a process has ended by itself, and return its exit code. If the limit passes, the
    process is killed and the test fails."""
    try:
        return process.wait(allowed(within_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(allowed(END_S))
        limit_s = allowed(within_s)
        raise AssertionError(f"{process.args} did not end within {limit_s:g} s") from None


def output_of(process: "subprocess.Popen[Any]", within_s: float = PATIENCE_S) -> tuple[Any, Any]:
    """Wait until a process has ended, and return its stdout and stderr (`communicate`)."""
    try:
        return process.communicate(timeout=allowed(within_s))
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate(timeout=allowed(END_S))
        raise AssertionError(
            f"{process.args} did not end within {allowed(within_s):g} s\n{out}\n{err}"
        ) from None


def end(
    process: "subprocess.Popen[Any]", within_s: float = END_S, by: int = signal.SIGTERM
) -> None:
    """End a process with a signal, and with SIGKILL if it does not end in time."""
    process.send_signal(by)
    with suppress(subprocess.TimeoutExpired):
        process.wait(allowed(within_s))
        return
    process.kill()
    process.wait(END_S)


def line_of(stream: IO[Any] | None, what: str, within_s: float = PATIENCE_S) -> Any:
    """The next line of a pipe, or nothing at its end. Raises AssertionError if none comes."""
    assert stream is not None, "the process has no such pipe"
    return within(what, stream.readline, within_s)
