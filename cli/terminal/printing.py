"""Prints lines, tables and JSON, with control characters made visible, so that content from the
log cannot control the terminal.

Every text from the log passes through `clean`: escape sequences, other control characters and
changes of writing direction become visible text.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

import click

from ...schemas.canonical import compact
from .clean_text import clean, escaped
from .log_lines import log_note_as_json

LINE_CHARS_MAX = 160
"""The length of a brief line: a call's result or arguments are cut to stay on one line."""


def has_styles(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and NO_COLOR is not set."""
    is_dumb = os.environ.get("TERM", "") == "dumb"
    return stream.isatty() and not is_dumb and not os.environ.get("NO_COLOR")


def brief(text: str, chars: int = LINE_CHARS_MAX) -> str:
    """The text as one clean line of at most `chars` characters."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= chars else line[: chars - 3] + "..."


_WORDS = re.compile(r"\n|[^\S\n]+|`[^`\n]+`\S*|\S+")


def wrapped(text: str, columns: int, column: int = 0) -> tuple[str, int]:
    """The text with a line end before each word that would cross the edge of the window, and the
    column after it. `column`: where the text begins. A command in backticks is one word.
    """
    parts = []
    for part in _WORDS.findall(text):
        if part == "\n":
            column = 0
        else:
            if not part.isspace() and column and column + len(part) > columns >= len(part):
                parts.append("\n")
                column = 0
            column = (column + len(part) - 1) % columns + 1
        parts.append(part)
    return "".join(parts), column


def json_line(data: Any) -> str:
    """The data as one line of JSON. Characters that control a terminal are escaped."""
    return escaped(compact(data))


def emit(data: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(json_line(data))


def pretty(data: Any) -> str:
    """The data as indented JSON for people."""
    return escaped(json.dumps(data, ensure_ascii=False, indent=2))


def line(text: str) -> None:
    """Print a clean line on stdout."""
    click.echo(clean(text))


def note(text: str) -> None:
    """Print a clean line that is not data, on stderr."""
    if not log_note_as_json(clean(text)):
        click.echo(clean(text), err=True)


def write(text: str, to: TextIO | None = None) -> None:
    """Print clean text without a newline, and flush it."""
    stream = to or sys.stdout
    stream.write(clean(text))
    stream.flush()


RESET = "\x1b[0m"


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    styles: Callable[[int, str], str] = lambda _row, _column: "",
) -> None:
    """Print rows as aligned columns under their names, or nothing if there are no rows.

    styles: the escape sequence for a cell, by the row's number from 0 and the column.
    """
    bounds = [60] * (len(columns) - 1) + [LINE_CHARS_MAX]
    cells = [
        [brief(_cell(row.get(name)), most) for name, most in zip(columns, bounds, strict=True)]
        for row in rows
    ]
    if not cells:
        return
    heads = [name.replace("_", " ") for name in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for number, row in enumerate((heads, *cells), -1):
        padded = [text.ljust(w) for text, w in zip(row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        codes = [styles(number, name) if number >= 0 else "" for name in columns]
        shown = [f"{code}{text}{RESET}" if code else text
                 for code, text in zip(codes, padded, strict=True)]
        click.echo("  ".join(shown).rstrip())


def _cell(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)


def when(at_ms: int) -> str:
    """A time in Unix ms as local date and time."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
