"""Reads the lines of a chat: with an editor at a terminal, unchanged from a pipe."""

import contextlib
import os
import sys
import termios
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .printing import write
from .signals import Interrupts, Watch

if TYPE_CHECKING:
    from .editor import Editor


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
        """Keep what was typed before a question for the next message. If it is one of the
        `answers`, which the person cannot mean yet, drop it and return it."""
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
