"""Snippets: 200 tokens of a text around what matches, never cut inside a word.

A search that returns whole documents fills a context window with what was not asked for (mission
row S3.9). Which words match is asked of the tokenizer that indexed them, so that `running` is
marked for `run`. This file must not know the index.
"""

import re
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from .formula import TRIGRAM_SIMILARITY_MIN
from .full_text import TOKENIZER
from .trigrams import similarity, trigrams
from .words import WORDS, Query, forms_of, is_unspaced

SNIPPET_TOKENS = 200
WORD_CHARS_MAX = 400  # a longer one is no word but data, and is cut as the only exception
CUT = "..."
_UNIT = re.compile(r"\S+")
_STEMS_MAX = 20_000  # kept in memory


class Snippet(NamedTuple):
    """A part of a text; `marks`: (start, end) of each match in `text`, in characters."""

    text: str
    marks: tuple[tuple[int, int], ...]


class Stems:
    """Words as the tokenizer of the index knows them: asked in a database in memory."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute(
            f"CREATE VIRTUAL TABLE words USING fts5(body, tokenize='{TOKENIZER}')"
        )
        self._connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(words, instance)")

    def of(self, words: Iterable[str]) -> dict[str, str]:
        """Each word's stem; a word that the tokenizer splits has its first part's."""
        wanted = frozenset(words)
        new = sorted(wanted - self._known.keys())
        if len(self._known) + len(new) > _STEMS_MAX:
            self._known.clear()
            new = sorted(wanted)
        if new:
            execute = self._connection.execute
            execute("BEGIN")
            self._connection.executemany(
                "INSERT INTO words (rowid, body) VALUES (?, ?)", enumerate(new)
            )
            rows = execute("SELECT doc, term FROM terms WHERE offset = 0").fetchall()
            execute("ROLLBACK")
            self._known.update(dict.fromkeys(new, ""))
            self._known.update((new[doc], term) for doc, term in rows)
        return {word: self._known[word] for word in wanted}


class Snippets:
    """Cuts snippets for a query."""

    def __init__(self) -> None:
        self._stems = Stems()

    def cut(self, text: str, query: Query, tokens: int = SNIPPET_TOKENS) -> Snippet:
        """The part of at most `tokens` estimated tokens that has the most of the query's words.

        A text that is shorter comes whole. Where no word matches, as with a misspelt one, the words
        that resemble one of the query lead; where none does, the beginning is taken.
        """
        found = self._matches(text, query) or _alike(text, query)
        units = [match.span() for match in _UNIT.finditer(text)]
        units = [piece for unit in units for piece in _split(text, *unit)]
        if not units:
            return Snippet("", ())
        first, last = _window(text, units, found, tokens)
        start, end = units[first][0], units[last][1]
        before = CUT + " " if first else ""
        after = " " + CUT if last + 1 < len(units) else ""
        shift = len(before) - start
        marks = tuple(
            (a + shift, b + shift) for a, b, _ in found if start <= a and b <= end
        )
        return Snippet(before + text[start:end] + after, marks)

    def _matches(self, text: str, query: Query) -> list[tuple[int, int, str]]:
        """(start, end, which word of the query) of every match, in order."""
        wanted = self._stems.of(word for word in query.words if not is_unspaced(word))
        stems = {stem for stem in wanted.values() if stem}
        runs = {"".join(term) for term in query.terms if is_unspaced(term[0])}
        spans = [(m.start(), m.end(), forms_of(m.group())) for m in WORDS.finditer(text)]
        known = self._stems.of(
            form for _, _, forms in spans for form in forms if not is_unspaced(form)
        )
        found = []
        for start, end, forms in spans:
            if forms and is_unspaced(forms[0]):
                found += _runs_in(text, start, end, runs)
                continue
            for form in forms:
                if known.get(form) in stems:
                    found.append((start, end, known[form]))
                    break
        return found


def _runs_in(text: str, start: int, end: int, runs: set[str]) -> list[tuple[int, int, str]]:
    """Where the pairs of an unspaced query stand in a run of the text."""
    found = []
    for at in range(start, end):
        for size in (2, 1):
            if at + size <= end and text[at : at + size] in runs:
                found.append((at, at + size, text[at : at + size]))
                break
    return found


def _alike(text: str, query: Query) -> list[tuple[int, int, str]]:
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


def _split(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A unit that is never cut, or the pieces of one that may be: scripts without spaces, data."""
    if end - start > WORD_CHARS_MAX:
        ends = [*range(start + WORD_CHARS_MAX, end, WORD_CHARS_MAX), end]
    elif is_unspaced(text[start]) or is_unspaced(text[(start + end) // 2]):
        ends = [*range(start + 1, end + 1)]
    else:
        ends = [end]
    return list(zip([start, *ends], ends, strict=False))


def tokens_of(text: str) -> float:
    """An estimate that rather counts too many: 3 characters of ASCII or 1 other are a token."""
    ascii_only = sum(map(str.isascii, text))
    return ascii_only / 3 + len(text) - ascii_only


def _window(
    text: str, units: list[tuple[int, int]], found: list[tuple[int, int, str]], tokens: int
) -> tuple[int, int]:
    """First and last unit of the best part: most different words, then most matches, then first."""
    # Each unit costs its characters and the blank behind it.
    costs = [tokens_of(text[start:end]) + 1 / 3 for start, end in units]
    if sum(costs) <= tokens:
        return 0, len(units) - 1
    room = tokens - 2  # for the two signs that something was cut
    at_unit: dict[int, list[str]] = {}
    place = 0
    for start, _, word in found:
        while place + 1 < len(units) and units[place + 1][0] <= start:
            place += 1
        at_unit.setdefault(place, []).append(word)
    best, chosen = (-1, -1), (0, 0)
    for first in at_unit or {0: []}:
        last, cost, words = first, 0.0, []
        while last < len(units) and cost + costs[last] <= room:
            cost += costs[last]
            words += at_unit.get(last, ())
            last += 1
        worth = (len(set(words)), len(words))
        if worth > best:
            best, chosen = worth, (first, max(last - 1, first))
    return _centred(costs, at_unit, *chosen, room)


def _centred(
    costs: list[float], at_unit: dict[int, list[str]], first: int, last: int, room: float
) -> tuple[int, int]:
    """The matches between first and last with as much text before them as behind."""
    last = max((unit for unit in at_unit if first <= unit <= last), default=first)
    cost = sum(costs[first : last + 1])
    grew = True
    while grew:
        grew = False
        if last + 1 < len(costs) and cost + costs[last + 1] <= room:
            last, cost, grew = last + 1, cost + costs[last + 1], True
        if first and cost + costs[first - 1] <= room:
            first, cost, grew = first - 1, cost + costs[first - 1], True
    return first, last
