"""Tools: functions that a model may call,
with the properties that foldlog needs to run them safely.

`effect` states whether a call may be repeated, which determines what happens after a crash: a
`pure` or `idempotent` call runs again, a `once` call (the default, because it is the safe choice)
never does. This file only describes tools; it does not run them.
"""

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, overload

from ...schemas.enums import Approval, Effect
from ..fold.transitions import phases_of
from .arguments import ToolArguments, arguments_of, why_wrong
from .context import Abort, IsolatedContext, ToolContext

__all__ = [
    "tool",
    "Tool",
    "ToolContext",
    "IsolatedContext",
    "Abort",
    "ToolFailed",
    "ToolCancelled",
    "Shortened",
    "Happened",
    "DidNotHappen",
    "check_args",
]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the tool names that the Messages API accepts
_DESCRIPTION_CHARS_MAX = 8_000  # every request has it; 3,000 tokens or more are a mistake
ALWAYS, RARE, SEARCH = "always", "rare", "search"


class ToolFailed(Exception):
    """Raised by a tool that knows that it failed. The text is the reason, for the model.

    The call ends with the outcome `error`, even for a `once` tool. Raise it only if the effects of
    the call are known; any other exception of a `once` tool puts the call in doubt.
    """


class ToolCancelled(ToolFailed):
    """Raised by a tool that ended because of `ctx.aborted`. The outcome is `cancelled`."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A result that the tool itself has cut: `shown` is sent to the model, `whole` is stored."""

    shown: str
    whole: str | bytes


