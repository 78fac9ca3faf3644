"""Finds the forks of a session and the sessions that it was forked from."""

from collections.abc import Callable, Sequence
from typing import Any

from ...processors.fold.views import SessionViews

SESSIONS_MAX = 300
"""How many sessions are searched for forks, most recently changed first."""

DEPTH_MAX = 32

ViewsOf = Callable[[str], SessionViews | None]
"""Returns the views of the session with this id if the user may read it."""


def family_json(
    views: SessionViews, views_of: ViewsOf, ids: Sequence[str], title_of: Callable[[str], str]
) -> dict[str, Any]:
    """Rows {session_id, title, parent, offset, turns, open} for a session, its ancestors, and all
    their forks.

    `searched`: how many sessions were searched for forks.
    `of`: how many there are.
    """
    rows = {views.session_id: _row(views)}
    ancestor: SessionViews | None = views
    for _ in range(DEPTH_MAX):
        if ancestor is None or ancestor.origin is None:
            break
        ancestor = views_of(ancestor.origin.session_id)
        if ancestor is not None:
            rows[ancestor.session_id] = _row(ancestor)
    others = [found for name in ids[:SESSIONS_MAX] if (found := views_of(name)) is not None]
    others.sort(key=lambda found: 0 if found.origin is None else found.origin.opened)
    for _ in range(DEPTH_MAX):
        new = [one for one in others if one.session_id not in rows
               and one.origin is not None and one.origin.session_id in rows]
        if not new:
            break
        rows.update({one.session_id: _row(one) for one in new})
    return {
        "sessions": [{**row, "title": title_of(row["session_id"])} for row in rows.values()],
        "searched": min(len(ids), SESSIONS_MAX),
        "of": len(ids),
    }


def _row(views: SessionViews) -> dict[str, Any]:
    origin = views.origin
    return {
        "session_id": views.session_id,
        "parent": None if origin is None else origin.session_id,
        "offset": None if origin is None else origin.offset,
        "turns": views.turn.number,
        "open": views.turn.open,
    }
