"""Detects tool results that repeat their arguments or a recent text.

Pure functions on text.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...schemas.events.parts import Body
from ..fold.projections.transcript import Line
from ..tools.log_text import NUMBERED

ECHO_SHARE = 0.5  # a result that repeats more than this share is a finding; less is a quotation
ECHO_CHARS_MIN = 30  # a shorter line may be repeated by chance
PIECE_CHARS = 100  # longer than the common part of similarly generated lines
RULE_CHARS = 3  # a piece with so few distinct characters is a rule of dashes, spaces or zeros
ECHO_LINES_BACK = 40  # how many transcript lines before a result are compared with it


class EarlierTexts:
    """The texts of transcript lines, each split only once for all comparisons."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._texts: dict[int, frozenset[str]] = {}

    def before(self, place: int) -> Iterator[tuple[Line, frozenset[str]]]:
        """The lines shortly before `place`, each with its set of texts."""
        first = max(0, place - ECHO_LINES_BACK)
        self._texts = {n: texts for n, texts in self._texts.items() if n >= first}
        for number in range(first, place):
            line = self._lines[number]
            if line.body is not None:
                if number not in self._texts:
                    self._texts[number] = frozenset(_lines(_inline(line.body)))
                yield line, self._texts[number]


class Echo(NamedTuple):
    """A repetition. percent: the repeated share of the result; line: the transcript line that is
    repeated, None for the call's own arguments."""

    percent: int
    line: Line | None


def echo(
    text: str, args: Body | None, before: Iterable[tuple[Line, frozenset[str]]]
) -> Echo | None:
    """Detects a result most of which repeats the call's arguments or an earlier line."""
    lines, own = list(_lines(text)), _inline(args)
    total = sum(map(len, lines))
    for repeated, whole in (
        (_share(lines, frozenset(_lines(own))), total),
        (_copied(text, own), len(text)),
    ):
        if repeated > ECHO_SHARE * whole:
            return Echo(100 * repeated // whole, None)
    for line, earlier in before:
        repeated = _share(lines, earlier)
        if repeated > ECHO_SHARE * total:
            return Echo(100 * repeated // total, line)
    return None


def _share(lines: Iterable[str], earlier: frozenset[str]) -> int:
    """The total number of characters of the lines that are also in `earlier`."""
    return sum(len(line) for line in lines if line in earlier)


def _copied(text: str, args: str) -> int:
    """The number of characters of a text that were copied from the arguments, verbatim or as JSON.

    The arguments are split into consecutive pieces, which may match anywhere in the text. This also
    finds cut texts and single long lines, in linear time.
    """
    known = {piece for leaf in leaves(args) for form in _forms(leaf) for piece in _pieces(form)}
    place, found, last = 0, 0, len(text) - PIECE_CHARS if known else -1
    while place <= last:
        if text[place : place + PIECE_CHARS] in known:
            found += PIECE_CHARS
            place += PIECE_CHARS
        else:
            place += 1
    return found


def _forms(leaf: str) -> set[str]:
    return {leaf, *(json.dumps(leaf, ensure_ascii=plain)[1:-1] for plain in (True, False))}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text) - PIECE_CHARS + 1, PIECE_CHARS):
        piece = text[start : start + PIECE_CHARS]
        if len(set(piece)) > RULE_CHARS:
            yield piece


def _inline(body: Body | None) -> str:
    return "" if body is None else (body.inline or b"").decode("utf-8", "replace")


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, or of the texts in a JSON value, that are long enough to compare."""
    for leaf in leaves(text) or (text,):
        for line in leaf.splitlines():
            line = NUMBERED.sub("", line, count=1).strip()
            if len(line) >= ECHO_CHARS_MIN:
                yield line


def leaves(text: str) -> list[str]:
    """The texts in a JSON object or array; [] for anything else."""
    if text[:1] not in ("{", "["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    todo = [value]
    while todo:
        match todo.pop():
            case str() as leaf:
                found.append(leaf)
            case dict() as members:
                todo.extend(members.values())
            case list() as items:
                todo.extend(items)
    return found


__all__ = ["ECHO_LINES_BACK", "ECHO_SHARE", "EarlierTexts", "Echo", "echo", "leaves"]
