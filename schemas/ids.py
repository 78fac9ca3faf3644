"""Ids of sessions, users, projects, messages and commands, and the keys of tool calls."""

import re

ID_CHARS_MAX = 128  # the same for all ids, so that keys and rows stay small
_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
PARTITION_KEY = "#partition"  # key of PARTITION_TAKEN: no legal session id begins with '#'

PUSH = "push:"  # prefix of a channel to which answers are delivered, instead of streamed


DOTS = (".", "..")
"""No id is one of these: programs use ids in paths and URLs, where these name a directory."""


def is_id(text: str) -> bool:
    """Whether a text is a valid id: 1-128 characters of `[A-Za-z0-9._:@-]`, but not `.` or `..`."""
    return is_logged_id(text) and text not in DOTS


def is_logged_id(text: str) -> bool:
    """Whether the fold accepts the id of a message, a command or a memory entry, which no program
    uses in a path. It accepts `.` and `..` too, so that an acknowledged message of an older version
    keeps its place."""
    return _ID.fullmatch(text) is not None


def why_not_an_id(what: str, text: str) -> str:
    """The error message for an invalid id."""
    if text in DOTS:
        return f"{what} must not be {text!r}, which names a directory in paths and URLs"
    shown = text if len(text) <= 40 else text[:37] + "..."
    return f"{what} must be 1-{ID_CHARS_MAX} characters of [A-Za-z0-9._:@-], not {shown!r}"


def is_push(channel: str) -> bool:
    """Whether answers are delivered to a channel of this name, such as `push:crm`."""
    return channel.startswith(PUSH) and channel != PUSH and is_id(channel)


def call_key(turn: int, step: int, index: int) -> str:
    """The key of a tool call in its session: TURN.STEP.INDEX."""
    return f"{turn}.{step}.{index}"


def parse_call_key(text: str) -> tuple[int, int, int] | None:
    """(turn, step, index) of a call key, or None if it is invalid, as 01.1.0 is."""
    parts = text.split(".")
    if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        return None
    place = int(parts[0]), int(parts[1]), int(parts[2])
    return place if call_key(*place) == text else None
