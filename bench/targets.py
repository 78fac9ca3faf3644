"""The target values of a bench, whether figures meet them, and what prevents it.

A target is text such as "at most 1.5, aim 0.7": clauses separated by commas, for the ratio or, with
the word "ours", for our own figure. An aim has the direction of the clause before it. A failed aim
is printed, but the bench still meets its target.
"""

import re
from typing import NamedTuple

from foldlog.bench.measure import Ratio

LIMITS: dict[str, str] = {
    "message_to_request": "of 25 ms in a profile, the two ways through the log, with client and "
    "worker, took 10 to 14, deciding 4, beginning the call 3, its HTTP request 3; the hop is that "
    "of a bare client",
}
"""Of a bench whose target is not met: what stands in the way, and by how much."""

CLAUSE = re.compile(r"(ours )?(?:(at most|at least)|aim) ([0-9.]+)( \S+| \([^)]*\))?")


class Clause(NamedTuple):
    """One clause of a target, and whether the figure meets it."""

    text: str
    is_aim: bool
    is_met: bool


def clauses(row: Ratio) -> list[Clause]:
    """The clauses of a bench's target. Raises ValueError for a text that is no target."""
    found, direction, ours = [], "", ""
    for text in row.aim.split(", "):
        match = CLAUSE.fullmatch(text)
        if match is None or not (match[2] or direction):
            raise ValueError(f"{row.name}: {text!r} is no target, see bench/targets.py")
        if match[2]:
            ours, direction = match[1] or "", match[2]
        value, limit = row.ours if ours else row.ratio, float(match[3])
        is_met = value <= limit if direction == "at most" else value >= limit
        found.append(Clause(text, not match[2], is_met))
    return found


def with_verdicts(*rows: Ratio) -> str:
    """The target, with `met` or `not met` after each clause. Every row must meet it."""
    each = zip(*map(clauses, rows), strict=True)
    return ", ".join(
        f"{same[0].text}: {'met' if all(one.is_met for one in same) else '**not met**'}"
        for same in each
    )


def is_met(*rows: Ratio) -> bool:
    """Whether all figures meet every clause except the aims."""
    return all(clause.is_met for row in rows for clause in clauses(row) if not clause.is_aim)
