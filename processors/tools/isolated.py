"""Calls a function in a process of its own, which an abort kills with everything it started.

The process is a command of the run (children.py): the same environment without secrets, the same
end. It reports when the function begins, so a death before that is known to have had no effect.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from .children import KILL_S, Children
from .isolated_child import REPLY_BYTES_MAX, Reply, Request, middle_cut, value_of
from .tool import ToolCancelled, ToolFailed

_READ_BYTES = 64 * 1024
# -B: a stale .pyc file must not be loaded later (cli/agents.py). faulthandler: reports a segfault.
_FLAGS = ("-P", "-B", "-X", "faulthandler")
_BOOT = """
import json, sys
from importlib import import_module
sys.path[:] = json.loads(sys.argv[1])
import_module(sys.argv[2]).serve(int(sys.argv[3]))
"""


class ProcessLost(Exception):
    """The process ended, or was killed, before the function returned. log: for the worker's log."""

    def __init__(self, text: str, log: str = "") -> None:
        super().__init__(text)
        self.log = log or text


class NotBegun(ProcessLost):
    """The process could not call the function, so the call certainly had no effect."""


class Raised(Exception):
    """The function raised an exception of this type. log: its traceback, for the worker's log."""

    def __init__(self, kind: str, text: str, log: str) -> None:
        super().__init__(text)
        self.kind, self.log = kind, log


async def call(request: Request, children: Children, show: Callable[[str], None]) -> Any:
    """Call the function and return its result. Raises ToolFailed, ToolCancelled, Raised or
    ProcessLost.

    show: gets what the process printed, if it printed anything.
    """
    ours, theirs = socket.socketpair()
    received = bytearray()
    with ours:
        ours.setblocking(False)
        talking = asyncio.ensure_future(_talk(ours, request.encoded(), received))
        try:
            with theirs:
                command = _command(theirs.fileno())
                ended = await children.run(command, pass_fds=(theirs.fileno(),))
            await asyncio.wait({talking}, timeout=KILL_S)  # no process has the other end now
        except OSError as error:
            raise NotBegun(f"its process was not started: {error}") from error
        finally:
            talking.cancel()
    output = middle_cut(ended.output.decode("utf-8", "backslashreplace").rstrip())
    if output and ended.code == 0:
        show(output)
    return _result(await asyncio.to_thread(_parsed, bytes(received)), ended.code, output)


def _command(descriptor: int) -> list[str]:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    child = f"{__package__}.isolated_child"
    return [sys.executable, *_FLAGS, "-c", _BOOT, path, child, str(descriptor)]


async def _talk(channel: socket.socket, request: bytes, received: bytearray) -> None:
    """Send the request, and collect the replies until no process has the other end. What exceeds
    the limit is read and dropped, so that the last reply is incomplete."""
    loop, room = asyncio.get_running_loop(), REPLY_BYTES_MAX + _READ_BYTES
    with contextlib.suppress(OSError):  # the process has ended before it read the request
        await loop.sock_sendall(channel, request)
        channel.shutdown(socket.SHUT_WR)
        while data := await loop.sock_recv(channel, _READ_BYTES):
            received += data[: room - len(received)]


def _parsed(received: bytes) -> list[dict[str, Any]]:
    """The complete replies. A process that was killed may have left the beginning of another."""
    replies = []
    for line in received.split(b"\n")[:-1][:2]:
        try:
            reply = json.loads(line.decode("utf-8", "surrogatepass"))
            reply["reply"] = Reply(reply["reply"])
            if reply["reply"] == Reply.RETURNED:
                reply["value"] = value_of(reply["value"])
        except (ValueError, TypeError, KeyError, RecursionError):
            break  # the function wrote to the socket itself
        replies.append(reply)
    return replies


def _result(replies: list[dict[str, Any]], code: int, output: str) -> Any:
    match replies:
        case []:
            text = f"its process {_how(code)} before the function began"
            raise NotBegun(text, f"{text}\n{output}")
        case [{"reply": Reply.NOT_BEGUN, "type": kind, "text": text, "traceback": lines}, *_]:
            raise NotBegun(f"it cannot be imported in its own process: {kind}: {text}", lines)
        case [_, {"reply": Reply.RETURNED, "value": value}]:
            return value
        case [_, {"reply": Reply.FAILED, "text": str(text)}]:
            raise ToolFailed(text)
        case [_, {"reply": Reply.CANCELLED, "text": str(text)}]:
            raise ToolCancelled(text)
        case [_, {"reply": Reply.RAISED, "type": kind, "text": text, "traceback": lines}]:
            raise Raised(str(kind), str(text), str(lines))
    text = f"its process {_how(code)} before it returned"
    raise ProcessLost(text, f"{text}\n{output}")


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
