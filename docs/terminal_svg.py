"""Draws recorded terminals as one self-contained SVG, animated by CSS.

A `Screen` interprets the output of a program; `svg` draws each change of several screens at its
time. Viewers without animations, or with prefers-reduced-motion, show the last moment.

`Screen` raises ValueError for an unknown control sequence, so the picture never differs from the
terminal.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 20, 14
PADDING, TITLE_HEIGHT, GAP = 14, 30, 12
STEP_S = 0.05  # times are rounded to this, so close changes appear together
HOLD_S = 5.0  # how long the last moment stays before the animation restarts
COLORS = {"": "#c9d1d9", "dim": "#8b949e", "bold": "#ffffff"}
_STYLES = {"": "", "0": "", "0;39": "", "1": "bold", "2": "dim"}
_TOKEN = re.compile(r"\x1b\[(?P<args>[?0-9;]*)(?P<code>[A-Za-z])|\x1b[=>]|[^\x1b]")


class Cell(NamedTuple):
    """A character and its style: '', 'dim' or 'bold'."""

    text: str
    style: str


Row = tuple[Cell, ...]


class Screen:
    """The visible part of a terminal."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.height = columns, rows
        self._rows: list[list[Cell]] = [[] for _ in range(rows)]
        self._row = self._column = 0
        self._style = ""

    def feed(self, text: str) -> None:
        """Interpret the next output of the program. Raises ValueError for what cannot be drawn."""
        for token in _TOKEN.finditer(text):
            match token[0]:
                case "\r":
                    self._column = 0
                case "\n":
                    self._line_feed()
                case "\b":
                    self._column = max(0, self._column - 1)
                case "\a":
                    pass
                case sequence if sequence.startswith("\x1b"):
                    self._control(token["args"], token["code"], sequence)
                case character if character.isprintable():
                    self._put(character)
                case other:
                    raise ValueError(f"this control character cannot be drawn: {other!r}")

    def _put(self, character: str) -> None:
        if self._column == self.columns:
            self._column = 0
            self._line_feed()
        row = self._rows[self._row]
        row.extend([Cell(" ", "")] * (self._column + 1 - len(row)))
        row[self._column] = Cell(character, self._style)
        self._column += 1

    def _line_feed(self) -> None:
        self._row += 1
        if self._row == self.height:
            self._rows = [*self._rows[1:], []]
            self._row -= 1

    def _control(self, args: str | None, code: str | None, sequence: str) -> None:
        if code == "m" and args in _STYLES:
            self._style = _STYLES[args]
        elif code == "K" and args in ("", "0"):
            del self._rows[self._row][self._column :]
        elif code == "J" and args in ("", "0"):
            del self._rows[self._row][self._column :]
            self._rows[self._row + 1 :] = [[] for _ in self._rows[self._row + 1 :]]
        elif code == "A":
            self._row = max(0, self._row - int(args or 1))
        elif code == "C":
            self._column += int(args or 1)
        elif code == "D":
            self._column = max(0, self._column - int(args or 1))
        elif code is not None and not (code in "hl" and (args or "").startswith("?")):
            raise ValueError(f"this control sequence cannot be drawn: {sequence!r}")

    def rows(self) -> tuple[Row, ...]:
        """The present rows with styles."""
        return tuple(tuple(row) for row in self._rows)

    def text(self) -> str:
        """The present text without styles."""
        return "\n".join("".join(cell.text for cell in row).rstrip() for row in self._rows)


class Recording(NamedTuple):
    """The screens of one terminal. `moments` has (seconds, rows) after each change, in order."""

    title: str
    columns: int
    rows: int
    moments: Sequence[tuple[float, tuple[Row, ...]]]


class Piece(NamedTuple):
    """Cells that are visible from `since` to `until` (None: to the end)."""

    row: int
    column: int
    cells: Row
    since: float
    until: float | None


