"""Isolated tools, at the top level of a module that another process can import."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from foldlog import IsolatedContext, ToolFailed, tool
from foldlog.processors.tools.tool import Shortened, ToolCancelled

STUBBORN = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); " + (
    "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(1000)"
)


@dataclass
class Place:
    """A value that JSON has as an object."""

    street: str
    number: int


@tool(effect="pure", isolate=True)
def where_am_i(place: Place) -> dict:
    """Describe a place, and the process."""
    print("hello from inside")
    return {"place": place, "pid": os.getpid(), "parent": os.getppid()}


@tool(effect="pure", isolate=True, tier="rare")
def look_rarely(name: str) -> str:
    """Return the argument."""
    return name


@tool(effect="pure", isolate=True)
def look_at_ctx(here: IsolatedContext, note: str = "-") -> list:
    """Return what the context has."""
    workdir = None if here.workdir is None else here.workdir.name
    return [here.idempotency_key, here.attempt, here.user_id, here.result_tokens, workdir, note]


def _hang(how: str, pids: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = [sys.executable, "-c", STUBBORN, pids]
    subprocess.Popen(child)
    subprocess.Popen(child, start_new_session=True)
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")
    if how == "sleep":
        time.sleep(1000)
    while True:
        pass


@tool(effect="pure", isolate=True)
def hang_pure(how: str, pids: str) -> None:
    """Never return, and ignore SIGTERM."""
    _hang(how, pids)


@tool(effect="once", isolate=True)
def hang_once(how: str, pids: str) -> None:
    """Never return, and ignore SIGTERM."""
    _hang(how, pids)


def _die(how: str) -> str:
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "segfault":
            signal.raise_signal(signal.SIGSEGV)
        case "forged":
            _write_to_every_socket(b"nonsense\n" * 3)
            os._exit(0)
    return how


def _write_to_every_socket(data: bytes) -> None:
    for number in range(3, 64):
        try:
            os.write(number, data)
        except OSError:
            continue


@tool(effect="pure", isolate=True)
def die_pure(how: str) -> str:
    """End the process."""
    return _die(how)


@tool(effect="idempotent", isolate=True)
def die_idempotent(how: str) -> str:
    """End the process."""
    return _die(how)


@tool(effect="once", isolate=True)
def die_once(how: str) -> str:
    """End the process."""
    return _die(how)


class OddError(Exception):
    """An exception that only this module has."""


def _raise_below(how: str) -> None:
    match how:
        case "failed":
            raise ToolFailed("the card was refused")
        case "cancelled":
            raise ToolCancelled("ended before the payment")
        case "exit":
            sys.exit("bye")
        case "huge":
            raise OddError("x" * 1_000_000 + "\ud800")
    raise OddError(how)


@tool(effect="pure", isolate=True)
def fail_pure(how: str) -> None:
    """Raise an exception."""
    _raise_below(how)


@tool(effect="once", isolate=True)
def fail_once(how: str) -> None:
    """Raise an exception."""
    _raise_below(how)


def _deep(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@tool(effect="pure", isolate=True)
def give(what: str) -> object:
    """Return a value."""
    match what:
        case "bytes":
            return b"\0\1" * 1_000
        case "shortened":
            return Shortened("short", "the whole")
        case "lambda":
            return lambda: 1
        case "surrogate":
            return "a\ud800b"
        case "long":
            return "0123456789" * 200_000
        case "too long":
            return "x" * (60 * 1024 * 1024)
        case "deep":
            return _deep(500)
        case "too deep":
            return _deep(100_000)
        case "nan":
            return [float("nan"), {1, 2}]
    return None


@tool(effect="pure", isolate=True)
def show_environment() -> str:
    """Return what a process can see of the environment."""
    seen = [f"{name}={value}" for name, value in os.environ.items()]
    for pid in ("self", os.getppid()):
        with open(f"/proc/{pid}/environ") as file:
            seen += file.read().split("\0")
    inner = subprocess.run(["env"], capture_output=True, text=True, check=True, timeout=60)
    seen += inner.stdout.split("\n")
    return "\n".join(seen)


def short_form(text: str) -> str:
    """A compactor that works."""
    return f"{os.getpid()} {text[:20]}"


def endless(text: str) -> str:
    """A compactor that never returns."""
    with open(text.split()[0], "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        pass


@tool(effect="pure", isolate=True, compactor=short_form)
def read_short() -> str:
    """Read a text."""
    return ""


@tool(effect="pure", isolate=True, compactor=endless)
def read_endless() -> str:
    """Read a text."""
    return ""


def plain_function(number: int) -> int:
    """Return the next number."""
    return number + 1


made_by_call = tool(effect="pure", isolate=True)(plain_function)
