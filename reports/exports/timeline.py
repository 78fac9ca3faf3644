"""Draws the timeline of a session: people, model attempts, tools and background work.

The drawing is inline SVG without script; the page defines the colours. Long pauses are replaced by
a labelled gap, so that short marks stay visible. Times are the broker's and only for display; the
report follows the order of the log.
"""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from ...client.visible import clean as visible
from ...processors.fold.calls import IN_DOUBT
from ...processors.fold.ruling import Verdict
from .facts import BACKGROUND, SessionFacts

WIDTH, LEFT, RIGHT = 1080, 96, 16
GAP_MS = 30_000  # longer pauses become gaps
GAP_PX = 34
LANE_PX, ROW_PX, TOP_PX = 46, 22, 34
ROWS_MAX = 5  # rows of a lane for simultaneous marks; further marks overlap
MARKS_MAX = 4_000  # marks of a lane; more would be invisible and take megabytes
LANES = ("people", "model", "tools", "background")
_COLOURS = {
    "complete": "var(--model)", "ok": "var(--tool)", "failed": "var(--bad)", "lost": "var(--bad)",
    "doubt": "var(--warn)", "stopped": "var(--warn)", "error": "var(--bad)",
    "background": "var(--back)", "person": "var(--person)", "refused": "var(--bad)",
}


class Mark(NamedTuple):
    """A mark in a lane, with its begin and end (Unix ms). It is a point if both are equal."""

    lane: str
    begin: int
    end: int
    kind: str
    title: str


def marks_of(facts: SessionFacts) -> list[Mark]:
    """Every mark in the drawing."""
    last = facts.last_at
    found = []
    for entry, ruling in facts.people:
        event = entry.event
        name = type(event).__name__
        who = getattr(event, "by_user", "") or getattr(event, "user_id", "")
        kind = "person" if ruling.verdict != Verdict.REFUSED else "refused"
        verdict = "" if ruling.accepted else f", {ruling.verdict}: {ruling.code}"
        found.append(Mark("people", entry.at, entry.at, kind, f"{who}: {name}{verdict}"))
    for attempt in facts.attempts.values():
        is_background = attempt.kind == BACKGROUND
        end = attempt.end.at if attempt.end is not None else last
        outcome = attempt.outcome or "lost"
        kind = BACKGROUND if is_background and outcome == "complete" else outcome
        place = ".".join(str(part) for part in attempt.key)
        lane = "background" if is_background else "model"
        found.append(Mark(lane, attempt.claim.at, end, kind, f"{place} {outcome}"))
    for key, known in facts.calls.items():
        call = known.call
        for number, claim in enumerate(known.starts, 1):
            over = known.starts[number].at if number < len(known.starts) else None
            end = over or (known.ended.at if known.ended is not None else last)
            doubt = call.status in IN_DOUBT or bool(known.doubts)
            kind = "doubt" if doubt else call.outcome or "ok"
            title = f"{key} {call.name}, attempt {number}: {call.outcome or call.status}"
            found.append(Mark("tools", claim.at, end, kind, title))
    return found


