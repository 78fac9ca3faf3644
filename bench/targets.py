"""The target values of a bench, and whether a figure meets them.

A target is text such as "at most 1.5, aim 0.7": clauses separated by commas, for the ratio or, with
the word "ours", for our own figure. An aim has the direction of the clause before it. A failed aim
is printed, but the bench still meets its target.
"""

import re
from typing import NamedTuple

from foldlog.bench.measure import Ratio

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


def with_verdicts(row: Ratio) -> str:
    """The target, with `met` or `not met` after each clause."""
    return ", ".join(
        f"{clause.text}: {'met' if clause.is_met else '**not met**'}" for clause in clauses(row)
    )


def is_met(row: Ratio) -> bool:
    """Whether the figure meets every clause except the aims."""
    return all(clause.is_met for clause in clauses(row) if not clause.is_aim)
