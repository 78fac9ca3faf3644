"""Draws a chat: prints tokens as they stream, shows tools briefly, marks replaced attempts.

On a terminal, Markdown is drawn as it arrives, a separate line shows how long running work has
taken, and the text of a lost attempt is marked as void. Output to a pipe cannot be corrected, so an
answer is printed when it is final: stdout then has only answers, and everything else goes to
stderr.
"""

import re
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import click

from ...client.printable import no_text, text_of_body, whole
from ...client.transcript_stream import Dropped, LineAdded, Settled, Shown, Token
from ...client.visible import settled
from ...log.blobs import BlobError
from ...processors.fold.projections.transcript import Line
from ...schemas.events.parts import Body, ReadBlob
from .clean_text import clean
from .printing import brief, has_styles, note, wrapped, write
from .turn_meter import took

if TYPE_CHECKING:
    from .markdown import Markdown

DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
ERASE = "\r\x1b[K"
_LAST_WORD = re.compile(r"(?<!\S)\S{1,20}\Z")
"""A word that may still grow. Longer ones are shown as they come, as in languages without blanks.
"""


class Screen:
    """Draws the items of `client/transcript_stream.py`. `mine`: the ids of messages typed here.

    tool_ms: returns how long a call ran in ms, or None.
    """

    def __init__(
        self, read: ReadBlob, tool_ms: Callable[[str], int | None] = lambda call: None
    ) -> None:
        self.live = sys.stdout.isatty()
        self.mine: set[str] = set()
        self._read, self._tool_ms = read, tool_ms
        self._markdown: Markdown | None = None
        if self.live and has_styles(sys.stdout):
            from . import markdown

            self._markdown = markdown.Markdown(self._drawn)
        self._clock = ""  # the line that shows what runs
        self._column = 0
        self._held = ""  # streamed text that what follows may change, and the last word
        self._doubts: set[str] = set()  # calls whose doubt is shown
        self._kind = ""
        self._shown = False

    def clock(self, text: str) -> None:
        """Show what runs and for how long, on a line that the next output replaces; '' removes the
        line.
        """
        if self._markdown is not None:
            self._markdown.refresh()
        if self._markdown is None or self._column or text == self._clock:
            return
        shown = brief(text, max(1, _columns() - 3))
        write_raw(f"{ERASE}{DIM}… {shown}{PLAIN}" if text else ERASE)
        self._clock = text

    def answer(self, text: str) -> None:
        """Draw a whole earlier answer."""
        if self._markdown is not None:
            self._markdown.feed(text)
            self._markdown.end()
            self._new_line()
        else:
            write(text + "\n")

    def show(self, shown: Shown) -> None:
        """Draw one item."""
        match shown:
            case Token():
                self._token(shown)
            case Dropped():
                if self.live and self._shown:
                    self.remark(f"the text above does not count: {shown.why}")
                self._shown = False
            case Settled():
                self._settled(shown.line)
            case LineAdded():
                self._line(shown.line)
            case _:
                assert_never(shown)

    def remark(self, text: str) -> None:
        """Print a remark of the program, set apart from the model's text."""
        if not self.live:
            note(text)
            return
        self._new_line()
        click.echo(self._styled(DIM, _wrapped(f"[{text}]")))

    def earlier(self, text: str) -> None:
        """Print an earlier line of the conversation."""
        click.echo(_wrapped(text))

    def ask(self, text: str) -> None:
        """Print text that a person must read before answering."""
        self._new_line()
        click.echo(self._styled(BOLD, clean(text)), err=not self.live)

    def _token(self, token: Token) -> None:
        if not self.live or token.kind not in ("text", "thinking"):
            return
        if token.kind != self._kind:
            self._new_line()
            self._kind = token.kind
            if token.kind == "thinking":
                self._style(DIM)
        self.clock("")
        if token.kind == "text" and self._markdown is not None:
            self._markdown.feed(token.text)
        else:
            text = self._held + token.text
            word = _LAST_WORD.search(text)
            sure = min(settled(text), word.start() if word else len(text))
            self._plain(text[:sure])
            self._held = text[sure:]
        self._shown = True

    def _plain(self, text: str) -> None:
        shown, self._column = wrapped(clean(text), _columns(), self._column)
        write(shown)

    def _style(self, code: str) -> None:
        if self._markdown is not None:
            write_raw(code)

    def _styled(self, code: str, text: str) -> str:
        return text if self._markdown is None else f"{code}{text}{PLAIN}"

    def _drawn(self, text: str) -> None:
        write_raw(text)
        self._column = 1

    def _new_line(self) -> None:
        self.clock("")
        if self._kind == "text" and self._markdown is not None:
            self._markdown.end()
        if self._held:
            held, self._held = self._held, ""
            self._plain(held)
        if self._kind == "thinking":
            self._style(PLAIN)
        if self._column:
            click.echo("")
        self._kind, self._column = "", 0

    def _settled(self, line: Line) -> None:
        if self.live:
            self._new_line()
        else:
            text = self._text(line.body)
            if text:
                click.echo(clean(text))
                sys.stdout.flush()
        self._shown = False
        if line.kind == "partial":
            self.remark("stopped here")
        elif line.name in ("max_tokens", "refusal", "model_context_window_exceeded"):
            self.remark(f"the model stopped: {line.name}{line.text and f' ({line.text})'}")
        elif remark := no_text(line, self._read):
            self.remark(remark)

    def _line(self, line: Line) -> None:
        name = line.name
        match line.kind:
            case "message":
                if name not in self.mine:
                    self.remark(f"from elsewhere: {self._text(line.body)}")
            case "call":
                self.remark(f"{name} {brief(self._inline(line.body))}")
            case "asks":
                self.remark(f"{name} asks for approval")
            case "result":
                self._doubts.discard(line.call)
                ms = self._tool_ms(line.call) if self.live else None
                time = f" in {took(ms)}" if ms is not None else ""
                self.remark(f"{name}: {line.text}{time}: {self._result(line.body)}")
            case "doubt" if line.call in self._doubts:
                pass  # HUMAN_NEEDED: the question is on the screen
            case "approval" | "resolved" | "doubt":
                (self._doubts.add if line.kind == "doubt" else self._doubts.discard)(line.call)
                self.remark(f"{name} ({line.call}): {line.text}")
            case "attempt":
                self.remark(line.text)
            case "ended":
                if name != "end_turn":
                    detail = line.text and f" ({line.text})"
                    self.remark(f"turn {line.turn} ended: {name}{detail}")
            case "phase" | "project" | "terminated":
                self.remark(f"{line.kind} {name or line.text}")

    def _text(self, body: Body | None) -> str:
        try:
            return text_of_body(body, self._read)
        except BlobError as error:
            return f"[{error}]"

    def _inline(self, body: Body | None) -> str:
        return whole(body, None).decode("utf-8", "replace")

    def _result(self, body: Body | None) -> str:
        size = f" ({body.ref.bytes} bytes)" if body is not None and body.ref is not None else ""
        return brief(self._inline(body)) + size


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _wrapped(text: str) -> str:
    return wrapped(clean(text), _columns())[0]


def write_raw(code: str) -> None:
    """Write an escape sequence of the program itself."""
    sys.stdout.write(code)
    sys.stdout.flush()
