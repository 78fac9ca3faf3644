"""Grants: an approval may allow later calls to run without approval.

A grant is a line in the turn view. `TOOL` allows every call of the tool; only old approvals have
this form. `TOOL SHA256` allows calls with the same arguments as the approved call.
`TOOL {"ARGUMENT":"GLOB",...}` allows calls with these arguments and no others, where `*` matches
any text without shell metacharacters and without `..` as a path component.
"""

import json
import re
from collections.abc import Mapping, Sequence

from ...schemas.events import ApprovalDecided
from ...schemas.grant import GRANT_SAME, pattern_of

# Shell metacharacters, which `*` does not match. A quote would hide the rest of the glob.
SHELL_SPECIAL = ";&|`$()<>{}\\'\"#"
_SPECIAL = frozenset(SHELL_SPECIAL + "\r\n\0")
_CLIMBS = re.compile(r"(?<![\w.])\.\.(?![\w.])")  # a path component `..`, not a range a..b


def grant_of(name: str, event: ApprovalDecided) -> str:
    """The grant that results from an accepted approval of a call of the tool `name`."""
    if not event.grant:
        return name
    return f"{name} {event.args_sha256 if event.grant == GRANT_SAME else event.grant}"


def granting(grants: Sequence[str], name: str, args_sha256: str, args: bytes) -> str | None:
    """The grant that lets a call run without approval, or None. `args`: as the model wrote them."""
    parts = [grant.partition(" ") for grant in grants]
    allowed = [what for tool, _, what in parts if tool == name]
    for what in ("", args_sha256):
        if what in allowed:
            return f"{name} {what}".rstrip()
    patterns = [what for what in allowed if what.startswith("{")]
    arguments = arguments_in(name, args) if patterns else None
    if arguments is None:
        return None
    matching = (what for what in patterns if _matches_all(pattern_of(what), arguments))
    return next((f"{name} {what}" for what in matching), None)


def grant_text(grant: str) -> str:
    """The calls that a grant allows, as text for people."""
    name, _, what = grant.partition(" ")
    if not what:
        return f"every later call of {name}"
    if not what.startswith("{"):
        return f"later calls of {name} with exactly these arguments"
    globs = " and ".join(f"{key} is {glob!r}" for key, glob in pattern_of(what).items())
    return f"later calls of {name} where {globs}, with no other argument"


def arguments_in(name: str, args: bytes) -> dict[str, object] | None:
    """The arguments of a call by name, or None if they are not a JSON object. If the tool is
    hidden, they are inside the arguments of `use_tool` (tiers.py)."""
    try:
        arguments = json.loads(args or b"{}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    inner = arguments.get("arguments")
    wrapped = set(arguments) == {"name", "arguments"} and arguments["name"] == name
    return inner if wrapped and isinstance(inner, dict) else arguments


def _matches_all(globs: Mapping[str, str], arguments: Mapping[str, object]) -> bool:
    """Whether the call has exactly these arguments, and each matches its glob."""
    return set(globs) == set(arguments) and all(
        _matches(glob, _text(arguments[key])) for key, glob in globs.items()
    )


def _matches(glob: str, text: str) -> bool:
    """Whether the text matches the glob. The parts of the glob between its `*` are searched in the
    text from left to right, without backtracking."""
    first, *parts = glob.split("*")
    if not parts:
        return text == glob
    if len(_CLIMBS.findall(text)) > len(_CLIMBS.findall(glob)):
        return False  # check the whole text: the glob itself may contain part of it
    if not text.startswith(first):
        return False
    at = len(first)
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        found = len(text) - len(part) if last else text.find(part, at)
        if found < at or (last and not text.endswith(part)) or _SPECIAL & set(text[at:found]):
            return False
        at = found + len(part)
    return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
