"""Styles streaming Markdown for a terminal: each piece as soon as its meaning is certain.

A chat cannot wait for the end of an answer, so this is not a full parser. It knows headings,
emphasis, code, lists, quotes, rules, links and tables, line by line, and prints everything else
unchanged. A link shows its address, so that people see what they would open. All text passes
through `clean`.
"""

import re
import unicodedata
from collections.abc import Iterator

from ...client.visible import settled
from .clean_text import clean

RESET = "\x1b[0m"
BOLD, DIM, ITALIC, UNDERLINE, STRIKE, CODE = (f"\x1b[{n}m" for n in (1, 2, 3, 4, 9, 36))

SPAN_MAX = 200
"""The longest emphasis in characters. So much text after an unclosed marker is held back."""

LINK_MAX = 5 * SPAN_MAX + 5
"""The longest link with its label, in characters."""

RULE_CHARS = 40

_SPAN = re.compile(
    rf"""
    \\(?P<escaped>[!-/:-@\[-`{{-~])
    | (?P<ticks>`+)(?!`)(?P<code>.{{1,{SPAN_MAX}}}?)(?<!`)(?P=ticks)(?!`)
    | !?\[(?P<label>[^\]\n]{{1,{SPAN_MAX}}})\]\((?P<url>[^\s)]{{1,{4 * SPAN_MAX}}})\)
    | (?P<strong>\*\*|(?<!\w)__)(?=\S)(?P<bold>.{{1,{SPAN_MAX}}}?)(?<=\S)(?P=strong)(?![\w_])
    | (?<![\w*])\*(?=[^\s*])(?P<star>[^*\n]{{1,{SPAN_MAX}}}?)(?<=\S)\*(?![\w*])
    | (?<![\w_])_(?=[^\s_])(?P<under>[^\n]{{1,{SPAN_MAX}}}?)(?<=[^\s_])_(?![\w_])
    | ~~(?=\S)(?P<strike>[^~\n]{{1,{SPAN_MAX}}}?)~~
    | (?P<literal>
        (?<=\w)_(?=\w) | (?:\*{{1,2}}|[~`!_])(?=\s) | \[[^\]\n]{{0,{SPAN_MAX}}}\](?=[^(])
        | !(?=[^\[]) | ~(?=[^~])
      )
    """,
    re.VERBOSE,
)
_OPENER = re.compile(r"[`*_~\[!\\]")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?$")
_ITEM = re.compile(r"^(\s*)[-*+]\s+(.*)$")
_NUMBERED = re.compile(r"^(\s*\d{1,4}[.)]\s+)(.*)$")
_QUOTE = re.compile(r"^ {0,3}((?:>\s?)+)(.*)$")
_RULE = re.compile(r"^ {0,3}([-*_])(?:\s*\1){2,}\s*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+.#-]*)[^`]*$")
_ALIGNMENT = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
# The start of a line whose kind is not certain yet.
_UNCERTAIN = re.compile(
    r"^\s*(#{0,6}|[-*+_]|\d{0,4}[.)]?|(>\s?)*|`{0,3}|~{0,3}|([-*_]\s*){1,})\s*$"
)


