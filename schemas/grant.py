"""The field `grant` of APPROVAL_DECIDED, which defines the later calls that need no approval.

An empty grant, as in old records, allows every call of the tool. `same` allows calls with the same
arguments as the approved call. A JSON object of globs by argument allows calls that have exactly
these arguments, with matching values.
"""

import json
from collections.abc import Mapping

from .canonical import compact

GRANT_SAME = "same"
PATTERN_BYTES_MAX = 1024
"""The limit is small because a view holds the pattern and every later call is compared with it."""


def pattern_text(globs: Mapping[str, str]) -> str:
    """The text that the log stores for globs by argument."""
    return compact(dict(sorted(globs.items())))


def pattern_of(text: str) -> dict[str, str]:
    """The globs by argument; empty if the text is not a pattern."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    fits = isinstance(found, dict) and all(isinstance(glob, str) for glob in found.values())
    return found if fits else {}


def why_wrong(grant: str) -> str | None:
    """The reason why a grant is invalid, or None."""
    if grant in ("", GRANT_SAME):
        return None
    if len(grant.encode("utf-8", "surrogatepass")) > PATTERN_BYTES_MAX:
        return f"the pattern has more than {PATTERN_BYTES_MAX} bytes"
    return None if pattern_of(grant) else "the pattern must name arguments and a text for each"
