"""Trigrams as in pg_trgm: of each word, with two spaces before it and one after it.

SQLite's trigram tokenizer takes any three adjacent characters of a text. `padded` rewrites a text
so that this tokenizer returns the trigrams of the words, and a few that span two words, which no
query contains.
"""

import re
from typing import Final

from .words import fold

_WORD: Final = re.compile(r"[^\W_]+")


def padded(text: str) -> str:
    """The text in the form for the trigram table: `cat hat` becomes ` cat hat `."""
    return "".join(f"  {word} " for word in _WORD.findall(fold(text).lower()))


def trigrams(text: str) -> frozenset[str]:
    """The set of trigrams of the words of a text."""
    return frozenset().union(*map(of_word, _WORD.findall(fold(text).lower())))


def of_word(word: str) -> frozenset[str]:
    """The trigrams of one word, which must be in the spelling of the index (folded,
    in lower case)."""
    spelled = f"  {word} "
    return frozenset([spelled[at : at + 3] for at in range(len(spelled) - 2)])


def similarity(shared: int, one: int, other: int) -> float:
    """Intersection over union of two sets, from the size of the intersection and of each set; 0 for
    two empty sets."""
    return shared / (one + other - shared) if shared else 0.0
