"""Explains why a session waits or continues: the conditions of the WAKE rows that matched, and the
rows that could match next.

Both come from the tables by which workers act: WAKE, and the states of a tool call. This file has
only the words for rows, conditions and changes; a test checks that each of them has words.
"""

from collections.abc import Iterator
from typing import Any

from ...processors.fold.calls import CALLS, CallStatus, Row as CallRow
from ...processors.fold.projections.turn_view import ONCE, Call
from ...processors.wake.table import BY_ID, BY_LANE, Action, Fact, Row, When
from ...schemas import events as ev

NEXT_MAX = 6
"""The most rows to return that could match next."""

ROWS: dict[str, str] = {
    "R": "A command was refused, and its sender must get the reason",
    "A1": "The turn is closing, so the model call is stopped",
    "A1t": "The turn is closing, so the tool call is stopped",
    "A2": "The worker is lost, and what it streamed of the answer is kept",
    "C1": "The turn is closing, and waits a short time for work that is still ending",
    "C2": "The turn can end now",
    "T1": "The model proposed a call, and its arguments and approval must be checked",
    "T2": "The approval expires, and the call is not run",
    "T2w": "A person must allow or deny the call",
    "T3": "The call may run, and waits for a free worker",
    "T4": "A worker has claimed the call, and begins it once",
    "T4w": "A worker runs the call",
    "T5": "The worker never began the call, so another attempt may claim it",
    "T5r": "The worker is lost, and the tool may run again",
    "T6v": "No worker ever began the call, so it counts as not run",
    "T6r": "All attempts are used up, so the model gets an error",
    "T6": "The worker is lost, and the call may have happened",
    "T7": "A person must find out what happened",
    "T8": "The worker is lost, and the call of an ended turn may have happened",
    "T8w": "The worker may still report on the call of an ended turn",
    "S1": "The model call was decided, and waits for a free worker",
    "S1r": "The model call is due again",
    "S1w": "The model call failed, and waits before it is tried again",
    "S2": "A worker has claimed the model call, and begins it once",
    "S2w": "A worker runs the model call",
    "S3": "The worker is lost, so another one takes over the model call",
    "S4": "The model call failed, and another attempt cannot help",
    "S4u": "All attempts of the model call are used up",
    "S4g": "The worker is lost, and all attempts of the model call are used up",
    "N1": "The model is done, so the turn ends",
    "N1s": "A stop condition holds, so the turn ends",
    "N2": "The request would be too long for the budget, so the turn ends",
    "N2w": "The request would be too long for the budget, so the turn waits for a summary",
    "N3": "The next model call must be decided",
    "D1": "The answer must be delivered to its channel",
    "D1r": "The delivery is due again",
    "D1w": "The delivery failed, and waits before it is tried again",
    "D2": "A worker has claimed the delivery, and begins it once",
    "D2w": "A worker delivers the answer",
    "D3": "The worker is lost, so another one delivers the answer with the same idempotency key",
    "D4": "All attempts of the delivery are used up, so it is given up",
    "D4g": "The worker is lost and all attempts are used up, so the delivery is given up",
    "B1": "Background work is due, and waits for a free worker",
    "B1w": "The extraction of memories failed, and waits before it is tried again",
    "B1s": "A summary would leave out too little, so none is made now",
    "B2": "A worker has claimed the background work, and begins it once",
    "B2a": "The turn was stopped, so its background work is stopped",
    "B2w": "A worker does the background work",
    "B3": "The worker is lost, so another one takes over the background work",
    "B3u": "All attempts of the background work are used up, so it is given up",
    "B3a": "The turn was stopped and the worker is lost, so the background work is given up",
}
"""What each row of WAKE means, for people who do not know the table. The table's own text, which
the reference and `foldlog wake` show, is written for readers of the code.
"""

SAYS: dict[tuple[str, Fact], str] = {
    ("gate", "live"): "the session can continue",
    ("closing", False): "the turn is not closing",
    ("closing", True): "the turn is closing",
    ("kind", "generation"): "a model call runs",
    ("kind", "call"): "a tool call runs",
    ("effect", "mine"): "the worker in charge runs it",
    ("effect", "gone"): "its worker has ended",
    ("chunks", True): "it had streamed text",
    ("may_end", False): "something may still arrive",
    ("may_end", True): "nothing more can arrive",
    ("expired", False): "it has not expired",
    ("expired", True): "it has expired",
    ("claim", "mine"): "the worker in charge claimed it",
    ("claim", "other"): "its worker may still do this before the deadline",
    ("claim", "gone"): "its worker has ended",
    ("claim", "void"): "its worker never began it",
    ("left", True): "attempts are left",
    ("left", False): "no attempt is left",
    ("repeatable", True): "it may run again",
    ("repeatable", False): "it must not run twice",
    ("told", False): "no person was asked yet",
    ("told", True): "a person was asked",
    ("unasked", True): "no reconciler was asked yet",
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
    ("worth", True): "it would save enough",
    ("worth", False): "it would save too little",
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
    ("status", "due"): "there is work to do",
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
    """What could happen next while a row matches: {when, then, row}; `then` is the row in words.
    `call`: the call that the row is about. Rows that cannot match it are omitted, such as
    those for repeatable calls if the call's tool is `once`.
    """
    # Whether attempts are left is not fixed: it depends on the agent's limits.
    fixed: When = {} if call is None else {"repeatable": (call.effect != ONCE,)}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for when, candidate in _changes(row, fixed):
        found.setdefault((when, candidate.id), {
            "when": when, "then": ROWS[candidate.id], "row": candidate.id,
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
    return {
        "says": ROWS[row_id], "conditions": conditions(row), "next": next_rows(row, call),
    }
