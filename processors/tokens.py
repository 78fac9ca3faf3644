"""Estimated tokens, as the rest of processors/ imports them: the names of schemas/tokens.py.

The estimate itself lies in schemas/ because producers/ must give the same number and may not import
this room. Pure, so that folds may import it. Exact counts need a package and are in token_count.py.
"""

from ..schemas.tokens import (
    FAMILIES,
    NEW,
    OLD,
    chars_per_token,
    estimate,
    estimate_size,
    family_of,
    prefix,
    raised,
    recounted,
)

__all__ = [
    "FAMILIES",
    "NEW",
    "OLD",
    "family_of",
    "chars_per_token",
    "estimate",
    "estimate_size",
    "prefix",
    "raised",
    "recounted",
]
