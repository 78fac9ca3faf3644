"""Which call somebody means: TURN.STEP.INDEX, or the provider's call_id where it is unique.

Providers repeat their ids, so a call_id is only a label. This file must not know what is decided.
"""

from collections.abc import Mapping

from ..log.errors import Refused
from ..processors.fold.grants import SHELL_SPECIAL, granting
from ..processors.fold.projections.turn_view import Call
from ..processors.fold.views import SessionViews
from ..schemas.enums import Resolution
from ..schemas.events.parts import ReadBlob
from ..schemas.grant import pattern_text
from ..schemas.ids import call_key, parse_call_key
from .contents import whole

_SETTLES = ("approval", "resolved", "result")
"""Lines of the transcript that say what became of a call."""


_WORDS: dict[str, str] = {
    Resolution.HAPPENED: "it happened",
    Resolution.DID_NOT_HAPPEN: "it did not happen",
}
_REPORT_CHARS_MAX = 200
"""Of what a person reported, in an error."""


class UnknownCall(Refused):
    """No call, or more than one, is meant by this name."""


class AlreadyResolved(Refused):
    """A person has said before what happened to the call, and said something else."""


def call_named(views: SessionViews, name: str) -> Call:
    """The call that waits for a person under that name. Raises UnknownCall."""
    waiting = (*views.turn.calls, *views.turn.doubts)
    key = key_of(views, name)
    for call in waiting:
        if call.key == key:
            return call
    if not views.turn.known:
        raise UnknownCall(f"there is no session {views.session_id}: see `foldlog sessions`")
    past = [row for row in views.transcript.lines if row.call == key and row.kind in _SETTLES]
    if past:
        became = ", ".join(f"{row.kind} {row.text}".strip() for row in past)
        raise UnknownCall(f"call {name} waits for nobody any more: {became}. Nothing was changed.")
    still = (call for call in waiting if call.status != "done")
    there = ", ".join(f"{call.key} ({call.name}, {call.status})" for call in still) or "none"
    raise UnknownCall(
        f"no call {name} is open in session {views.session_id}; open or in doubt are: {there}"
    )


def demand_unresolved(
    views: SessionViews, name: str, outcome: str, report: str, read: ReadBlob
) -> None:
    """A doubt is resolved once; the same again, or its outcome alone, is harmless.

    Raises AlreadyResolved, which says how it was.
    """
    key = key_of(views, name)
    lines = [row for row in views.transcript.lines if row.call == key and row.kind == "resolved"]
    calls = [call for call in (*views.turn.calls, *views.turn.doubts) if call.key == key]
    if not lines or any(call.status in ("doubt", "contradicted") for call in calls):
        return
    said = whole(lines[-1].body, read).decode("utf-8", "replace")
    if calls and lines[-1].text == outcome and report in ("", said):
        return
    what = said if len(said) <= _REPORT_CHARS_MAX else said[:_REPORT_CHARS_MAX] + "..."
    how = _WORDS.get(lines[-1].text, lines[-1].text) + (f" ({what})" if what else "")
    raise AlreadyResolved(
        f"call {key} was already resolved, at offset {lines[-1].offset}: {how}. Nothing was "
        "changed. To tell the model something else, send a message to the session."
    )


def demand_match(call: Call, like: Mapping[str, str], read: ReadBlob) -> None:
    """A pattern that does not match the call it was chosen for is a slip. Raises Refused."""
    if granting([f"{call.name} {pattern_text(like)}"], call.name, "", whole(call.args, read)):
        return
    raise Refused(
        f"the pattern does not match this call of {call.name} itself. Nothing was written: name "
        f"each of its arguments, and no other; * matches none of {SHELL_SPECIAL} and no line "
        "break, nor `..` in a path."
    )


def key_of(views: SessionViews, name: str) -> str:
    """TURN.STEP.INDEX of a call named either way. Raises UnknownCall when it is ambiguous."""
    if parse_call_key(name) is not None:
        return name
    meant = {call.key for call in (*views.turn.calls, *views.turn.doubts) if call.call_id == name}
    meant |= {
        call_key(fragment.turn, fragment.step, fragment.index)
        for fragment in views.context.fragments
        if fragment.kind == "result" and fragment.call_id == name
    }
    if len(meant) > 1:
        raise UnknownCall(
            f"the call_id {name} names {len(meant)} calls of this session "
            f"({', '.join(sorted(meant))}): name it as TURN.STEP.INDEX"
        )
    return meant.pop() if meant else name
