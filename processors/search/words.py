"""Splits text in any writing system into words, and a query into search terms.

SQLite's tokenizer splits at every character that is not a letter, so it cannot find words in
Chinese text, nor `user` in `getUserName`. Therefore text is rewritten before it is indexed, and
queries are rewritten in the same way. SQLite gets only letters and digits of a query, so a query
cannot inject FTS5 syntax.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

TERMS_MAX = 32
"""The most terms that a query may have. Each term costs one look-up, so a pasted page is cut."""

PHRASE_WORDS_MAX = 12
"""The limit of words in one term: a longer path is searched by its first parts."""

# Writing systems without spaces, and Hangul, whose particles are attached to words. Every character
# is indexed as a word, and a text is searched as pairs of adjacent characters.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs of Indic scripts are not letters for `\w`, but belong to the word.
_INDIC = "\u0900-\u0963\u0966-\u0dff"
WORDS = re.compile(f"[{UNSPACED}]+|[^\\W{UNSPACED}{_INDIC}]+|[{_INDIC}]+")
"""Adjacent letters and digits in one kind of writing system."""
# Chunks, which are written without spaces: paths, identifiers, versions, dates, hyphenated words.
_CHUNK = re.compile(f"[\\w{_INDIC}]+(?:[-./\\\\:@#'’~+=]+[\\w{_INDIC}]+)*")
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_CAMEL = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Accents, Hebrew points and Arabic vowels, which people omit in searches. Other marks are letters.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]"
)
# In Hebrew, "and", "the", "in", "to", "from", "that" and "as" are prefixes of a word.
_HEBREW_PREFIX = re.compile("[והבלמשכ](?=[א-ת]{3})")

STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have how i"
    " if in into is it its me my no not of on or our should so that the their them then there these"
    " they this to was we were what when where which who why will with would you your"
    " של את על הוא היא זה זאת לא מה כי עם אם או גם יש אין אני אנחנו איך למה מי".split()
)
"""Words that are ignored if a query has other words, as in the full-text search of databases."""


def fold(text: str) -> str:
    """The text in the form in which texts are compared: normalized and without accents. Case is
    kept."""
    return unicodedata.normalize(
        "NFKC", _MARKS.sub("", unicodedata.normalize("NFKD", text))
    )


def _parts(chunk: str) -> Iterator[tuple[str, ...]]:
    """The words of each run of letters and digits in a chunk of text. Names in camelCase and
    snake_case are split; text in a writing system without spaces stays whole."""
    for run in WORDS.findall(chunk):
        for piece in run.split("_"):
            if piece:
                yield tuple(part.lower() for part in _CAMEL.split(piece))


def _hebrew_forms(word: str) -> Iterator[str]:
    """The forms of a Hebrew word without its first one or two letters, if these may be prefixes."""
    for _ in range(2):
        if not _HEBREW_PREFIX.match(word):
            return
        word = word[1:]
        yield word


def is_unspaced(word: str) -> bool:
    """Whether the word is text in a writing system without spaces, such as Chinese."""
    return bool(_IS_UNSPACED.match(word))


def spelled(text: str) -> str:
    """The text in the form that SQLite indexes: words in order, separated by spaces.

    An identifier is followed by its parts, a Hebrew word by its forms without prefixes.
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
    """Every spelling by which a run of letters and digits (see WORDS) can be found: its parts,
    folded and in lower case.

    For text in a writing system without spaces, that is the text itself.
    """
    words = [part for parts in _parts(fold(run)) for part in parts]
    joined = ("".join(words),) if len(words) > 1 else ()
    more = (form for word in words for form in _hebrew_forms(word))
    return (*joined, *words, *more)


def pieces(text: str) -> list[str]:
    """The words of a text, for comparisons that ignore word order.

    Identifiers are split into their parts, text without spaces (`is_unspaced`) into pairs of
    characters.
    """
    found = []
    for chunk in WORDS.findall(fold(text)):
        for word in (part for parts in _parts(chunk) for part in parts):
            found += ["".join(pair) for pair in _pairs(word)] if is_unspaced(word) else [word]
    return found


class Query(NamedTuple):
    """The parts of a query. `terms`: the terms, each a word or several words that must be adjacent.

    `words`: all words of the terms; text without spaces (`is_unspaced`) is split into pairs of
    characters.
    """

    text: str
    terms: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word for term in self.terms for word in term)


def query_of(text: str) -> Query:
    """The terms of a user's query, TERMS_MAX at most; none if it has no letter or digit.

    A chunk such as `processors/search/index.py` or `getUserName` is searched as adjacent words and
    also as single words, so that documents with a part of the chunk are found too, but ranked
    lower.
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
    """The pairs of adjacent characters in a text; for a single character, that character."""
    return zip(run, run[1:], strict=False) if len(run) > 1 else [(run,)]
