"""The ends of a tool call: which sequences of accepted TOOL_RESULT and HUMAN_RESOLVED are lawful.

The first outcome wins. One more result is accepted, once, if it contradicts an end that came from a
person, or from a reconciler that denied the call. A person is then asked (again), and the person's
answer is final. So a call has one end or three, and two while the person's answer is pending.
"""

from collections.abc import Sequence

from foldlog.schemas import events as ev

End = ev.ToolResult | ev.HumanResolved


def are_lawful(ends: Sequence[End], *, at_rest: bool = True) -> bool:
    """Whether a call may have these ends. at_rest: whether no answer of a person is pending."""
    match ends:
        case []:
            return not at_rest
        case [ev.ToolResult() | ev.HumanResolved()]:
            return True
        case [first, ev.ToolResult() as late]:
            return not at_rest and _contradicts(first, late)
        case [first, ev.ToolResult() as late, ev.HumanResolved()]:
            return _contradicts(first, late)
    return False


def _contradicts(first: End, late: ev.ToolResult) -> bool:
    if isinstance(first, ev.HumanResolved):
        return (first.outcome == "happened") != (late.outcome == "ok")
    denied = first.via == "reconciler" and first.outcome == "not_run"
    return denied and late.outcome == "ok"
