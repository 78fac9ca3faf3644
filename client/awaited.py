"""Calls that begin when they are awaited. A forgotten `await` is reported in words.

The coroutine of an `async def` method would report it as an attribute that a coroutine does not
have, or not at all.
"""

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

VARIABLES = {
    "AsyncSession": "session.",
    "AsyncConnection": "log.",
    "AgentRun": "run.",
    "RunReply": "reply.",
}
"""How users write what a method is called on, by its class."""

if sys.version_info >= (3, 12):
    from inspect import markcoroutinefunction as _mark
else:

    def _mark(function: Callable[P, T]) -> Callable[P, T]:
        """Make `asyncio.iscoroutinefunction` return True for a function."""
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        return function


def warn(text: str) -> None:
    """Warn of a call that was never awaited."""
    warnings.warn(text, RuntimeWarning, stacklevel=3)


class PendingCall(Coroutine[Any, Any, T]):
    """A call of an `async def` function, which begins when it is awaited.

    `forgotten`: is called with a text for people if the call is never awaited.
    """

    def __init__(
        self,
        begin: Callable[[], Coroutine[Any, Any, T]],
        name: str,
        forgotten: Callable[[str], None] = warn,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self._forgotten, self._begin = forgotten, begin
        self._work: Coroutine[Any, Any, T] | None = None

    if not TYPE_CHECKING:  # or a type checker would allow every attribute

        def __getattr__(self, attribute: str) -> None:
            raise self._too_early(attribute)

    def _too_early(self, attribute: str) -> AttributeError:
        return AttributeError(
            f"{self.__name__}(...) has no {attribute!r} before it is awaited. Write `await "
            f"{self.__name__}(...)`."
        )

    def _begun(self) -> Coroutine[Any, Any, T]:
        if self._work is None:
            self._work = self._begin()
        return self._work

    def send(self, value: Any, *_: Any, **__: Any) -> Any:
        """Continue the call; part of the protocol of a coroutine, as are the next methods. Its
        first value is None: anything else is a message for a session that was not awaited.
        """
        if self._work is None and value is not None:
            raise self._too_early("send")
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in the call."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """End the call."""
        self._begun().close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begun().__await__()

    def __del__(self) -> None:
        if self._work is None:
            self._forgotten(
                f"{self.__name__}(...) was not awaited, so it did nothing. Write `await "
                f"{self.__name__}(...)`."
            )


def awaited(
    function: Callable[P, Coroutine[Any, Any, T]], forgotten: Callable[[str], None] = warn
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A function whose calls are PendingCalls of an `async def` function."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        owner = type(args[0]).__name__ if args else ""
        name = f"{VARIABLES.get(owner, '')}{function.__name__}"
        return PendingCall(partial(function, *args, **kwargs), name, forgotten)

    return _mark(call)
