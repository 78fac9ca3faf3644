"""Trigrams like pg_trgm's: of each word, with two blanks before it and one after it.

SQLite's trigram tokenizer takes any three characters of a text. `padded` rewrites a text so that
this tokenizer yields the trigrams of its words, plus a few that span two words, which no query has.
"""

import re
from typing import Final

from .words import fold

_WORD: Final = re.compile(r"[^\W_]+")


def padded(text: str) -> str:
    """Text in the form of the trigram table: `cat hat` becomes `  cat   hat `."""
    return "".join(f"  {word} " for word in _WORD.findall(fold(text).lower()))


def trigrams(text: str) -> frozenset[str]:
    """The set of trigrams of the words of a text."""
    return frozenset().union(*map(of_word, _WORD.findall(fold(text).lower())))


def of_word(word: str) -> frozenset[str]:
    """The trigrams of one word in the spelling of the index: folded and in lower case."""
    spelled = f"  {word} "
    return frozenset([spelled[at : at + 3] for at in range(len(spelled) - 2)])


def similarity(shared: int, one: int, other: int) -> float:
    """Intersection over union, from the sizes of two sets; 0 for two empty ones."""
    return shared / (one + other - shared) if shared else 0.0
