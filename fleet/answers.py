"""Answers of the fleet as JSON values: pure functions over rows.

A partial answer is what one member knows; answers of several members are merged.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..processors.advice.prices import usd
from .rows import HourRow, InboxRow, SessionRow, percentile

Json = dict[str, Any]


def plain(value: Any) -> Any:
    """A row as JSON values, with all of its fields except the guard."""
    if isinstance(value, msgspec.Struct):
        names = (name for name in value.__struct_fields__ if name != "seen")
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return value


def session(row: SessionRow) -> Json:
    """A session, with its cost in USD."""
    shown: Json = plain(row)
    shown["usd"] = usd(sum(used.picodollars for used in row.usage.values()))
    return shown


def place(shown: Json) -> tuple[int, str]:
    """The place of a session in a list: the newest change first."""
    return -shown["changed_at"], shown["session_id"]


def cursor(shown: Json) -> str:
    """What a reader sends as `after` to get the sessions after this one."""
    return f"{shown['changed_at']}/{shown['session_id']}"


def after(text: str) -> tuple[int, str]:
    """The place of a cursor. Raises ValueError."""
    changed_at, _, session_id = text.partition("/")
    return -int(changed_at), session_id


def merged_sessions(parts: Iterable[Json], limit: int) -> Json:
    """The sessions of several members: at most `limit`, and how many there are."""
    parts = list(parts)
    found = sorted((row for part in parts for row in part["sessions"]), key=place)
    total = sum(part["total"] for part in parts)
    left = len(found) > limit or any(part["next"] for part in parts)
    shown = found[:limit]
    return {
        "sessions": shown, "total": total, "next": cursor(shown[-1]) if left and shown else None
    }  # fmt: skip


def inbox(
    user_id: str, row: InboxRow, sessions: Mapping[str, SessionRow],
    begin: tuple[int, str] | None = None,
) -> Json:  # fmt: skip
    """What waits for a user, the oldest first. sessions: the rows of the sessions that wait. Those
    after the place `begin` of a list are in the answer."""
    entries = [
        {
            "user_id": user_id,
            "title": sessions[entry.session_id].title if entry.session_id in sessions else "",
            **plain(entry),
        }
        for entry in row.entries.values()
    ]
    return {
        "entries": entries,
        "dropped": row.dropped,
        "damaged": row.damaged,
        "sessions": [
            shown for shown in map(session, sessions.values())
            if begin is not None and place(shown) > begin
        ],
    }  # fmt: skip


def merged_inboxes(parts: Iterable[Json], limit: int) -> Json:
    """The inboxes of several users, with at most `limit` sessions: those that changed last."""
    parts = list(parts)
    entries = sorted(
        (entry for part in parts for entry in part["entries"]),
        key=lambda entry: (entry["at"], entry["session_id"], entry["call"]),
    )
    return {
        "entries": entries,
        "dropped": sum(part["dropped"] for part in parts),
        "damaged": any(part["damaged"] for part in parts),
        "sessions": sorted((row for part in parts for row in part["sessions"]), key=place)[:limit],
    }


Values = dict[str, dict[int, HourRow]]
"""Cells by value and hour."""


def values_of(parts: Iterable[Json]) -> Values:
    """The cells of several members, added up."""
    found: Values = {}
    for part in parts:
        for value, hours in part["values"].items():
            for hour, cell in hours.items():
                row = found.setdefault(value, {}).setdefault(int(hour), HourRow())
                row.add(msgspec.convert(cell, HourRow, strict=False))
    return found


def cell(row: HourRow) -> Json:
    """The sums of a cell. failures: the number of failed turns; reasons: the same by reason. p50,
    p95: ms, or None without turns. times: turns by bucket of their time (rows.py)."""
    return {
        "turns": row.turns,
        "failures": sum(row.failures.values()),
        "reasons": row.failures,
        "tokens": row.tokens,
        "usd": usd(row.picodollars),
        "unpriced": row.unpriced,
        "p50": percentile(row.times, 0.5),
        "p95": percentile(row.times, 0.95),
        "times": {str(bucket): count for bucket, count in row.times.items()},
        "damaged": row.damaged,
    }


def total(hours: Mapping[int, HourRow], first: int, last: int) -> HourRow:
    """The sums of the hours `first` to `last`."""
    row = HourRow()
    for hour, other in hours.items():
        if first <= hour <= last:
            row.add(other)
    return row
