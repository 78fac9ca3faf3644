"""Scopes and paths of memory. A scope names the owner; the path determines a file's tier.

The table TIERS has the tier for each path. Size limits are defined here because writers and folds
must agree on them.
"""

import re
from enum import StrEnum

from .ids import ID_CHARS_MAX, is_id

USER, PROJECT = "user", "project"
KINDS = (USER, PROJECT)

CORE = "core.md"
DECISIONS = "decisions.md"
TODAY = "daily"
"""A path that stands for the daily file of the record's day (UTC). Writers therefore need no clock,
and every fold determines the same day."""

TEXT_BYTES_MAX = 8 * 1024  # of one entry: about 3,000 tokens; a longer text must be split
PREFERENCE_CHARS_MAX = 500  # per value: a short text, not a document
TODO_CHARS_MAX = 1_000
WHY_CHARS_MAX = 1_000
PATH_CHARS_MAX = 200


class Tier(StrEnum):
    """How a file reaches the model.

    hot: in every prompt.
    warm: loaded by path.
    cold: by search.
    """

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


# One component of a path below archive/. It has no leading dot, so it is neither hidden nor `..`.
_NAME = r"[A-Za-z0-9_@:-][A-Za-z0-9._@:-]{0,79}"
TIERS: tuple[tuple[re.Pattern[str], Tier], ...] = (
    (re.compile(r"core\.md"), Tier.HOT),
    (re.compile(r"decisions\.md"), Tier.WARM),
    (re.compile(r"daily/[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\.md"), Tier.WARM),
    (re.compile(rf"archive/{_NAME}(/{_NAME}){{0,3}}"), Tier.COLD),
)
LEGAL_PATHS = "core.md, decisions.md, daily/YYYY-MM-DD.md or archive/NAME"


def tier_of(path: str) -> Tier | None:
    """The tier of a file, or None if the path is not allowed."""
    if len(path) > PATH_CHARS_MAX:
        return None
    return next((tier for pattern, tier in TIERS if pattern.fullmatch(path)), None)


def scope_of(kind: str, id: str) -> str:
    """The scope of a user or a project."""
    assert kind in KINDS, kind
    return f"{kind}:{id}"


def parse_scope(scope: str) -> tuple[str, str] | None:
    """(kind, id) of a scope, or None if it is invalid."""
    kind, colon, id = scope.partition(":")
    return (kind, id) if colon and kind in KINDS and is_id(id) else None


SCOPE_CHARS_MAX = len(PROJECT) + 1 + ID_CHARS_MAX


def why_not_text(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str | None:
    """Why a text cannot be stored as a memory entry, or None."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"it is not valid UTF-8 text, at character {error.start}"
    if size > bytes_max:
        return f"it has {size} bytes, at most {bytes_max} are kept as one entry"
    odd = next((c for c in text if (c < " " and c not in "\n\t") or c == "\x7f"), None)
    return None if odd is None else f"it has the control character {odd!r}"
