"""Counts Ctrl-C at a terminal, and handles signals for services."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple


class Interrupts:
    """Counts Ctrl-C inside `with interrupts:`.

    Inside `raising()`, Ctrl-C raises KeyboardInterrupt again.
    """

    def __init__(self) -> None:
        self.count = 0
        self._raise = False
        self._before: Any = None  # what `signal.signal` returned: a handler of any kind

    def __enter__(self) -> "Interrupts":
        # Only the main thread can handle signals, so a chat in another thread handles none.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, *_: object) -> None:
        if self._raise:
            raise KeyboardInterrupt
        self.count += 1

    def taken(self) -> bool:
        """Whether Ctrl-C was pressed since the last call; resets the count."""
        pressed, self.count = self.count > 0, 0
        return pressed

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """A block in which Ctrl-C raises KeyboardInterrupt, as a prompt needs."""
        if self.taken():
            raise KeyboardInterrupt
        self._raise = True
        try:
            yield
        finally:
            self._raise = False


class Watch(NamedTuple):
    """What happens while a prompt is open.

    poll: returns the new events.
    draw: draws one of them.
    waits: whether the prompt still waits, after the event that `poll` returned last.
    """

    poll: Callable[[], Iterable[Any]] = tuple
    draw: Callable[[Any], None] = print
    waits: Callable[[], bool] = lambda: True


@contextlib.contextmanager
def ending_with_0() -> Iterator[None]:
    """A block in which SIGTERM and Ctrl-C end the process with code 0.

    The block covers the start of a service, when nothing needs a clean shutdown yet. The service
    then installs its own handlers.
    """
    with _at_end_signals(lambda *_: os._exit(0)):
        yield


def interrupting() -> contextlib.AbstractContextManager[None]:
    """A block in which SIGTERM raises KeyboardInterrupt, as Ctrl-C does.

    It covers the start of a service that has started others and must end them.
    """
    return _at_end_signals(signal.default_int_handler)


@contextlib.contextmanager
def _at_end_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only this one handles signals
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
