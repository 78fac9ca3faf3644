"""Explains why a session waits or continues: the conditions of the WAKE rows that matched, and the
rows that could match next.

Both come from the tables by which workers act: WAKE, and the states of a tool call. This file has
only the words for conditions and changes; a test checks that every condition and change has words.
"""

from collections.abc import Iterator
from typing import Any

from ...processors.fold.calls import CALLS, CallStatus, Row as CallRow
from ...processors.fold.projections.turn_view import ONCE, Call
from ...processors.wake.table import BY_ID, BY_LANE, Action, Fact, Row, When
from ...schemas import events as ev

NEXT_MAX = 6
"""The most rows to return that could match next."""

SAYS: dict[tuple[str, Fact], str] = {
    ("gate", "live"): "the session is live",
    ("closing", False): "the turn is not closing",
    ("closing", True): "the turn is closing",
    ("kind", "generation"): "a model call runs",
    ("kind", "call"): "a tool call runs",
    ("effect", "mine"): "this worker runs it",
    ("effect", "gone"): "its worker has ended",
    ("chunks", True): "it had streamed text",
    ("may_end", False): "something may still arrive",
    ("may_end", True): "nothing more can arrive",
    ("expired", False): "it has not expired",
    ("expired", True): "it has expired",
    ("claim", "mine"): "the worker that holds the partition claimed it",
    ("claim", "other"): "its claim is valid",
    ("claim", "gone"): "its worker has ended",
    ("claim", "void"): "its claim never began",
    ("left", True): "attempts are left",
    ("left", False): "no attempt is left",
    ("repeatable", True): "it may run again",
    ("repeatable", False): "it must not run twice",
    ("told", False): "no person has been asked yet",
    ("permanent", False): "the failure may pass",
    ("permanent", True): "no attempt can help",
    ("retry_due", True): "the next attempt is due",
    ("retry_due", False): "the next attempt is not due yet",
    ("rebuilds", False): "another request would not help",
    ("stop", False): "nothing stops it",
    ("stop", True): "a stop condition holds",
    ("over_cap", False): "the request fits the budget",
    ("over_cap", True): "the request would be too long",
    ("may_come", False): "no summary is being made",
    ("may_come", True): "a summary is being made",
    ("worth", True): "it is worth it",
    ("worth", False): "it is not worth it",
    ("due", "first"): "the model was not called yet in this turn",
    ("due", "answered"): "every call has its result",
    ("due", "steer"): "a message was added to the turn",
    ("due", "pause"): "the model paused",
    ("due", "too_long"): "the request was too long",
    ("due", "part_refused"): "a part of the request was refused",
    ("due", "ended"): "the model is done",
    ("status", "proposed"): "the model proposed the call",
    ("status", "asks"): "the call asks for approval",
    ("status", "allowed"): "the call is allowed",
    ("status", "started"): "the call was started",
    ("status", "doubt"): "the call is in doubt",
    ("status", "contradicted"): "the reports about the call disagree",
    ("status", "owed"): "it was decided",
    ("status", "running"): "it is claimed",
    ("status", "failed"): "the last attempt failed",
    ("status", "due"): "there is something to do",
}
"""The words for each condition."""

PASSES: dict[tuple[str, Fact], tuple[Fact, str]] = {
    ("expired", False): (True, "The approval expires"),
    ("retry_due", False): (True, "The time of the next attempt comes"),
    ("claim", "other"): ("gone", "The worker is lost"),
    ("claim", "mine"): ("gone", "The worker is lost"),
    ("may_end", False): (True, "Everything has ended, or the grace period is over"),
    ("may_come", True): (False, "No summary arrives"),
}
"""The facts that change with time: the next value, and the words for the change."""

