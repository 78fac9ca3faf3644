"""The calls of the kit that a test did not await, so that no test passes without its crash."""

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ..client import awaited as of_client

P = ParamSpec("P")
T = TypeVar("T")

FORGOTTEN: list[str] = []
"""What the calls of the running test that were never awaited are reported as."""


def awaited(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """As `awaited` of the client, and a test that forgets to await a call fails."""
    return of_client.awaited(function, FORGOTTEN.append)
