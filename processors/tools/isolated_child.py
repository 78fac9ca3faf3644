"""Runs one function of an isolated tool, in the process that isolated.py started for it.

The request and the replies are JSON, because reading a pickle runs code: code that takes over this
process must not get into the worker.
"""

import base64
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from .arguments import ToolArguments, arguments_of
from .by_reference import Reference
from .context import IsolatedContext
from .results import KEPT_BYTES_MAX, as_json, plain
from .tiers import HiddenArguments
from .tool import Shortened, Tool, ToolCancelled, ToolFailed

REPLY_BYTES_MAX = KEPT_BYTES_MAX * 3 // 2  # the largest result that is stored, in base64
ERROR_CHARS_MAX = 16_000  # of an exception's text, and of its traceback


class Reply(StrEnum):
    """What a reply reports. BEGUN: the function is called next. NOT_BEGUN: it cannot be called."""

    BEGUN = "begun"
    NOT_BEGUN = "not_begun"
    RETURNED = "returned"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RAISED = "raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call of a function, with the raw arguments of a tool, or with the text for a compactor.

    hidden: whether the arguments are in the envelope of use_tool (tiers.py).
    """

    reference: Reference
    name: str
    args: str | None = None
    text: str | None = None
    context: Mapping[str, Any] | None = None
    hidden: bool = False

    def encoded(self) -> bytes:
        """The request as JSON, to be read by `serve`."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields).encode()


def serve(descriptor: int) -> None:
    """Read the request from a socket, call the function, reply, and end the process."""
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as channel:
        with channel.makefile("rb") as file:
            request = json.load(file)
        reply = _reply_to(channel, request)
        channel.sendall(_encoded(reply))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # threads that the function left behind do not keep the process


def _reply_to(channel: socket.socket, request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        call = _call_of(**request)
    except BaseException as error:
        return _error(Reply.NOT_BEGUN, error)
    channel.sendall(_encoded({"reply": Reply.BEGUN}))
    try:
        return {"reply": Reply.RETURNED, "value": _value(call())}
    except ToolCancelled as error:
        return _error(Reply.CANCELLED, error)
    except ToolFailed as error:
        return _error(Reply.FAILED, error)
    except BaseException as error:
        return _error(Reply.RAISED, error)


def _call_of(
    reference: list[str],
    name: str,
    args: str | None,
    text: str | None,
    context: Mapping[str, Any] | None,
    hidden: bool,
) -> Callable[[], Any]:
    found = Reference(*reference).resolve()
    function = found.function if isinstance(found, Tool) else found
    if args is None:
        return partial(function, text)
    inner = found.arguments if isinstance(found, Tool) else arguments_of(function, name)[0]
    arguments: ToolArguments = HiddenArguments(name, inner) if hidden else inner
    given = arguments.parse(args.encode())
    if context is None:
        return partial(function, **given)
    workdir = context["workdir"]
    fields = {**context, "workdir": None if workdir is None else Path(workdir)}
    return partial(function, IsolatedContext(**fields), **given)


def _value(value: Any) -> Mapping[str, Any]:
    """A result as JSON, in the form that `value_of` reads."""
    match value:
        case Shortened(shown=shown, whole=whole):
            return {"shown": str(shown), "whole": _value(whole)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": base64.b64encode(value).decode()}
        case str():
            return {"json": str(value)}
    try:
        return {"json": plain(value)}
    except Exception:  # a value's own methods may raise anything
        return {"json": as_json(value)}


def value_of(data: Mapping[str, Any]) -> Any:
    """The result that `_value` encoded. Raises KeyError, TypeError or ValueError for other data."""
    if "shown" in data:
        whole = value_of(data["whole"])
        if not isinstance(data["shown"], str) or not isinstance(whole, str | bytes):
            raise TypeError("a shortened result is two texts")
        return Shortened(data["shown"], whole)
    if "bytes" in data:
        return base64.b64decode(data["bytes"], validate=True)
    return data["json"]


def _error(reply: Reply, error: BaseException) -> Mapping[str, Any]:
    try:
        text = str(error)
    except Exception:
        text = "an exception without a readable text"
    below = error.__traceback__
    while below is not None and below.tb_frame.f_code.co_filename == __file__:
        below = below.tb_next
    lines = traceback.format_exception(type(error), error, below)
    return {
        "reply": reply,
        "type": type(error).__name__,
        "text": middle_cut(text),
        "traceback": middle_cut("".join(lines).rstrip()),
    }


def middle_cut(text: str) -> str:
    """The text, without its middle if it is too long."""
    half = ERROR_CHARS_MAX // 2
    return text if len(text) <= ERROR_CHARS_MAX else f"{text[:half]}\n[...]\n{text[-half:]}"


def _encoded(reply: Mapping[str, Any]) -> bytes:
    try:
        data = json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except RecursionError:
        return _without_value("it is nested too deeply")
    if len(data) > REPLY_BYTES_MAX:
        limit = f"at most {REPLY_BYTES_MAX} bytes pass from an isolated tool to the worker"
        return _without_value(f"it has {len(data)} bytes, and {limit}")
    return data + b"\n"


def _without_value(why: str) -> bytes:
    note = f"[It returned, but its result is lost: {why}. Ask for less.]"
    return _encoded({"reply": Reply.RETURNED, "value": {"json": note}})
