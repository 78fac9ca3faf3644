"""Cuts snippets: 200 tokens of a text around the matches, never cut inside a word.

A search that returns whole documents would fill a context window with irrelevant text. The
tokenizer of the index determines which words match, so that `running` is marked for `run`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...schemas.tokens import estimate
from .formula import TRIGRAM_SIMILARITY_MIN
from .full_text import Stems
from .trigrams import similarity, trigrams
from .words import UNSPACED, WORDS, Query, forms_of, is_unspaced

SNIPPET_TOKENS = 200
WORD_CHARS_MAX = 50  # a longer word may be cut; 50 emoji still fit into a snippet
CUT = "..."
_MATCHES_MAX = 200  # matches examined to find the best part of a long text
_UNITS_A_TOKEN_MAX = 20  # an estimated token has 17 characters at most
# A snippet never cuts a unit. A unit is a character in a writing system without spaces, or a text
# between spaces.
_UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


Match = tuple[int, int, str]
"""Start and end in characters, and the matched word of the query."""


class Snippet(NamedTuple):
    """A part of a text. `marks`: (start, end) of each match in `text`, in characters, in order.
    Matches that overlap or touch are merged."""

    text: str
    marks: tuple[tuple[int, int], ...]


class Snippets:
    """Cuts snippets for a query. `stems`: the stems of the searched index."""

    def __init__(self, stems: Stems) -> None:
        self._stems = stems

    def cut(self, text: str, query: Query, tokens: int = SNIPPET_TOKENS) -> Snippet:
        """The part of a text that has the most words of the query. It has at most `tokens`
        estimated tokens.

        A shorter text is returned whole. If no word of the text matches, for example because the
        query is misspelt, similar words count as matches. If there are no similar words either, the
        snippet is the beginning of the text.
        """
        found = self._matches(text, query) or _alike(text, query)
        units = list(_units(text))
        if not units:
            return Snippet("", ())
        first, last = _Window(text, units, tokens).chosen(found)
        start, end = units[first][0], units[last][1]
        before = CUT + " " if first else ""
        after = " " + CUT if last + 1 < len(units) else ""
        shift = len(before) - start
        within = [(a + shift, b + shift) for a, b, _ in found if start <= a and b <= end]
        return Snippet(before + text[start:end] + after, tuple(_joined(within)))

    def _matches(self, text: str, query: Query) -> list[Match]:
        """All matches, in order."""
        wanted = self._stems.of(word for word in query.words if not is_unspaced(word))
        stems = {stem for stem in wanted.values() if stem}
        terms = {"".join(term) for term in query.terms if is_unspaced(term[0])}
        spans = [(m.start(), m.end(), forms_of(m.group())) for m in WORDS.finditer(text)]
        known = self._stems.of(
            form for _, _, forms in spans for form in forms if not is_unspaced(form)
        )
        found = []
        for start, end, forms in spans:
            if forms and is_unspaced(forms[0]):
                found += _unspaced_matches(text, start, end, terms)
                continue
            for form in forms:
                if known.get(form) in stems:
                    found.append((start, end, known[form]))
                    break
        return found


def _unspaced_matches(text: str, start: int, end: int, terms: set[str]) -> list[Match]:
    """The matches in `text[start:end]`, a part of the text in a writing system without spaces, such
    as Chinese. `terms`: the query's terms in such writing systems, each of which is a pair of
    characters or a single character."""
    found = []
    for at in range(start, end):
        for size in (2, 1):
            if at + size <= end and text[at : at + size] in terms:
                found.append((at, at + size, text[at : at + size]))
                break
    return found


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order; spans that overlap or touch are merged."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _alike(text: str, query: Query) -> list[Match]:
    """Words of the text that resemble a word of the query, by their trigrams."""
    wanted = {word: trigrams(word) for word in query.words if not is_unspaced(word)}
    found = []
    for match in WORDS.finditer(text):
        own = trigrams(match.group())
        for word, theirs in wanted.items():
            alike = similarity(len(own & theirs), len(own), len(theirs))
            if alike >= TRIGRAM_SIMILARITY_MIN:
                found.append((*match.span(), word))
                break
    return found


def _units(text: str) -> Iterator[tuple[int, int]]:
    for match in _UNIT.finditer(text):
        for start in range(match.start(), match.end(), WORD_CHARS_MAX):
            yield start, min(start + WORD_CHARS_MAX, match.end())


class _Window:
    """Selects the units of a text that become the snippet."""

    def __init__(self, text: str, units: list[tuple[int, int]], tokens: int) -> None:
        self._text, self._units = text, units
        self._room = tokens
        if not self._fits(0, len(units) - 1):
            self._room = tokens - 2 * estimate(f" {CUT} ")

    def _fits(self, first: int, last: int) -> bool:
        return estimate(self._text[self._units[first][0] : self._units[last][1]]) <= self._room

    def _last_fitting(self, first: int) -> int:
        """The last unit such that the units from `first` to this unit fit into the snippet; `first`
        if that unit alone does not fit.
        """
        low, high = first, min(len(self._units) - 1, first + _UNITS_A_TOKEN_MAX * self._room)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(first, middle) else (low, middle - 1)
        return low

    def chosen(self, found: list[Match]) -> tuple[int, int]:
        """The first and last unit of the snippet. It is the part of the text with the most
        different words of the query. If several parts have as many, the part with the most matches
        is chosen, and then the earliest."""
        if self._fits(0, len(self._units) - 1):
            return 0, len(self._units) - 1
        words: dict[int, list[str]] = {}
        unit = 0
        for start, _, word in found[:_MATCHES_MAX]:
            while unit + 1 < len(self._units) and self._units[unit + 1][0] <= start:
                unit += 1
            words.setdefault(unit, []).append(word)
        best, place = (0, 0), (0, 0)
        for first in words:
            last = self._last_fitting(first)
            seen = [word for at in words if first <= at <= last for word in words[at]]
            if (len(set(seen)), len(seen)) > best:
                best = (len(set(seen)), len(seen))
                place = (first, max(at for at in words if first <= at <= last))
        return self._grown(*place)

    def _grown(self, first: int, last: int) -> tuple[int, int]:
        """Extend the snippet evenly to both sides of the matches, up to the limit."""
        grew = True
        while grew:
            grew = False
            if last + 1 < len(self._units) and self._fits(first, last + 1):
                last, grew = last + 1, True
            if first and self._fits(first - 1, last):
                first, grew = first - 1, True
        return first, last