@dataclass(frozen=True, slots=True)
class Happened:
    """A reconciler's answer: the call had its effect, and this is its result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """A reconciler's answer: the call had no effect. It counts once the deadline of the call and a
    margin have passed, because a request of the dead worker may still be under way before."""

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as foldlog uses it. Calling the object calls the function, for tests of the tool.

    timeout_ms, result_tokens: None means the agent's limit. stops: whether a success of the tool
    ends the turn. reconciler: `(ctx, **arguments) -> Happened | DidNotHappen | None`; None if it
    does not know. compactor: `(text) -> shorter text`, which shortens long results instead of a
    model. workdir: the tool's directory; None means the agent's. tier: ALWAYS: every request has
    the tool, if its schema fits; RARE: a search finds it (tiers.py); SEARCH: the tool is one of the
    two that search and call rare tools. cache_ttl_ms: how long a result is reused for the same
    call, for pure tools only; None: never. isolate: whether the function and the compactor run in
    a process of their own (isolated.py). phases: the only phases in which the tool may be called;
    empty means all.
    """

    name: str
    description: str
    arguments: ToolArguments
    function: Callable[..., Any]
    context: str | None
    effect: Effect = Effect.ONCE
    approval: Approval = Approval.NONE
    timeout_ms: int | None = None
    result_tokens: int | None = None
    reconciler: Callable[..., Any] | None = None
    compactor: Callable[[str], str] | None = None
    stops: bool = False
    workdir: Path | None = None
    tier: str = ALWAYS
    cache_ttl_ms: int | None = None
    isolate: bool = False
    phases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        phases = phases_of(self.phases, f"phases of tool {self.name}")
        object.__setattr__(self, "phases", phases)

    @property
    def entry(self) -> dict[str, Any]:
        """The tool's entry in the field `tools` of a request."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
        }

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""
        return self.arguments.schema

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def can_be_ended(self) -> bool:
        """Whether the tool runs as a task or a process, which can be ended; a thread cannot."""
        return self.isolate or self.is_async

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def check_args(tool: Tool, raw: bytes) -> str | None:
    """The error in raw JSON arguments, as text for the model, or None if they are valid."""
    why = why_wrong(tool.arguments.parse, raw)
    return None if why is None else f"{tool.name} was not run, its arguments are wrong: {why}"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: str = ...,
    approval: str = ...,
    timeout_s: float | None = ...,
    result_tokens: int | None = ...,
    reconciler: Callable[..., Any] | None = ...,
    compactor: Callable[[str], str] | None = ...,
    stops: bool = ...,
    name: str | None = ...,
    tier: str = ...,
    cache_ttl_s: float | None = ...,
    isolate: bool = ...,
    phases: Iterable[str] = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: str = Effect.ONCE,
    approval: str = Approval.NONE,
    timeout_s: float | None = None,
    result_tokens: int | None = None,
    reconciler: Callable[..., Any] | None = None,
    compactor: Callable[[str], str] | None = None,
    stops: bool = False,
    name: str | None = None,
    tier: str = ALWAYS,
    cache_ttl_s: float | None = None,
    isolate: bool = False,
    phases: Iterable[str] = (),
) -> Any:
    """Make a tool of a function, as `@tool` or `@tool(...)`. The model gets the function's
    docstring.

    effect: whether a call may be repeated: pure | idempotent | once. approval: none | ask | deny.
    timeout_s: how many seconds a run may take. result_tokens: a longer result is cut, and the whole
    result is stored. reconciler: called, perhaps several times, after the worker of a `once` call
    died, to find out whether the call had its effect. compactor: shortens a long result, instead of
    a model. stops: whether a success of the tool ends the turn. tier: always | rare; a rare tool is
    not in the requests, and the model finds it by a search. A first parameter `ctx` gets a
    ToolContext. cache_ttl_s: for this many seconds, the same arguments of the same user get the
    result of an earlier run instead of a new run; pure tools only. phases: the only phases of a
    session in which the tool may be called; empty means all. An async function runs as a task
    and is cancelled on abort. Any other function runs in a thread, which cannot be killed: it
    should check `ctx.aborted`. A result that it returns after its deadline is still reported.
    isolate: the function, and the compactor, run in a process of their own, which is killed on
    abort; a first parameter `ctx` gets an IsolatedContext.
    Raises TypeError or ValueError, at import, if the function cannot be a tool.
    """

    def make(function: Callable[..., Any]) -> Tool:
        if not callable(function):
            raise TypeError(f"a tool is made from a function, not from {function!r}")
        own_name = name or getattr(function, "__name__", "")
        if not isinstance(own_name, str) or _NAME.fullmatch(own_name) is None:
            raise ValueError(f"a tool's name is 1-64 characters of [A-Za-z0-9_-], not {own_name!r}")
        if tier not in (ALWAYS, RARE):
            raise ValueError(f"tier of tool {own_name}: {tier!r} is neither {ALWAYS} nor {RARE}")
        if cache_ttl_s is not None and effect != Effect.PURE:
            raise ValueError(f"tool {own_name} is {effect}: only pure tools may have a cache_ttl_s")
        if reconciler is not None and effect == Effect.PURE:
            raise ValueError(
                f"tool {own_name} is pure, so its calls are run again and never in doubt: only "
                "other tools may have a reconciler"
            )
        for what, given in (("reconciler", reconciler), ("compactor", compactor)):
            if given is not None and not callable(given):
                raise ValueError(f"{what} of tool {own_name} must be a function, not {given!r}")
        arguments, context = arguments_of(function, own_name)
        _demand_fit(function, own_name, context, isolate=isolate)
        return Tool(
            name=own_name,
            description=_description(function, own_name),
            arguments=arguments,
            function=function,
            context=context,
            effect=_word(Effect, effect, f"effect of tool {own_name}"),
            approval=_word(Approval, approval, f"approval of tool {own_name}"),
            timeout_ms=_at_least_one(timeout_s, own_name, "timeout_s", 1000),
            result_tokens=_at_least_one(result_tokens, own_name, "result_tokens"),
            reconciler=reconciler,
            compactor=compactor,
            stops=stops,
            tier=tier,
            cache_ttl_ms=_at_least_one(cache_ttl_s, own_name, "cache_ttl_s", 1000),
            isolate=isolate,
            phases=phases,  # type: ignore[arg-type]  # Tool checks and orders them
        )

    return make if function is None else make(function)


def _demand_fit(
    function: Callable[..., Any], name: str, context: str | None, *, isolate: bool
) -> None:
    """Raise an error unless the function fits to its place, the worker or a process of its own."""
    if not isinstance(isolate, bool):
        raise ValueError(f"isolate of tool {name} must be True or False, not {isolate!r}")
    if isolate and inspect.iscoroutinefunction(function):
        raise ValueError(
            f"tool {name} is async, so an abort cancels it: only other functions can be isolated"
        )
    hint = None if context is None else typing.get_type_hints(function).get(context)
    if isolate and context is not None and hint is not IsolatedContext:
        raise TypeError(
            f"parameter {context!r} of tool {name} must have the type IsolatedContext: an isolated "
            "tool has no access to the worker's children, blobs, memory, side log, reminders and "
            "triggers"
        )
    if not isolate and hint is IsolatedContext:
        raise TypeError(
            f"parameter {context!r} of tool {name} must have the type ToolContext, because the "
            "tool is not isolated"
        )


def _description(function: Callable[..., Any], name: str) -> str:
    text = inspect.cleandoc(function.__doc__ or "")
    if not text:
        raise TypeError(f"tool {name} needs a docstring: it is all that the model knows of it")
    if len(text) > _DESCRIPTION_CHARS_MAX:
        raise ValueError(
            f"the docstring of tool {name} has {len(text)} characters, the maximum is "
            f"{_DESCRIPTION_CHARS_MAX}"
        )
    return text


def _word(words: type[StrEnum], text: str, what: str) -> Any:
    try:
        return words(text)
    except ValueError:
        raise ValueError(f"{what}: {text!r} is not one of {', '.join(words)}") from None


def _at_least_one(number: float | None, name: str, what: str, times: int = 1) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{what} of tool {name} must be a number, not {number!r}")
    if not 1 <= number * times < float("inf"):
        raise ValueError(f"{what} of tool {name} must be positive and finite")
    return int(number * times)
