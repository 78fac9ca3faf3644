"""Prints lines, tables, JSON and events; content from the log cannot control the terminal.

Every text from the log passes through `clean`: escape sequences, other control characters and
changes of writing direction become visible text.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

import click

from ..schemas.canonical import compact
from .clean_text import clean, escaped
from .log_lines import log_note_as_json

LINE_CHARS_MAX = 160
"""The length of a brief line: a call's result or arguments are cut to stay on one line."""


def has_styles(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal that can, unless NO_COLOR asks for none."""
    is_dumb = os.environ.get("TERM", "") == "dumb"
    return stream.isatty() and not is_dumb and not os.environ.get("NO_COLOR")


def brief(text: str, chars: int = LINE_CHARS_MAX) -> str:
    """The text as one clean line of at most `chars` characters."""
    line = clean(" ".join(text.split()))
    return line if len(line) <= chars else line[: chars - 3] + "..."


def json_line(data: Any) -> str:
    """One line of JSON; characters that control a terminal are escaped, as JSON strings allow."""
    return escaped(compact(data))


def emit(data: Any) -> None:
    """One JSON value on a line of its own."""
    click.echo(json_line(data))


def pretty(data: Any) -> str:
    """Indented JSON for people."""
    return escaped(json.dumps(data, ensure_ascii=False, indent=2))


def line(text: str) -> None:
    """A clean line on stdout."""
    click.echo(clean(text))


def note(text: str) -> None:
    """A clean line on stderr: everything that is not data."""
    if not log_note_as_json(clean(text)):
        click.echo(clean(text), err=True)


def write(text: str, to: TextIO | None = None) -> None:
    """Clean text without a newline, flushed."""
    stream = to or sys.stdout
    stream.write(clean(text))
    stream.flush()


RESET = "\x1b[0m"


def table(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    styles: Callable[[int, str], str] = lambda _row, _column: "",
) -> None:
    """Rows as aligned columns under their names; prints nothing for no rows.

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
    """Unix ms as local date and time."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
