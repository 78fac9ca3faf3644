"""Reads lines from a terminal or a pipe, counts Ctrl-C, and handles signals for services."""

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from .printing import write

if TYPE_CHECKING:
    from .editor import Editor


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
    """What happens while a prompt is open. poll: returns the new events. draw: draws one of them.
    waits: whether the prompt still waits, after the event that `poll` returned last."""

    poll: Callable[[], Iterable[Any]] = tuple
    draw: Callable[[Any], None] = print
    waits: Callable[[], bool] = lambda: True


class Lines:
    """Reads lines from stdin: with an editor at a terminal, unchanged from a pipe."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.typed = sys.stdin.isatty()
        # If stdout is a pipe, it carries only answers, so prompts go to stderr.
        self._prompts = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._editor: Editor | None = None
        if self.typed and self._prompts.isatty() and os.environ.get("TERM") != "dumb":
            from . import editor

            self._editor = editor.Editor(sys.stdin, self._prompts, interrupts)

    @property
    def pasted(self) -> bool:
        """Whether the last message was pasted, so that it is no command."""
        return self._editor is not None and self._editor.pasted

    @property
    def late(self) -> str:
        """What was typed for a question that no longer waited for an answer."""
        return "" if self._editor is None else self._editor.late

    def message(self, prompt: str, watch: Watch | None = None) -> str | None:
        """The next message; '' if `watch` ended the wait; None at the end of input.
        Raises KeyboardInterrupt."""
        if self._editor is not None:
            return self._editor.message(prompt, watch or Watch())
        with self._interrupts.raising():
            write(prompt, self._prompts)
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None

    def set_aside(self, answers: Iterable[str]) -> str:
        """Keep what was typed before a question for the next message. Returns what was dropped:
        one of the `answers`, which the person cannot mean."""
        return "" if self._editor is None else self._editor.set_aside(answers)

    def answer(self, question: str, watch: Watch) -> str | None:
        """The answer to a question; None if `watch` ended the wait, at Ctrl-C, or at the end of
        input."""
        if self._editor is not None:
            return self._editor.answer(question, watch)
        return self.message(question)

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """A block in which the terminal does not echo what a person types, because it would appear
        in the middle of the model's answer. The next prompt reads the typed text.
        """
        if not self.typed:
            yield
            return
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        modes = [*before]
        # Not by lines either: the terminal cuts a long line at 4,095 bytes.
        modes[3] = before[3] & ~(termios.ECHO | (termios.ICANON if self._editor else 0))
        termios.tcsetattr(fd, termios.TCSANOW, modes)
        try:
            yield
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, before)


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
