"""The ends of a tool call: which sequences of accepted TOOL_RESULT and HUMAN_RESOLVED are lawful.

The first outcome wins. One more result is heard, once, where it goes against what somebody else
had said of the call: a person, or a reconciler that denied it. Then a person is asked (again), and
that answer is final. So a call has one end or three, and two while that person is awaited.
"""

from collections.abc import Sequence

from foldlog.schemas import events as ev

End = ev.ToolResult | ev.HumanResolved


def are_lawful(ends: Sequence[End], *, at_rest: bool = True) -> bool:
    """Whether a call may have ended so. at_rest: nobody is awaited any more."""
    match ends:
        case []:
            return not at_rest
        case [ev.ToolResult() | ev.HumanResolved()]:
            return True
        case [first, ev.ToolResult() as late]:
            return not at_rest and _goes_against(first, late)
        case [first, ev.ToolResult() as late, ev.HumanResolved()]:
            return _goes_against(first, late)
    return False


def _goes_against(first: End, late: ev.ToolResult) -> bool:
    if isinstance(first, ev.HumanResolved):
        return (first.outcome == "happened") != (late.outcome == "ok")
    denied = first.via == "reconciler" and first.outcome == "not_run"
    return denied and late.outcome == "ok"
