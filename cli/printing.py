"""Prints lines, tables, JSON and events; content from the log cannot control the terminal.

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

from ..schemas.canonical import compact
from .log_lines import log_note_as_json

# C0 except newline and tab, DEL, C1 (0x9b alone starts an escape sequence), the line and paragraph
# separators, and what changes the writing direction: a printed command must be the real one.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")
LINE_CHARS_MAX = 160
"""The length of a brief line: a call's result or arguments are cut to stay on one line."""


def clean(text: str) -> str:
    """The text with everything that could control a terminal made visible, as in `\\x1b`."""
    return _SURROGATES.sub("\ufffd", _UNSAFE.sub(_visible, text.replace("\r\n", "\n")))


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


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
    return _escaped(compact(data))


def _escaped(text: str) -> str:
    """Equivalent JSON without characters that control a terminal."""
    text = _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return _SURROGATES.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def emit(data: Any) -> None:
    """One JSON value on a line of its own."""
    click.echo(json_line(data))


def pretty(data: Any) -> str:
    """Indented JSON for people."""
    return _escaped(json.dumps(data, ensure_ascii=False, indent=2))


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
