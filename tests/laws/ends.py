"""The ends of a tool call: the lawful sequences of accepted TOOL_RESULT and HUMAN_RESOLVED.

The first outcome wins. One more result is accepted, once, if it contradicts an end that came from
elsewhere: from a person, or from a reconciler that denied the call. Then a person is asked (again),
and that answer is final. So a call has one end or three, and two while that answer is pending.
"""

from collections.abc import Sequence

from foldlog.schemas import events as ev

End = ev.ToolResult | ev.HumanResolved


def are_lawful(ends: Sequence[End], *, at_rest: bool = True) -> bool:
    """Whether a call may have these ends. at_rest: no person's answer is pending."""
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
