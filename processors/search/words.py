"""What a word is: any script's text as words, and a query as the terms that it looks for.

SQLite's tokenizer splits at everything that is no letter, so it can not see words in Chinese, nor
`user` in `getUserName`. Text is therefore spelled out before it is indexed, and a query in the same
way: nothing of a query but letters and digits reaches SQLite, so its syntax can not be injected.
This file must not know SQLite.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

TERMS_MAX = 32
"""Of a query. A pasted page is a query of its first words; each term costs one look-up."""

PHRASE_WORDS_MAX = 12
"""Of one term: a longer path is looked for by its first parts."""

# Scripts written without spaces, and Hangul, whose particles cling to words: every character is
# indexed as a word of its own, and a run is looked for as its pairs of neighbours.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs of Indic scripts are no letters to `\w`, and belong to the word.
_INDIC = "\u0900-\u0963\u0966-\u0dff"
WORDS = re.compile(f"[{UNSPACED}]+|[^\\W{UNSPACED}{_INDIC}]+|[{_INDIC}]+")
"""A run of letters and digits of one kind of script."""
# What is written together: paths, identifiers, versions, dates, hyphenated words.
_CHUNK = re.compile(f"[\\w{_INDIC}]+(?:[-./\\\\:@#'’~+=]+[\\w{_INDIC}]+)*")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_CAMEL = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Accents, Hebrew points, Arabic vowels: people search without them. Other marks are letters.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]"
)
# "and", "the", "in", "to", "from", "that", "as" are written onto a Hebrew word.
_HEBREW_PREFIX = re.compile("[והבלמשכ](?=[א-ת]{3})")

STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i"
    " if in into is it its me my no not of on or our should so that the their them then there these"
    " they this to was we were what when where which who why will with would you your"
    " של את על הוא היא זה זאת לא מה כי עם אם או גם יש אין אני אנחנו איך למה מי".split()
)
"""Left out of a query that has other words, as the full-text search of a database server does."""


def fold(text: str) -> str:
    """Text as it is compared, except for case: one spelling of each character, no accents."""
    return unicodedata.normalize(
        "NFKC", _MARKS.sub("", unicodedata.normalize("NFKD", text))
    )


def _parts(chunk: str) -> Iterator[tuple[str, ...]]:
    """The words of a chunk, run by run: camelCase and snake_case apart, unspaced runs whole."""
    for run in WORDS.findall(chunk):
        for piece in run.split("_"):
            if piece:
                yield tuple(part.lower() for part in _CAMEL.split(piece))


def _hebrew_forms(word: str) -> Iterator[str]:
    """A Hebrew word without one and without two of the prefixes it may have."""
    for _ in range(2):
        if not _HEBREW_PREFIX.match(word):
            return
        word = word[1:]
        yield word


def is_unspaced(word: str) -> bool:
    """Whether the word is a run of a script without spaces."""
    return bool(_IS_UNSPACED.match(word))


def spelled(text: str) -> str:
    """Text as SQLite indexes it: words apart by blanks, in their order.

    An identifier is followed by its parts, a Hebrew word by what it is without prefixes.
    """
    return " ".join(_spelled(fold(text)))


def _spelled(text: str) -> Iterator[str]:
    for chunk in WORDS.findall(text):
        parts = [part for parts in _parts(chunk) for part in parts]
        if len(parts) > 1:
            yield "".join(parts)
        for part in parts:
            if is_unspaced(part):
                yield from part
                continue
            yield part
            yield from _hebrew_forms(part)


def forms_of(run: str) -> tuple[str, ...]:
    """Every spelling under which a run of WORDS can be found: its parts, lower case, folded.

    Of an unspaced run, the run itself.
    """
    words = [part for parts in _parts(fold(run)) for part in parts]
    joined = ("".join(words),) if len(words) > 1 else ()
    more = (form for word in words for form in _hebrew_forms(word))
    return (*joined, *words, *more)


def pieces(text: str) -> list[str]:
    """The words of a text, without order: what texts are compared by, beside their order.

    Identifiers by their parts, unspaced runs as pairs of characters.
    """
    found = []
    for chunk in WORDS.findall(fold(text)):
        for word in (part for parts in _parts(chunk) for part in parts):
            found += ["".join(pair) for pair in _pairs(word)] if is_unspaced(word) else [word]
    return found


class Query(NamedTuple):
    """What a query looks for. `terms`: each a word, or words that stand together.

    `words`: every word of the terms, runs of unspaced scripts as pairs of characters.
    """

    text: str
    terms: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word for term in self.terms for word in term)


def query_of(text: str) -> Query:
    """The terms of what somebody typed, TERMS_MAX at most; none where it has no letter or digit.

    A chunk such as `processors/search/index.py` or `getUserName` is looked for as the words that
    stand together, and as each of its words, so that a part of it is found too, but ranked lower.
    """
    folded = fold(text)
    terms: dict[tuple[str, ...], None] = {}
    for chunk in _CHUNK.findall(folded):
        for term in _terms(chunk):
            terms[term] = None
            if len(terms) >= TERMS_MAX:
                break
    telling = [term for term in terms if len(term) > 1 or term[0] not in STOP_WORDS]
    return Query(text, tuple(telling or terms)[:TERMS_MAX])


def _terms(chunk: str) -> Iterator[tuple[str, ...]]:
    words = [part for parts in _parts(chunk) for part in parts]
    spaced = [word for word in words if not is_unspaced(word)]
    if len(spaced) > 1 and len(spaced) == len(words):
        yield tuple(spaced[:PHRASE_WORDS_MAX])
    for word in words:
        if is_unspaced(word):
            yield from _pairs(word)
        else:
            yield (word,)
            yield from ((form,) for form in _hebrew_forms(word))


def _pairs(run: str) -> Iterable[tuple[str, ...]]:
    """Neighbours in a run of characters; a single one is looked for by itself."""
    return zip(run, run[1:], strict=False) if len(run) > 1 else [(run,)]
