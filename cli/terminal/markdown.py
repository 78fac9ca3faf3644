"""Draws streaming Markdown on a terminal, with rich.

A finished block is printed for good and scrolls away like any text. While a block grows, only the
rows that changed are drawn again: at most DRAWS_PER_S times a second, and only rows that are still
in the window. A link shows its address, so that people see what they would open. All text passes
through `clean`.
"""

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain, pairwise, takewhile

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich import markdown as elements
from rich.cells import chop_cells
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from .clean_text import clean

DRAWS_PER_S = 15
COST_MAX = 0.25
"""The share of the time that drawing may take: a long block is drawn less often."""

UNUSED = "autolink entity html_block html_inline image lheading reference".split()
"""Rules of Markdown that would hide what the model wrote, or change a block that is printed."""

_UNCERTAIN = re.compile(r"\n(?:[ \t]*(?:```[^\n]*|\d{1,9}[.)]?)|[ \t#*_>+`~|-]*)\Z")
"""A last line that may yet begin a block, or belong to the one before."""
_CODES = re.compile(r"\x1b\[[\d;]*m")
_BLANK_END = re.compile(r"(?: |\x1b\[[\d;]*m *\x1b\[0m)+\Z")
_BETWEEN_WORDS = re.compile(r"(?<=\w)\*(?=\w)")
STYLES = Theme({"markdown.code": "cyan", "markdown.code_block": "none", "markdown.link_url": "dim"})


