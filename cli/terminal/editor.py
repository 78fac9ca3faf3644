"""The line editor of a chat: prompt_toolkit, which owns the terminal while a prompt is open.

What happens in the session is drawn above the prompt. Pasted lines are one text, also on terminals
without bracketed paste, where they arrive at once; no command in a paste is obeyed.
"""

import asyncio
import os
import select
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.document import Document
from prompt_toolkit.history import DummyHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from .signals import Interrupts, Watch

POLL_S = 0.1
BURST_S = 0.05
"""Input that follows within this time belongs to the same paste. Typed keys arrive one by one."""
NEWLINES = (Keys.ControlM, Keys.ControlJ)
STYLE = Style.from_dict({"prompt": "fg:ansidefault"})  # without one, no trailing blank is drawn


class _Input(Vt100Input):
    """A terminal that reports lines which arrive at once as one paste."""

    def read_keys(self) -> list[KeyPress]:
        keys = super().read_keys()
        while len(keys) > 1 and any(key.key in NEWLINES for key in keys):
            more = super().read_keys() if select.select([self.fileno()], [], [], BURST_S)[0] else []
            keys += more
            if not more:
                break
        return list(_with_pastes(keys))


def _with_pastes(keys: Iterable[KeyPress]) -> Iterator[KeyPress]:
    """Replace runs of several lines with a paste. Line ends around a run remain keys."""
    for is_text, run in groupby(keys, _is_text):
        group = list(run)
        text = text_of(group)
        lines = text.strip("\n")
        if not is_text or "\n" not in lines:
            yield from group
            continue
        begin = text.index(lines)
        yield from group[:begin]
        yield KeyPress(Keys.BracketedPaste, lines)
        yield from group[begin + len(lines) :]


def _is_text(key: KeyPress) -> bool:
    return key.key in (*NEWLINES, Keys.ControlI) or len(key.key) == 1


def text_of(keys: Iterable[KeyPress]) -> str:
    """The text that these keys type."""
    return "".join("\n" if key.key in NEWLINES else key.data for key in keys)


class Editor:
    """Reads messages, and answers to questions.

    `pasted`: whether the text that was read last begins with a paste or has several lines, so that
        it is no command.
    `late`: what was typed for a question that no longer waited.
    """

    def __init__(self, stdin: TextIO, stdout: TextIO, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._input = _Input(stdin)
        output = Vt100_Output.from_pty(stdout, term=os.environ.get("TERM"))
        output.enable_cpr = False  # nothing here needs the position of the cursor
        self._messages = self._session(output, self._paste)
        self._questions = self._session(output, self._paste_aside, history=DummyHistory())
        self._ahead: list[KeyPress] = []  # typed before or pasted at a question, for a message
        self._draft = ""  # a message that an answer interrupted
        self._undrawn: list[Any] = []
        self.pasted, self.late = False, ""

    def _session(
        self, output: Vt100_Output, paste: Callable[[KeyPressEvent], None], **more: Any
    ) -> PromptSession[str | None]:
        keys = KeyBindings()
        keys.add(Keys.BracketedPaste)(paste)
        return PromptSession(input=self._input, output=output, key_bindings=keys, style=STYLE,
                             enable_suspend=True, **more)

    def message(self, prompt: str, watch: Watch) -> str | None:
        """The next message; None at the end of input. Returns '' if `watch` ends the wait; the text
        so far is kept for the next prompt. Raises KeyboardInterrupt."""
        ahead, self._ahead = self._ahead, []
        draft, self._draft = self._draft, ""
        self.pasted &= bool(draft)
        store_typeahead(self._input, ahead)
        try:
            text = self._run(self._messages, prompt, watch, draft)
        except EOFError:
            return None
        if text is None:
            self._draft = self._messages.default_buffer.text
            return ""
        self.pasted |= "\n" in text
        return _valid(text).rstrip("\n")

    def answer(self, question: str, watch: Watch) -> str | None:
        """The answer to a question; None if `watch` ends the wait, at Ctrl-C, which is counted, or
        at the end of input."""
        self.late = ""
        try:
            text = self._run(self._questions, question, watch)
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._interrupts.count += 1
            return None
        if text is None:
            typed = self._questions.default_buffer.text + text_of(self._unread())
            self.late = _valid(typed).strip()
        return None if text is None else _valid(text).strip()

    def set_aside(self, answers: Iterable[str]) -> str:
        """Keep what was typed so far for the next message, because it answers no later question. If
        it is one of `answers`, drop it and return it."""
        keys = self._unread()
        text = _valid(text_of(keys)).strip()
        if text.lower() in answers:
            return text
        self._ahead += keys
        return ""

    def _unread(self) -> list[KeyPress]:
        keys = get_typeahead(self._input)
        with self._input.raw_mode():
            while more := self._input.read_keys():
                keys += more
        return keys

    def _run(
        self, session: PromptSession[str | None], prompt: str, watch: Watch, draft: str = ""
    ) -> str | None:
        session.message = [("class:prompt", prompt)]
        session.default_buffer.reset(Document(draft))
        session.app.erase_when_done = False

        def begin() -> None:
            get_app().create_background_task(self._watch(watch))

        try:
            return session.app.run(pre_run=begin)
        finally:
            self._draw(watch)

    async def _watch(self, watch: Watch) -> None:
        app = get_app()
        try:
            while watch.waits():
                if self._interrupts.taken():
                    raise KeyboardInterrupt
                for step in watch.poll():
                    self._undrawn.append(step)
                    if not watch.waits():
                        break
                    await run_in_terminal(lambda: self._draw(watch))
                else:
                    await asyncio.sleep(POLL_S)
            if not app.is_done:
                app.erase_when_done = True
                app.exit(result=None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not app.is_done:
                app.exit(exception=error)

    def _draw(self, watch: Watch) -> None:
        while self._undrawn:
            watch.draw(self._undrawn.pop(0))

    def _paste(self, event: KeyPressEvent) -> None:
        self.pasted |= not event.current_buffer.document.text_before_cursor
        event.current_buffer.insert_text(_line_ends(event.data))

    def _paste_aside(self, event: KeyPressEvent) -> None:
        """A paste of several lines is no answer: keep it for the next message."""
        text = _line_ends(event.data)
        if "\n" in text:
            self._ahead.append(KeyPress(Keys.BracketedPaste, text))
        else:
            event.current_buffer.insert_text(text)


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _valid(text: str) -> str:
    """Replace bytes that were not UTF-8, which the terminal's reader keeps as surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
