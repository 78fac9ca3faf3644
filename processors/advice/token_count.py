"""Counts the tokens of a text as exactly as this installation can, and names the method.

`ctok` counts like the provider and is an optional package (extra `tokens`); without it this file
uses the calibrated estimate, and the result names that method. No fold may import this file: two
machines would fold the same log differently.
"""

from functools import cache
from types import ModuleType
from typing import NamedTuple

from ...schemas.tokens import NEW, OLD, estimate, family_of

EXACT, ESTIMATED = "ctok", "estimate"
# The version that ctok knows a family by, and the tokens of the message frame that it adds.
_CTOK = {OLD: ("4.6", 7), NEW: ("4.8", 6)}


class Count(NamedTuple):
    """Tokens of a text, without the frame of a message. by: `ctok` or `estimate`."""

    tokens: int
    by: str


def count(text: str, model: str) -> Count:
    """Tokens of a text for a model. ctok takes about 3 s for a million characters."""
    family, ctok = family_of(model), _ctok()
    if ctok is None:
        return Count(estimate(text, family), ESTIMATED)
    version, frame = _CTOK[family]
    return Count(max(0, ctok.token_count(text, version) - frame), EXACT)


@cache
def _ctok() -> ModuleType | None:
    try:
        import ctok
    except ImportError:
        return None
    return ctok
