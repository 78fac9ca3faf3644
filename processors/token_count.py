"""Counts the tokens of a text as exactly as possible in this installation, and names the method.

The optional package `ctok` (extra `tokens`) counts like the provider. Without it, this file uses
the calibrated estimate, and the result names that method. No fold may import this file, because a
machine with `ctok` and a machine without it would fold the same log differently.
"""

from functools import cache
from types import ModuleType
from typing import NamedTuple

from ..schemas.tokens import NEW, OLD, estimate, family_of

EXACT, ESTIMATED = "ctok", "estimate"
# For each family: the name of its version in ctok, and the tokens that ctok adds for a message.
_CTOK = {OLD: ("4.6", 7), NEW: ("4.8", 6)}


class Count(NamedTuple):
    """The tokens of a text, without the tokens that a message adds. by: `ctok` or `estimate`."""

    tokens: int
    by: str


def count(text: str, model: str) -> Count:
    """Count the tokens of a text for a model. ctok takes about 3 s for a million characters."""
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
    module: ModuleType = ctok
    return module
