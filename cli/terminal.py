"""Reads input from a terminal (typed lines, Ctrl-C), and handles signals for services.

At a prompt, Ctrl-C raises KeyboardInterrupt. While an answer streams, Ctrl-C is only counted, so
that no event is left half-folded.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .printing import write


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


def edits_lines() -> bool:
    """Enable line editing with readline for `input`, if stdin is the process's own terminal.

    Returns whether line editing is enabled.
    """
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401

        return (sys.stdin.fileno(), sys.stdout.fileno()) == (0, 1) and sys.stdout.isatty()
    return False


class Lines:
    """Reads lines from stdin: with editing and history on a terminal, unchanged from a pipe."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.typed = sys.stdin.isatty()
        self._fd = sys.stdin.fileno() if self.typed else -1
        # A terminal whose echo is off when the chat begins stays that way.
        self._shows_typing = self.typed and bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)
        # If stdout is a pipe, it carries only answers, so prompts go to stderr.
        self._prompts = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._edits = self.typed and edits_lines()
        self.late = ""  # what was typed for a question that no longer waited for an answer

    def message(self, prompt: str) -> str | None:
        """The next line, or None at the end of input. Raises KeyboardInterrupt."""
        with self._interrupts.raising():
            if self.typed and self._prompts is sys.stdout:
                try:
                    return input(prompt)
                except EOFError:
                    write("\n")
                    return None
            write(prompt, self._prompts)
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None

    def answer(self, question: str, still_waits: Callable[[], bool]) -> str | None:
        """The typed answer to a question; None if `still_waits` returns False, or at the end of
        input.

        `still_waits` is called several times a second while a person thinks; it handles Ctrl-C.
        Text that was typed before the question is dropped, because it cannot be the answer. Text
        that was typed for a question that no longer waits is moved to `late`.
        """
        self.late = ""
        if self.typed:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        write(question, self._prompts)
        if not self.typed:
            return self.message("")
        with self._echo(True):
            typed = b""
            while still_waits():
                ready, _, _ = select.select([self._fd], [], [], 0)
                if not ready:
                    continue
                more = os.read(self._fd, 1024)
                typed += more
                if not more or typed.endswith(b"\n"):
                    return typed.decode(errors="replace").strip() if typed else None
            self.late = (typed + self._unread()).decode(errors="replace").strip()
            return None

    def _unread(self) -> bytes:
        """Read what was typed so far, also without Enter."""
        before = termios.tcgetattr(self._fd)
        modes = [*before]
        modes[3] = before[3] & ~termios.ICANON
        modes[6] = [*before[6]]
        modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0
        termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        try:
            return b"".join(iter(lambda: os.read(self._fd, 1024), b""))
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)

    @contextlib.contextmanager
    def keys(self) -> Iterator[bool]:
        """A block in which `has_key` notices the first key of a line, which `message` then reads.

        Yields False if this is impossible, because readline does not edit the line.
        """
        if not self._edits:
            yield False
            return
        before = termios.tcgetattr(self._fd)
        modes = [*before]
        modes[3] = before[3] & ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        try:
            yield True
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)

    def has_key(self) -> bool:
        """Whether something was typed."""
        return bool(select.select([self._fd], [], [], 0)[0])

    def unseen(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the terminal does not echo what a person types, because it would appear
        in the middle of the model's answer. The next prompt reads the typed text.
        """
        return self._echo(False)

    @contextlib.contextmanager
    def _echo(self, on: bool) -> Iterator[None]:
        """A block in which the terminal shows typed text (`on`) or hides it."""
        if not self.typed:
            yield
            return
        before = termios.tcgetattr(self._fd)
        modes = [*before]
        modes[3] = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
        if not self._shows_typing:
            modes[3] = before[3]
        termios.tcsetattr(self._fd, termios.TCSANOW, modes)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)


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
