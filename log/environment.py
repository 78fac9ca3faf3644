"""Controls which environment variables other processes can read, and which ones children inherit.

Linux shows the initial environment of a process to every process of the same user, in
/proc/PID/environ, whatever the process does to its variables later. Tools run commands written by a
model, so no foldlog process that is a parent of a tool's process may expose a secret there: `seal`
blanks that memory, `start_process` passes variables to foldlog's own children over a socket, and
every other child gets only the variables in PASSED and those that an operator adds. Only the
environment is protected: root, and a debugger of the same user with the right to trace, can still
read the memory of a process.
"""

import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "COLUMNS", "LINES", "NO_COLOR",
    "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
    "TMPDIR", "TMP", "TEMP", "XDG_*_HOME", "XDG_*_DIRS",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONUTF8",
    "VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOPATH", "CARGO_HOME", "RUSTUP_HOME",
)  # fmt: skip
"""Globs of the variables that every child gets, for locations, locale, terminal and trusted CAs."""

JAVA = ("JAVA_*", "JDK_*", "KAFKA_*", "LOG_DIR")
"""Variables that configure the local Kafka, in addition to PASSED."""

HANDED = "FOLDLOG_HANDED_FD"
"""The variable with the descriptor of the socket from which a foldlog process reads its other
variables.
"""

HAND_OVER_S = 10.0  # limit for a child that does not read; the variables fit the socket's buffer
# A URL with a user name and password; proxies may also be given without a scheme.
_PASSWORD = re.compile(r"://[^/\s]*@|^[^/\s:]+:[^/\s]*@")
_PR_SET_DUMPABLE = 4  # linux/prctl.h
_ENV_START, _ENV_END = 50 - 3, 51 - 3  # fields of /proc/self/stat, after the name; see proc(5)


def for_children(names: Iterable[str] = ()) -> dict[str, str]:
    """The environment of a child that is not foldlog's. `names`: globs of further variables."""
    return passed(os.environ, names)


def passed(env: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `env` that a child gets: those in `names`, and those in PASSED whose values
    contain no password."""
    also = tuple(names)
    return {
        name: value
        for name, value in env.items()
        if _matches(name, also) or (_matches(name, PASSED) and not _PASSWORD.search(value))
    }


def _matches(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def forget(names: Iterable[str], kept: Iterable[str] = ()) -> None:
    """Remove variables, so that processes started by a tool in this process do not get them."""
    also = tuple(kept)
    for name in names:
        if not _matches(name, also):
            os.environ.pop(name, None)


def start_process(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    **options: Any,
) -> "subprocess.Popen[Any]":
    """Start a foldlog process with all the variables in `env` (default: our own). The new process
    must call `begin`.

    Variables that other processes may not read go over a socket, which, unlike a pipe, cannot be
    opened through /proc.
    """
    variables = dict(os.environ if env is None else env)
    public = passed(variables)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                command,
                env=public | {HANDED: str(theirs.fileno())},
                pass_fds=(theirs.fileno(), *pass_fds),
                **options,
            )
        ours.settimeout(HAND_OVER_S)
        with contextlib.suppress(OSError):  # the child has already ended: the caller will notice
            private = {name: text for name, text in variables.items() if name not in public}
            ours.sendall(json.dumps(private).encode())
    return process


def begin() -> bool:
    """Called at the start of a foldlog process. Returns whether another foldlog process started it.

    Reads the variables from the socket, then calls `seal`.
    """
    number = os.environ.pop(HANDED, "")
    if number.isdigit():
        with contextlib.suppress(OSError, ValueError), open(int(number), "rb") as file:
            os.environ.update(json.load(file))
    seal()
    return bool(number)


def seal() -> None:
    """Blank all variables except PASSED in /proc/PID/environ, and deny other processes access to
    our memory.

    Variables keep their values in this process. Linux only: it does nothing elsewhere.
    """
    if sys.platform != "linux":
        return
    for name, value in os.environ.items():
        os.putenv(name, value)  # C code reads this copy; /proc shows the block blanked below
    with contextlib.suppress(OSError, IndexError, ValueError):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        _blank(int(fields[_ENV_START]), int(fields[_ENV_END]))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _blank(start: int, end: int) -> None:
    """Zero the variables that children do not get. `start`, `end`: the addresses of the
    environment.
    """
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = os.fsdecode(entry).partition("=")
        if not passed({name: value}):
            ctypes.memset(at, 0, len(entry))
        at += len(entry) + 1
