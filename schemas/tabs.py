"""The records of `user-sessions`, one per open session. Pure.

The key of a record is USER/SESSION. Its value is {phase, project_id, opened_at} as compact JSON, or
the record is a tombstone. The value is JSON, not Avro, because the record is not an event: no
decision depends on it, and any reader can parse JSON.
"""

from typing import NamedTuple

import msgspec

from .bounds import TimeMs
from .ids import is_id


class Tab(NamedTuple):
    """An open session. `opened_at`: Unix ms."""

    session_id: str
    phase: str
    project_id: str | None
    opened_at: int


class _TabValue(msgspec.Struct):
    phase: str
    project_id: str | None
    opened_at: TimeMs


_DECODER = msgspec.json.Decoder(_TabValue)


def key_of(user_id: str, session_id: str) -> str:
    """The key of a session's record; neither id has a slash."""
    return f"{user_id}/{session_id}"


def names_in(key: bytes | None) -> tuple[str, str]:
    """(user id, session id) of a record's key;
    both are empty if the key has another form, or if one of them is no id."""
    user, _, session_id = (key or b"").decode("utf-8", "replace").partition("/")
    return (user, session_id) if is_id(user) and is_id(session_id) else ("", "")


def tab_in(session_id: str, value: bytes | None) -> Tab | None:
    """The open session in a record; None for a tombstone and for a value of another form."""
    if value is None:
        return None
    try:
        tab = _DECODER.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return Tab(session_id, tab.phase, tab.project_id, tab.opened_at)