class Markdown:
    """`feed` draws more of a text, `end` draws the rest. The cursor stays behind the text."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._reset()

    def _reset(self) -> None:
        self._text = ""  # the block that grows, and what follows it
        self._rows: list[str] = []  # of this block, as they are on the screen
        self._width = 0  # of this block: a wider window does not wrap it again
        self._gap = ""
        self._due = 0.0

    def feed(self, text: str) -> None:
        """Add some Markdown."""
        self._text += text
        self.refresh()

    def refresh(self) -> None:
        """Draw what came since the last time, if it is time to."""
        began = time.monotonic()
        if self._text and began >= self._due:
            self._draw(is_end=False)
            ended = time.monotonic()
            self._due = ended + max(1 / DRAWS_PER_S, (ended - began) / COST_MAX)

    def end(self) -> None:
        """Draw the remaining text. The next `feed` begins a new text."""
        self._draw(is_end=True)
        self._reset()

    def _draw(self, is_end: bool) -> None:
        text = self._text if is_end else _UNCERTAIN.sub("", self._text)
        lines, window = text.split("\n"), shutil.get_terminal_size()
        starts = [token.map[0] for token in PARSER.parse(clean(text))
                  if token.level == 0 and token.map]
        if self._rows and window.columns < self._width:
            self._rows, self._gap = [], "\n"  # where they are now depends on the terminal
        changes = ""
        for start, end in pairwise([*starts, len(lines)]):
            is_done = is_end or end < len(lines)
            self._width = min(self._width or window.columns, window.columns)
            changes += self._change(rows("\n".join(lines[start:end]), self._width), window, is_done)
            if is_done and self._rows:
                self._rows, self._width, self._gap = [], 0, "\n\n"
        self._text = self._text.split("\n", starts[-1])[-1] if starts else self._text
        if changes:
            self._write(changes)

    def _change(self, wanted: list[str], window: os.terminal_size, is_done: bool) -> str:
        """What turns the rows of the block that are on the screen into the wanted ones."""
        drawn = self._rows
        if drawn == wanted:
            return ""
        far = len(drawn) - window.lines  # rows that have left the window keep their colours
        same = sum(1 for _ in takewhile(
            lambda n: drawn[n] == wanted[n] or (n < far and _plain(drawn[n]) == _plain(wanted[n])),
            range(min(len(drawn), len(wanted))),
        ))
        same = min(same, max(0, len(wanted) - 1))  # the cursor stays in the last row
        text = "\n".join(wanted[same:])
        up = sum(max(1, len(chop_cells(_plain(row), window.columns))) for row in drawn[same:]) - 1
        if up >= window.lines and not is_done:
            return ""
        self._rows = wanted
        if not drawn:
            gap, self._gap = self._gap, ""
            return gap + text
        if same == len(drawn) or up >= window.lines:  # the latter are drawn once more, below
            return "\n" + text
        if same == len(drawn) - 1 and text.startswith(drawn[-1]):
            return text[len(drawn[-1]) :]
        return f"\r\x1b[{up}A\x1b[J{text}" if up else f"\r\x1b[K{text}"


def rows(block: str, columns: int) -> list[str]:
    """The rows of a block, without the empty ones around it. A block of which Markdown would hide
    something (a link's title, a cell without a column, what is nested too deeply) stays text."""
    console = Console(width=columns, force_terminal=True, theme=STYLES, highlight=False)
    text = clean(block)
    drawn = _rows(console, _Block(text))
    is_whole = drawn and _words(text) <= _words(*map(_plain, drawn))
    return drawn if is_whole else _rows(console, Text(text, overflow="fold"))


def _words(*texts: str) -> Counter[str]:
    return Counter(filter(str.isalnum, chain(*texts)))


def _rows(console: Console, block: RenderableType) -> list[str]:
    drawn = [_row(line) for line in Segment.split_lines(console.render(block))]
    shown = [number for number, row in enumerate(drawn) if _plain(row).strip()]
    return drawn[shown[0] : shown[-1] + 1] if shown else []


def _row(line: list[Segment]) -> str:
    styled = (one.style.render(clean(one.text), color_system=ColorSystem.STANDARD)
              if one.style else clean(one.text) for one in line)
    return _BLANK_END.sub("", "".join(styled))


def _plain(row: str) -> str:
    return _CODES.sub("", row)


# -- what is drawn otherwise than rich would -------------------------------------------------------


class _Heading(elements.Heading):
    LEVEL_ALIGN = {}


class _Code(elements.CodeBlock):
    """Code without a frame. The terminal wraps its long lines, so that they can be copied whole;
    rich wraps them where something stands before them."""

    @classmethod
    def create(cls, markdown: elements.Markdown, token: Token) -> "_Code":
        return cls(token.info.strip(), "ansi_dark")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.lexer_name:
            yield Text(self.lexer_name, "dim")
        lexer = self.lexer_name.partition(" ")[0]
        code = Syntax("", lexer, theme=self.theme).highlight(str(self.text))
        code.rstrip()
        if options.max_width == console.width:
            code.no_wrap, code.overflow = True, "ignore"
        yield code


class _Item(elements.ListItem):
    """A list item whose number is followed by the mark of the Markdown text: `1.` or `1)`."""

    mark = "."

    @classmethod
    def create(cls, markdown: elements.Markdown, token: Token) -> "_Item":
        item = cls()
        item.mark = token.markup
        return item

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        # Room for one digit more is room for the mark.
        drawn = super().render_number(console, options, number, last_number * 10)
        for place, segment in enumerate(drawn):
            if place == 0 and isinstance(segment, Segment):
                segment = Segment(f"{number}{self.mark} ".rjust(len(segment.text)), segment.style)
            yield segment


class _Table(elements.TableElement):
    """A table whose words are broken rather than cut in a narrow window."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"
            yield table


class _Block(elements.Markdown):
    elements = {
        **elements.Markdown.elements, "heading_open": _Heading, "fence": _Code,
        "code_block": _Code, "table_open": _Table, "list_item_open": _Item,
    }

    def __init__(self, block: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = PARSER.parse(block)


def _keep_line_ends(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            child.type = child.type.replace("softbreak", "hardbreak")


def _product(state: StateInline, silent: bool) -> bool:
    """The asterisks of 2*3*4 are no emphasis."""
    is_one = _BETWEEN_WORDS.match(state.src, state.pos) is not None
    state.pending += "*" * is_one
    state.pos += is_one
    return is_one


class _Parser(MarkdownIt):
    def normalizeLink(self, url: str) -> str:
        """The address as it was written."""
        return url


PARSER = _Parser("commonmark").enable(["table", "strikethrough"]).disable(UNUSED)
PARSER.core.ruler.push("line_ends", _keep_line_ends)
PARSER.inline.ruler.before("emphasis", "product", _product)