def pieces(moments: Sequence[tuple[float, tuple[Row, ...]]]) -> list[Piece]:
    """The changes of a screen as pieces.

    Text appended to a row is one piece; a changed row is redrawn.
    """
    found: list[Piece] = []
    for number in range(len(moments[0][1])):
        shown: Row = ()
        for at, rows in moments:
            row = rows[number]
            if row == shown:
                continue
            unchanged = len(shown) if row[: len(shown)] == shown else 0
            if not unchanged:
                found = [
                    piece._replace(until=at)
                    if piece.row == number and piece.until is None else piece
                    for piece in found
                ]
            if row[unchanged:]:
                found.append(Piece(number, unchanged, row[unchanged:], at, None))
            shown = row
    return [piece for piece in found if piece.until is None or piece.until > piece.since]


def shortened(
    moments: Sequence[tuple[float, tuple[Row, ...]]], times: Sequence[float], pause_s: float
) -> list[tuple[float, tuple[Row, ...]]]:
    """The moments of one screen, with every pause of all screens cut to `pause_s`.

    times: the times of the changes on all screens, in order.
    """
    new = {times[0]: 0.0}
    for before, after in zip(times, times[1:], strict=False):
        new[after] = new[before] + min(after - before, pause_s)
    return [(round(new[at] / STEP_S) * STEP_S, rows) for at, rows in moments]


def svg(recordings: Sequence[Recording], description: str, comment: str) -> str:
    """The recordings as one SVG, one below the other, played in a loop.

    `comment`: the text of an XML comment.
    """
    ends = [moment[0] for recording in recordings for moment in recording.moments]
    length = max(ends) + HOLD_S
    width = max(r.columns for r in recordings) * CELL_WIDTH + 2 * PADDING
    spans: dict[tuple[float, float | None], str] = {}
    body: list[str] = []
    top = 0.0
    for recording in recordings:
        height = TITLE_HEIGHT + recording.rows * CELL_HEIGHT + PADDING
        body.append(f'<g transform="translate(0 {top:g})">')
        body.append(f'<rect class="w" width="{width:g}" height="{height:g}" rx="8"/>')
        body.append(f'<text class="t" x="{PADDING}" y="20">{escape(recording.title)}</text>')
        for piece in pieces(recording.moments):
            body += _drawn(piece, spans.setdefault((piece.since, piece.until), f"k{len(spans)}"))
        body.append("</g>")
        top += height + GAP
    height = top - GAP
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">',
        f"<!-- {comment} -->",
        f"<title>{escape(description)}</title>",
        "<style>",
        f"text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        f"fill:{COLORS['']};white-space:pre}}",
        f".w{{fill:#0d1117;stroke:#30363d}} .t{{fill:{COLORS['dim']}}}",
        f".dim{{fill:{COLORS['dim']}}} .bold{{fill:{COLORS['bold']};font-weight:bold}}",
        *(f".{name}{{visibility:hidden}}" for (_, until), name in spans.items() if until),
        "@media (prefers-reduced-motion:no-preference){",
        *_animations(spans, length),
        "}",
        "</style>",
        *body,
        "</svg>",
        "",
    ])


def _drawn(piece: Piece, name: str) -> Iterator[str]:
    column = piece.column
    for style, cells in groupby(piece.cells, key=lambda cell: cell.style):
        text = "".join(cell.text for cell in cells)
        blanks = len(text) - len(text.lstrip(" "))
        shown = text.strip(" ")
        if shown:
            x = PADDING + (column + blanks) * CELL_WIDTH
            y = TITLE_HEIGHT + piece.row * CELL_HEIGHT + FONT_SIZE
            yield (
                f'<text class="{" ".join(filter(None, (name, style)))}" x="{x:.1f}" y="{y:g}" '
                f'textLength="{len(shown) * CELL_WIDTH:.1f}">{escape(shown)}</text>'
            )
        column += len(text)


def _animations(spans: dict[tuple[float, float | None], str], length: float) -> Iterator[str]:
    for (since, until), name in spans.items():
        if since == 0 and until is None:
            continue
        frames = "0%{visibility:hidden}" * (since > 0)
        frames += f"{100 * since / length:.2f}%{{visibility:visible}}"
        if until is not None:
            frames += f"{100 * until / length:.2f}%{{visibility:hidden}}"
        yield f"@keyframes {name}{{{frames}}}"
        yield f".{name}{{animation:{name} {length:g}s step-end infinite}}"