class Axis:
    """Maps times to x coordinates, with long pauses as gaps. `gaps`: the (x, ms) of each gap."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        moments = sorted({m.begin for m in marks} | {m.end for m in marks}) or [0]
        pieces, start = [], moments[0]
        busy = sorted((m.begin, m.end) for m in marks)
        covered = moments[0]
        for begin, end in busy:
            if begin - covered > GAP_MS:
                pieces.append((start, covered))
                start = begin
            covered = max(covered, end)
        pieces.append((start, covered))
        lasting = sum(max(end - begin, 1) for begin, end in pieces)
        gap = min(GAP_PX, (WIDTH - LEFT - RIGHT) / 2 / max(len(pieces), 1))
        room = WIDTH - LEFT - RIGHT - gap * (len(pieces) - 1)
        self.pieces: list[tuple[int, int, float, float]] = []
        self.gaps: list[tuple[float, int]] = []
        x = float(LEFT)
        for number, (begin, end) in enumerate(pieces):
            share = room * max(end - begin, 1) / lasting
            self.pieces.append((begin, end, x, x + share))
            x += share
            if number + 1 < len(pieces):
                self.gaps.append((x + gap / 2, pieces[number + 1][0] - end))
                x += gap

    def x(self, at: int) -> float:
        """The x coordinate of a time."""
        for begin, end, left, right in self.pieces:
            if at <= end:
                part = (max(at, begin) - begin) / max(end - begin, 1)
                return left + part * (right - left)
        return self.pieces[-1][3]


def lasting(ms: int) -> str:
    """A duration as text for people."""
    seconds = ms / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 or not ms else f"{ms} ms"


def svg(facts: SessionFacts) -> str:
    """The drawing as SVG."""
    marks = marks_of(facts)
    axis = Axis(marks)
    lanes = [(lane, _rows([m for m in marks if m.lane == lane], axis)) for lane in LANES]
    lanes = [(lane, rows) for lane, rows in lanes if rows]
    tall = [LANE_PX + ROW_PX * (max(row for row, _ in rows)) for _, rows in lanes]
    height = TOP_PX + sum(tall) + 8
    out = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Timeline of the session" font-size="12" font-family="inherit">',
        "<title>Timeline of the session</title>",
    ]
    out += _bands(facts, axis, height)
    top = TOP_PX
    for (lane, rows), high in zip(lanes, tall, strict=True):
        middle = top + LANE_PX / 2
        out.append(
            f'<text x="0" y="{middle + 4:.0f}" fill="var(--soft)">{escape(lane)}</text>'
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle:.0f}" y2="{middle:.0f}" '
            'stroke="var(--line)"/>'
        )
        out += [_draw(mark, axis, middle + ROW_PX * row) for row, mark in rows[:MARKS_MAX]]
        top += high
    for x, ms in axis.gaps:
        text = escape(lasting(ms))
        out.append(
            f'<text x="{x:.1f}" y="{height - 1}" fill="var(--soft)" text-anchor="middle" '
            f'font-size="10">{text if len(axis.gaps) < 24 else ""}</text>'
            f'<path d="M{x - 3:.1f} {TOP_PX} v{height - TOP_PX - 14} M{x + 3:.1f} {TOP_PX} '
            f'v{height - TOP_PX - 14}" stroke="var(--line)" stroke-dasharray="2 3"/>'
        )
    return "".join((*out, "</svg>"))


def _rows(marks: list[Mark], axis: Axis) -> list[tuple[int, Mark]]:
    """Each mark of a lane with its row; marks at the same time are in different rows."""
    free: list[float] = []
    found = []
    for mark in sorted(marks, key=lambda mark: (mark.begin, mark.end)):
        left, right = axis.x(mark.begin), max(axis.x(mark.end), axis.x(mark.begin) + 3)
        row = next((n for n, until in enumerate(free) if until <= left), len(free))
        row = 0 if mark.lane == "people" else min(row, ROWS_MAX - 1)
        free[row : row + 1] = [right]
        found.append((row, mark))
    return found


def _bands(facts: SessionFacts, axis: Axis, height: int) -> list[str]:
    """The SVG of a band for each turn, from its first claim or message to its end."""
    spans: dict[int, tuple[int, int]] = {}
    for line in facts.views.transcript.lines.since(facts.inherited):
        if line.turn:
            begin, end = spans.get(line.turn, (line.at, line.at))
            spans[line.turn] = (min(begin, line.at), max(end, line.at))
    for attempt in facts.attempts.values():
        if attempt.kind != BACKGROUND and attempt.key[0] in spans:
            begin, end = spans[attempt.key[0]]
            spans[attempt.key[0]] = (min(begin, attempt.claim.at), max(end, attempt.claim.at))
    out = []
    labelled = 0.0
    for number, (turn, (begin, end)) in enumerate(sorted(spans.items())):
        left, right = axis.x(begin), max(axis.x(end), axis.x(begin) + 2)
        fill = "var(--band)" if number % 2 == 0 else "transparent"
        out.append(
            f'<rect x="{left:.1f}" y="{TOP_PX - 10}" width="{right - left:.1f}" '
            f'height="{height - TOP_PX - 4}" rx="5" fill="{fill}"/>'
        )
        if left >= labelled:
            out.append(f'<text x="{left + 2:.1f}" y="{TOP_PX - 16}" fill="var(--soft)" '
                       f'font-size="11">turn {turn}</text>')
            labelled = left + 52
    return out


def _draw(mark: Mark, axis: Axis, middle: float) -> str:
    colour = _COLOURS.get(mark.kind, "var(--back)")
    title = f"<title>{escape(visible(mark.title))}</title>"
    left = axis.x(mark.begin)
    if mark.lane == "people":
        return f'<circle cx="{left:.1f}" cy="{middle:.1f}" r="5" fill="{colour}">{title}</circle>'
    width = max(axis.x(mark.end) - left, 3)
    rest = ' stroke-dasharray="4 2" fill-opacity=".35"' if mark.kind in ("doubt", "lost") else ""
    return (
        f'<rect x="{left:.1f}" y="{middle - 9:.1f}" width="{width:.1f}" height="18" rx="4" '
        f'fill="{colour}" stroke="{colour}"{rest}>{title}</rect>'
    )

