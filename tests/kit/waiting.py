"""Waits of tests: a condition, a deadline, and what to print when it passes.

Every wait of a test goes through this file or `programs.py`; tests/structure/waits.py finds others.
"""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic, sleep  # bound here: some tests replace those of the module `time`
from typing import TypeVar

from foldlog.tests.kit.slowness import allowed

T = TypeVar("T")

PATIENCE_S = 60.0
"""The limit of one wait: far more than it takes on a busy machine, and less than a test's limit."""
PAUSE_S, PAUSE_MAX_S = 0.02, 0.25
"""The shortest and the longest time between two checks. A check may be a request to a busy process,
so a wait that takes long checks less often.
"""


def until(
    what: str,
    condition: Callable[[], T],
    within_s: float = PATIENCE_S,
    show: Callable[[], object] | None = None,
) -> T:
    """Return the first true value of `condition`. Raises AssertionError with `what`, and with the
    value of `show`, if there is none within `within_s` seconds."""
    within_s = allowed(within_s)
    began = monotonic()
    while not (value := condition()):
        waited_s = monotonic() - began
        if waited_s > within_s:
            raise AssertionError(_report(what, within_s, show))
        sleep(_pause_s(waited_s))
    return value


async def until_async(
    what: str,
    condition: Callable[[], T],
    within_s: float = PATIENCE_S,
    show: Callable[[], object] | None = None,
) -> T:
    """Like `until`, while the event loop runs."""
    within_s = allowed(within_s)
    began = monotonic()
    while not (value := condition()):
        waited_s = monotonic() - began
        if waited_s > within_s:
            raise AssertionError(_report(what, within_s, show))
        await asyncio.sleep(_pause_s(waited_s))
    return value


def _pause_s(waited_s: float) -> float:
    return min(max(PAUSE_S, waited_s / 10), PAUSE_MAX_S)


def within(what: str, work: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Return the result of a call that blocks, such as the reading of a pipe. It runs in a daemon
    thread, which is left behind if the limit passes. Raises what `work` raises."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=what)
    thread.start()
    within_s = allowed(within_s)
    thread.join(within_s)
    if errors:
        raise errors[0]
    if not results:
        raise AssertionError(_report(what, within_s, None))
    return results[0]


def joined(thread: threading.Thread, within_s: float = PATIENCE_S) -> None:
    """Wait until a thread has ended."""
    within_s = allowed(within_s)
    thread.join(within_s)
    assert not thread.is_alive(), f"the thread {thread.name} did not end within {within_s:g} s"


def _report(what: str, within_s: float, show: Callable[[], object] | None) -> str:
    return f"not within {within_s:g} s: {what}" + (f"\n{show()}" if show else "")
