"""The facts that the table CALLS uses, computed from the turn, a call and an event."""

from collections.abc import Callable
from typing import Any

from ...schemas import events as ev
from ...schemas.enums import Approval, Decision
from ...schemas.grant import why_wrong
from .calls import DONE, Row, row_for
from .projections.turn_view import ERROR, NOT_RUN, AboutCall, Call, TurnView, contradicts

ASK, DENY = Approval.ASK, Decision.DENY  # Python 3.11 looks enum members up slowly
Facts = tuple[object, ...]
"""Values of facts, in the order of the event's DOMAINS."""


def row_of(turn: TurnView, call: Call, event: AboutCall) -> Row:
    """The row of CALLS for an event about this call."""
    kind: type = type(event)
    return row_for(kind, *FACTS[kind](turn, call, event))


def _invoked(turn: TurnView, call: Call, event: ev.ToolInvoked) -> Facts:
    basis = "newest" if event.basis == turn.basis else "older"
    allows = "ask" if event.approval == ASK else "allow"
    decides = allows if event.outcome is None else "done"
    return call.status, turn.closing is not None, basis, decides


def _approval(turn: TurnView, call: Call, event: ev.ApprovalDecided) -> Facts:
    shown = "shown" if event.args_sha256 == call.args_sha256 else "others"
    grant = "valid" if why_wrong(event.grant) is None else "invalid"
    decision = "deny" if event.decision == DENY else "allow"
    repeats = call.decision == event.decision
    return call.status, shown, turn.closing is not None, grant, decision, repeats


def _expired(turn: TurnView, call: Call, event: ev.ApprovalExpired) -> Facts:
    return (call.status,)


def _started(turn: TurnView, call: Call, event: ev.ToolStarted) -> Facts:
    state = "runs" if call in turn.calls else "ended"
    state = state if turn.closing is None else "closing"
    attempt = "next" if event.attempt == call.attempt + 1 else "other"
    newer = call.claim is None or event.epoch > call.claim.epoch
    return call.status, state, attempt, "newer" if newer else "older"


def _result(turn: TurnView, call: Call, event: ev.ToolResult) -> Facts:
    attempt = "older" if event.attempt < call.attempt else "newest"
    if event.attempt > call.attempt:
        attempt = "unknown"
    outcome = event.outcome if event.outcome in (ERROR, NOT_RUN) else "other"
    is_news = call.status == DONE and not call.reported and contradicts(call, event.outcome)
    return call.status, attempt, outcome, is_news


def _uncertain(turn: TurnView, call: Call, event: ev.ToolFailedUncertain) -> Facts:
    return call.status, "newest" if event.attempt == call.attempt else "other", call.unasked


def _human_needed(turn: TurnView, call: Call, event: ev.HumanNeeded) -> Facts:
    return call.status, call.told


def _resolved(turn: TurnView, call: Call, event: ev.HumanResolved) -> Facts:
    return call.status, call.human == event.outcome


FACTS: dict[type, Callable[[TurnView, Call, Any], Facts]] = {
    ev.ToolInvoked: _invoked,
    ev.ApprovalDecided: _approval,
    ev.ApprovalExpired: _expired,
    ev.ToolStarted: _started,
    ev.ToolResult: _result,
    ev.ToolFailedUncertain: _uncertain,
    ev.HumanNeeded: _human_needed,
    ev.HumanResolved: _resolved,
}