CALL_CHANGES: dict[type, str] = {
    ev.ToolInvoked: "The call is decided",
    ev.ApprovalDecided: "A person allows or denies it",
    ev.ToolStarted: "A worker claims the call",
    ev.ToolResult: "The tool answers",
    ev.ToolFailedUncertain: "The outcome stays unknown",
    ev.HumanResolved: "A person reports what happened",
}
"""The words for events that change the status of a call. Changes with time are in PASSES; the end
of the turn, which may end any call, is left out.
"""

DECISIONS: dict[Fact, str] = {
    "allow": "A person allows it",
    "deny": "A person denies it",
    "ask": "A person must approve it",
}

MODEL_CHANGES: dict[Fact, tuple[tuple[str, str], ...]] = {
    "owed": (("A worker claims the model call", "S2w"),),
    "running": (("The model proposes calls", "T1"), ("The model is done", "N1"),
                ("The attempt fails", "S1w")),
    "failed": (),
}
"""What changes a model call: the words, and the row that matches after the change."""


def conditions(row: Row) -> list[str]:
    """The conditions of a row in words."""
    return [
        next(SAYS[name, value] for value in values if (name, value) in SAYS)
        for name, values in row.when.items()
    ]


def next_rows(row: Row, call: Call | None = None) -> list[dict[str, Any]]:
    """What could happen next while a row matches: {when, then, row}; `then` is the row's text in
    WAKE. `call`: the call that the row is about. Rows that cannot match it are omitted, such as
    those for repeatable calls if the call's tool is `once`.
    """
    # Whether attempts are left is not fixed: it depends on the agent's limits.
    fixed: When = {} if call is None else {"repeatable": (call.effect != ONCE,)}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for when, candidate in _changes(row, fixed):
        found.setdefault((when, candidate.id), {
            "when": when, "then": candidate.why, "row": candidate.id,
        })
    return list(found.values())[:NEXT_MAX]


def _changes(row: Row, fixed: When) -> Iterator[tuple[str, Row]]:
    statuses = row.when.get("status", ())
    if row.lane == "T":
        for change in CALLS:
            if change.event in CALL_CHANGES and _is_of(change, statuses):
                yield from (one for one in _of_call(change) if one[1] is not row)
    if row.lane == "S":
        for status in statuses:
            for words, name in MODEL_CHANGES.get(status, ()):
                yield words, BY_ID[name]
    for name, values in row.when.items():
        for value in values:
            if (name, value) in PASSES:
                later, words = PASSES[name, value]
                for candidate in _matching(row, {**row.when, **fixed, name: (later,)}):
                    yield words, candidate


def _is_of(change: CallRow, statuses: tuple[Fact, ...]) -> bool:
    is_change = change.becomes is not None and change.becomes not in statuses
    return is_change and any(status in change.when.get("status", ()) for status in statuses)


def _of_call(change: CallRow) -> Iterator[tuple[str, Row]]:
    """A description of the change, and the row of WAKE that matches after the change. If the change
    ends the call, this is the row by which the turn continues.
    """
    decided = [*change.when.get("decision", ()), *change.when.get("decides", ())]
    words = next((DECISIONS[one] for one in decided if one in DECISIONS), CALL_CHANGES.get(
        change.event, change.why))
    if change.becomes is CallStatus.DONE:
        yield words, BY_ID["N3"]
        return
    fitting = [one for one in BY_LANE["T"] if change.becomes in one.when.get("status", ())]
    waits = [one for one in fitting if one.owed is Action.WAIT]
    for candidate in (waits or fitting)[:1]:
        yield words, candidate


def _matching(row: Row, facts: When) -> Iterator[Row]:
    for candidate in BY_LANE[row.lane]:
        if candidate is not row and all(
            name not in facts or set(values) & set(facts[name])
            for name, values in candidate.when.items()
        ):
            yield candidate


def why_json(row_id: str, call: Call | None = None) -> dict[str, Any]:
    """The JSON that explains a row that matched. `call`: the call that the row is about."""
    row = BY_ID[row_id]
    return {"conditions": conditions(row), "next": next_rows(row, call)}
