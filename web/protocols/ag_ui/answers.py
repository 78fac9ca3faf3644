"""Finds out whether an interrupt still waits for an answer, and which line decided it. Pure.

A call may be decided elsewhere: by another client, by a deadline, or by the end of its turn.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ....processors.fold.calls import IN_DOUBT, CallStatus
from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas.ids import parse_call_key
from .calls import APPROVAL, DOUBT

_WAITS: dict[CallStatus, str] = {CallStatus.ASKS: APPROVAL} | dict.fromkeys(IN_DOUBT, DOUBT)
_ASKED = {"asks": APPROVAL, "doubt": DOUBT}
"""The reason of an interrupt, by the kind of the line with which it begins."""
_DECIDES = {APPROVAL: ("approval",), DOUBT: ("resolved", "result")}
"""The kinds of lines that decide a call, by the reason of its interrupt."""


def reason_of(views: SessionViews, key: str, payload: Mapping[str, Any] | None) -> str | None:
    """The reason of the interrupt that a payload answers; None if the call was never interrupted. A
    payload with `approved` answers the call's approval, if it had one; any other payload answers
    the newest interrupt.
    """
    asked = [_ASKED[line.kind] for line in _lines_of(views, key) if line.kind in _ASKED]
    if APPROVAL in asked and "approved" in (payload or {}):
        return APPROVAL
    return asked[-1] if asked else None


def decided_by(views: SessionViews, key: str, reason: str) -> Line | None:
    """The line that decided an interrupt of a call, or the end of its turn; None if the interrupt
    still waits for an answer.
    """
    if reason in (_WAITS.get(call.status) for call in _calls(views) if call.key == key):
        return None
    decided: Line | None = None
    for line in _lines_of(views, key):
        if _ASKED.get(line.kind) == reason:
            decided = None
        elif decided is None and line.kind in (*_DECIDES[reason], "ended"):
            decided = line
    return decided


def awaits(views: SessionViews, keys: Iterable[str]) -> bool:
    """Whether all of these interrupts still wait for an answer."""
    waiting = {call.key for call in _calls(views) if call.status in _WAITS}
    return views.turn.closing is None and waiting.issuperset(keys)


def _calls(views: SessionViews) -> Iterable[Any]:
    return (*views.turn.calls, *views.turn.doubts)


def _lines_of(views: SessionViews, key: str) -> Iterable[Line]:
    """The lines of a call and the end of its turn, in order."""
    place = parse_call_key(key)
    turn = None if place is None else place[0]
    for line in views.transcript.lines:
        if line.call == key or (line.kind == "ended" and line.turn == turn):
            yield line
