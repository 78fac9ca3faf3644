"""Finds the call that a user names: by TURN.STEP.INDEX, or by the provider's call_id if it is
unique.

Providers may use a call_id twice, so it does not identify a call.
"""

from collections.abc import Mapping

from ..log.errors import Refused
from ..processors.fold.calls import IN_DOUBT, CallStatus
from ..processors.fold.grants import SHELL_SPECIAL, granting
from ..processors.fold.projections.turn_view import Call
from ..processors.fold.views import SessionViews
from ..schemas.enums import Resolution
from ..schemas.events.parts import ReadBlob
from ..schemas.grant import pattern_text
from ..schemas.ids import call_key, parse_call_key
from .printable import whole

_SETTLES = ("approval", "resolved", "result")
"""Kinds of transcript lines that settle a call."""


_WORDS: dict[str, str] = {
    Resolution.HAPPENED: "it happened",
    Resolution.DID_NOT_HAPPEN: "it did not happen",
}
_REPORT_CHARS_MAX = 200
"""The most characters of a person's report that an error message contains."""


class UnknownCall(Refused):
    """No call, or more than one, has this name."""


class AlreadyResolved(Refused):
    """A person has already reported a different outcome of the call."""


def call_named(views: SessionViews, name: str) -> Call:
    """The call of this name, which must be waiting for a person. Raises UnknownCall."""
    waiting = (*views.turn.calls, *views.turn.doubts)
    key = key_of(views, name)
    for call in waiting:
        if call.key == key:
            return call
    if not views.turn.known:
        raise UnknownCall(f"there is no session {views.session_id}. See `foldlog sessions`.")
    past = [row for row in views.transcript.lines if row.call == key and row.kind in _SETTLES]
    if past:
        outcomes = ", ".join(f"{row.kind} {row.text}".strip() for row in past)
        raise UnknownCall(f"call {name} no longer waits for a person: {outcomes}. Nothing was "
                          f"changed.")
    pending = (call for call in waiting if call.status != CallStatus.DONE)
    names = ", ".join(f"{call.key} ({call.name}, {call.status})" for call in pending) or "none"
    raise UnknownCall(
        f"no call {name} is open in session {views.session_id}. Nothing was changed. Calls that "
        f"are open or in doubt: {names}"
    )


def demand_unresolved(
    views: SessionViews, name: str, outcome: str, report: str, read: ReadBlob
) -> None:
    """Check that no person has resolved the call in doubt, or that they reported the same outcome.

    Raises AlreadyResolved, whose message contains the earlier report.
    """
    key = key_of(views, name)
    lines = [row for row in views.transcript.lines if row.call == key and row.kind == "resolved"]
    calls = [call for call in (*views.turn.calls, *views.turn.doubts) if call.key == key]
    if not lines or any(call.status in IN_DOUBT for call in calls):
        return
    earlier = whole(lines[-1].body, read).decode("utf-8", "replace")
    if calls and lines[-1].code == outcome and report in ("", earlier):
        return
    if len(earlier) > _REPORT_CHARS_MAX:
        earlier = earlier[:_REPORT_CHARS_MAX] + "..."
    outcome_text = _WORDS.get(lines[-1].code, lines[-1].code)
    outcome_text += f" ({earlier})" if earlier else ""
    raise AlreadyResolved(
        f"call {key} was already resolved, at offset {lines[-1].offset}: {outcome_text}. Nothing "
        "was changed. To tell the model something else, send a message to the session."
    )


def demand_match(call: Call, like: Mapping[str, str], read: ReadBlob) -> None:
    """Check that the pattern `like` matches the call that it was given for. Raises Refused."""
    if granting([f"{call.name} {pattern_text(like)}"], call.name, "", whole(call.args, read)):
        return
    raise Refused(
        f"the pattern does not match this call of {call.name} itself. Nothing was written. Name "
        f"each of its arguments, and no others; * does not match {SHELL_SPECIAL}, line breaks, "
        "or `..` in a path."
    )


def key_of(views: SessionViews, name: str) -> str:
    """TURN.STEP.INDEX of the call with this name. Raises UnknownCall if the name is ambiguous."""
    if parse_call_key(name) is not None:
        return name
    keys = {call.key for call in (*views.turn.calls, *views.turn.doubts) if call.call_id == name}
    keys |= {
        call_key(fragment.turn, fragment.step, fragment.index)
        for fragment in views.context.fragments
        if fragment.kind == "result" and fragment.call_id == name
    }
    if len(keys) > 1:
        raise UnknownCall(
            f"the call_id {name} names {len(keys)} calls of this session "
            f"({', '.join(sorted(keys))}). Nothing was changed. Name the call as TURN.STEP.INDEX"
        )
    return keys.pop() if keys else name
