"""The two ends of a terminal: lines that a person types, and Ctrl-C; and the end of a service.

This file owns when Ctrl-C raises (at a prompt) and when it is only noted (while an answer streams,
so that no event is lost half-folded). It must not know a session.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from .printing import write


class Interrupts:
    """Ctrl-C as a note. `with interrupts:` takes the signal over; `raising()` gives it back."""

    def __init__(self) -> None:
        self.count = 0
        self._raise = False
        self._before: object = None

    def __enter__(self) -> "Interrupts":
        # Signals reach the main thread only; a chat in another thread has none to take.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _on_signal(self, *_: object) -> None:
        if self._raise:
            raise KeyboardInterrupt
        self.count += 1

    def taken(self) -> bool:
        """Whether Ctrl-C came since the last look."""
        came, self.count = self.count > 0, 0
        return came

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """A block in which Ctrl-C raises KeyboardInterrupt, as a prompt wants."""
        if self.taken():
            raise KeyboardInterrupt
        self._raise = True
        try:
            yield
        finally:
            self._raise = False


class Lines:
    """Lines from stdin: with editing and history on a terminal, as they come from a pipe."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.typed = sys.stdin.isatty()
        self._fd = sys.stdin.fileno() if self.typed else -1
        # Where stdout is a pipe it carries answers and nothing else.
        self._prompts = sys.stdout if sys.stdout.isatty() else sys.stderr
        if self.typed:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  `input` uses it from now on

    def message(self, prompt: str) -> str | None:
        """The next line, or None at the end. Raises KeyboardInterrupt."""
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

    def answer(self, question: str, meanwhile: Callable[[], bool]) -> str | None:
        """The answer to a question, or None when `meanwhile` says that it is moot, or at the end.

        `meanwhile` runs several times a second while a person thinks; Ctrl-C is left to it.
        """
        write(question, self._prompts)
        if not self.typed:
            return self.message("")
        typed = b""
        while meanwhile():
            ready, _, _ = select.select([self._fd], [], [], 0)
            if not ready:
                continue
            more = os.read(self._fd, 1024)
            typed += more
            if not more or typed.endswith(b"\n"):
                return typed.decode(errors="replace").strip() if typed else None
        return None


@contextlib.contextmanager
def ending_with_0() -> Iterator[None]:
    """In the block SIGTERM and Ctrl-C end a service with code 0, until what runs in it listens
    itself: for the time of a start, when nothing is held that does not end with the process."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: os._exit(0)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