class Markdown:
    """`feed` returns the text that can be printed so far, `end` the remaining text.

    Each piece resets its styles.
    """

    def __init__(self) -> None:
        self._pending = ""  # text of the current line that is not printed yet
        self._style: str | None = None  # style of the current line, when its kind is known
        self._fence = ""
        self._rows: list[str] = []

    def feed(self, text: str) -> str:
        """Add some Markdown, and return the text that can be printed now."""
        self._pending += text.replace("\r\n", "\n")
        *lines, self._pending = self._pending.split("\n")
        done = "".join(self._line(line) for line in lines)
        return done + self._some()

    def end(self) -> str:
        """The remaining text. The next `feed` begins a new text."""
        has_begun = self._style is not None
        rest = self._line(self._pending).removesuffix("\n") if self._pending or has_begun else ""
        rest += self._table().removesuffix("\n")
        self._pending, self._style, self._fence, self._rows = "", None, "", []
        return rest

    # -- lines -------------------------------------------------------------------------------------

    def _line(self, line: str) -> str:
        """Style a complete line, or the remaining part of a line that was printed in part."""
        if self._style is not None:
            style, self._style = self._style, None
            return self._spans(line, style) + "\n"
        if self._fence:
            return self._code(line)
        if line.lstrip().startswith("|"):
            self._rows.append(line)
            return ""
        before = self._table()
        fence = _FENCE.match(line)
        if fence is not None:
            self._fence = fence[1]
            label = fence[2]
            return before + (f"{DIM}{clean(label)}{RESET}\n" if label else "")
        prefix, rest, style = _kind(line)
        return before + prefix + self._spans(rest, style) + "\n"

    def _code(self, line: str) -> str:
        closing = line.strip()
        if closing and closing == closing[0] * len(closing) and closing.startswith(self._fence):
            self._fence = ""
            return ""
        return f"{CODE}{clean(line)}{RESET}\n" if line else "\n"

    def _some(self) -> str:
        """The part of the current line that can be printed."""
        line = self._pending
        if self._fence:
            return ""  # a line of code is short, and may close the block
        prefix = ""
        if self._style is None:
            if _UNCERTAIN.match(line) or line.lstrip().startswith("|"):
                return ""
            if _FENCE.match(line):
                return ""
            prefix, line, self._style = _kind(line)
            prefix = self._table() + prefix
        sure = settled(line[: _certain(line)])
        self._pending = line[sure:]
        return prefix + self._spans(line[:sure], self._style)

    # -- spans -------------------------------------------------------------------------------------

    def _spans(self, text: str, style: str) -> str:
        return "".join(_styled(part, codes) for part, codes in spans(text, style))

    # -- tables ------------------------------------------------------------------------------------

    def _table(self) -> str:
        """The rows that were held back, aligned if they are a table."""
        rows, self._rows = self._rows, []
        if len(rows) < 2 or not _ALIGNMENT.match(rows[1]):
            return "".join(self._spans(row, "") + "\n" for row in rows)
        cells = [_cells(row) for row in (rows[0], *rows[2:])]
        count = max(map(len, cells))
        shown = [[list(spans(cell, "")) for cell in row + [""] * (count - len(row))]
                 for row in cells]
        widths = [max(_width(row[n]) for row in shown) for n in range(count)]
        lines = []
        for number, row in enumerate(shown):
            style = BOLD if number == 0 else ""
            parts = [
                "".join(_styled(part, style + codes) for part, codes in cell)
                + " " * (width - _width(cell))
                for cell, width in zip(row, widths, strict=True)
            ]
            lines.append("  ".join(parts).rstrip() + "\n")
        lines.insert(1, f"{DIM}{'─' * (sum(widths) + 2 * (count - 1))}{RESET}\n")
        return "".join(lines)


def _kind(line: str) -> tuple[str, str, str]:
    """The prefix of a line, its text, and the style of the text."""
    if found := _HEADING.match(line):
        return "", found[2], BOLD + UNDERLINE if len(found[1]) == 1 else BOLD
    if _RULE.match(line):
        return f"{DIM}{'─' * RULE_CHARS}{RESET}", "", ""
    if found := _ITEM.match(line):
        return f"{found[1]}• ", found[2], ""
    if found := _NUMBERED.match(line):
        return found[1], found[2], ""
    if found := _QUOTE.match(line):
        return f"{DIM}{'│ ' * found[1].count('>')}{RESET}", found[2], ITALIC
    return "", line, ""


def spans(text: str, style: str) -> Iterator[tuple[str, str]]:
    """The text and the style codes of each part of a text."""
    at = 0
    for found in _SPAN.finditer(text):
        if found.start() > at:
            yield text[at : found.start()], style
        at = found.end()
        match found.lastgroup:
            case "escaped":
                yield found["escaped"], style
            case "code":
                yield found["code"].strip() or found["code"], style + CODE
            case "url":
                yield from spans(found["label"], style + UNDERLINE)
                if found["label"] != found["url"]:
                    yield f" ({found['url']})", style + DIM
            case "bold":
                yield from spans(found["bold"], style + BOLD)
            case "star":
                yield from spans(found["star"], style + ITALIC)
            case "under":
                yield from spans(found["under"], style + ITALIC)
            case "strike":
                yield from spans(found["strike"], style + STRIKE)
            case _:
                yield found[0], style
    if at < len(text):
        yield text[at:], style


def _certain(line: str) -> int:
    """The number of characters of an unfinished line whose style later characters cannot change."""
    at = 0
    for found in _SPAN.finditer(line):
        is_last = found.end() == len(line)  # the next character may change it
        opener = _opener(line, at, found.start())
        if opener is not None or is_last:
            return found.start() if opener is None else opener
        at = found.end()
    opener = _opener(line, at, len(line))
    return len(line) if opener is None else opener


def _opener(line: str, start: int, end: int) -> int | None:
    """The first place from `start` to `end` that may begin a span whose end has not come yet."""
    for opener in _OPENER.finditer(line, start, end):
        if len(line) - opener.start() <= LINK_MAX:
            return opener.start()
    return None


def _styled(text: str, codes: str) -> str:
    shown = clean(text)
    return f"{codes}{shown}{RESET}" if codes and shown else shown


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _width(cell: list[tuple[str, str]]) -> int:
    """The columns that a cell takes: wide characters take two, combining characters none."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for part, _ in cell
        for char in clean(part)
    )
