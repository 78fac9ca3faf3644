"""The state machine of a tool call: a table with the call's next status and the ruling for each
event.

Rulings and the turn view read the same rows, so an event changes a call exactly if it is accepted.
For each event, exactly one row matches each combination of its facts: a test tries them all.
call_facts.py computes the facts.

The theory behind the rows:

A call is decided before it runs. The model proposes it; TOOL_INVOKED allows it, asks a person, or
answers it without a run. A decision counts only if it was made from the newest input (its basis),
and an approval only for the arguments that the person saw. What is decided is not decided again.

A call runs in attempts. TOOL_STARTED claims the next attempt, so two workers cannot begin the same
one. A new owner may claim a further attempt while an older one still runs somewhere: the newest
attempt has the claim, but the outcome of any attempt is an outcome of the call. So the first one
that says what happened is final, whichever attempt it is from. "Not run" is different: an older
attempt says that only of itself.

A call of a tool with the effect `once` may be in doubt. Its owner died or gave up after the call
began, and nobody knows whether the effect happened. A doubt outlives its turn. It ends with a late
result, with a reconciler's answer, or with a person's report. A person is notified once. A call
that may be repeated is never in doubt: another attempt is made, or the turn ends without it.

A call may be contradicted. A person or a reconciler said what happened, and then the tool's own
late result says otherwise. Nothing is taken back, because the model has read the first outcome; the
call waits for a person's last word.
"""

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from ...schemas import events as ev
from .ruling import ACCEPTED, DUPLICATE, STALE, SUPERSEDED, UNKNOWN_CALL, VOID, Ruling, refused


class CallStatus(StrEnum):
    """The status of a call."""

    PROPOSED = "proposed"
    ASKS = "asks"
    ALLOWED = "allowed"
    STARTED = "started"
    DOUBT = "doubt"
    CONTRADICTED = "contradicted"
    DONE = "done"


PROPOSED, ASKS, ALLOWED, STARTED, DOUBT, CONTRADICTED, DONE = CallStatus

UNDECIDED = (PROPOSED, ASKS)
NOT_BEGUN = (PROPOSED, ASKS, ALLOWED)
BEGUN = (STARTED, DOUBT)
"""The statuses of calls that were started and have no known outcome."""
OPEN = (*NOT_BEGUN, *BEGUN)
"""The statuses of calls for which the turn waits. It does not wait for a contradicted call."""
IN_DOUBT = (DOUBT, CONTRADICTED)
"""The statuses of calls for which a person must find out whether the call had its effect."""


When = dict[str, tuple[object, ...]]
"""The values that match, by the name of the fact."""


class Row(NamedTuple):
    """One row: it matches an event if each fact in `when` has one of the listed values.

    `becomes`: the call's next status; None leaves it unchanged.
    `ruling`: the ruling on the event. A ruling that refuses the event has only a code here;
        rulings/producers.py adds the message.
    """

    event: type
    when: When
    becomes: CallStatus | None
    ruling: Ruling
    why: str


def _accept(event: type, when: When, becomes: CallStatus | None, why: str) -> Row:
    return Row(event, when, becomes, ACCEPTED, why)


def _drop(event: type, when: When, ruling: Ruling, why: str) -> Row:
    return Row(event, when, None, ruling, why)


def _refuse(event: type, when: When, code: str, why: str) -> Row:
    return Row(event, when, None, refused(code, ""), why)


def _except(*statuses: CallStatus) -> tuple[CallStatus, ...]:
    return tuple(status for status in CallStatus if status not in statuses)


YES, NO = (True,), (False,)
DECIDES: When = {"status": (PROPOSED,), "closing": NO, "basis": ("newest",)}
ANSWERS: When = {"status": (ASKS,), "arguments": ("shown",)}
GRANTS: When = {**ANSWERS, "grant": ("valid",), "closing": NO}
STARTS: When = {"turn": ("runs",), "attempt": ("next",)}
RETURNS: When = {"attempt": ("older", "newest")}
LATE_WORD: When = {**RETURNS, "status": (DONE,)}

CALLS: tuple[Row, ...] = (
    _drop(ev.ToolInvoked, {"status": _except(PROPOSED)}, DUPLICATE, "decided before"),
    _drop(ev.ToolInvoked, {"status": (PROPOSED,), "closing": YES}, VOID, "the turn is ending"),
    _drop(ev.ToolInvoked, {"status": (PROPOSED,), "closing": NO, "basis": ("older",)}, STALE,
          "a newer input came in between"),
    _accept(ev.ToolInvoked, {**DECIDES, "decides": ("ask",)}, ASKS, "a person must approve"),
    _accept(ev.ToolInvoked, {**DECIDES, "decides": ("allow",)}, ALLOWED, "it may run"),
    _accept(ev.ToolInvoked, {**DECIDES, "decides": ("done",)}, DONE,
            "it is answered without a run: denied, invalid, or a stored result"),

    _refuse(ev.ApprovalDecided, {"status": (ASKS,), "arguments": ("others",)}, "other_arguments",
            "the approval is for other arguments"),
    _refuse(ev.ApprovalDecided, {**ANSWERS, "grant": ("invalid",)}, "invalid_grant",
            "the grant cannot be read"),
    _refuse(ev.ApprovalDecided, {**ANSWERS, "grant": ("valid",), "closing": YES}, "turn_over",
            "the turn is ending"),
    _accept(ev.ApprovalDecided, {**GRANTS, "decision": ("allow",)}, ALLOWED, "approved"),
    _accept(ev.ApprovalDecided, {**GRANTS, "decision": ("deny",)}, DONE, "denied"),
    _drop(ev.ApprovalDecided, {"status": _except(ASKS), "repeats": YES}, DUPLICATE,
          "a repeated decision"),
    _refuse(ev.ApprovalDecided, {"status": _except(ASKS), "repeats": NO}, "not_asking",
            "the call is not waiting for approval"),

    _accept(ev.ApprovalExpired, {"status": (ASKS,)}, DONE, "not approved in time"),
    _drop(ev.ApprovalExpired, {"status": _except(ASKS)}, DUPLICATE, "decided before it expired"),

    _drop(ev.ToolStarted, {"turn": ("closing", "ended")}, VOID, "the turn is not running"),
    _drop(ev.ToolStarted, {"turn": ("runs",), "attempt": ("other",)}, DUPLICATE,
          "another claim came first"),
    _accept(ev.ToolStarted, {**STARTS, "status": (ALLOWED,)}, STARTED, "claimed"),
    _accept(ev.ToolStarted, {**STARTS, "status": (STARTED,), "epoch": ("newer",)}, STARTED,
            "taken over under a newer epoch"),
    _drop(ev.ToolStarted, {**STARTS, "status": (STARTED,), "epoch": ("older",)}, SUPERSEDED,
          "the claim's owner is newer"),
    _drop(ev.ToolStarted, {**STARTS, "status": _except(ALLOWED, STARTED)}, SUPERSEDED,
          "the call may not run"),

    _drop(ev.ToolResult, {"attempt": ("unknown",)}, UNKNOWN_CALL, "no such attempt was claimed"),
    _drop(ev.ToolResult, {"status": BEGUN, "attempt": ("older",), "outcome": ("not_run",)},
          SUPERSEDED, "an older attempt did not run, but the newest may"),
    _accept(ev.ToolResult, {"status": BEGUN, "attempt": ("older",), "outcome": ("other", "error")},
            DONE, "the first outcome of any attempt counts"),
    _accept(ev.ToolResult, {"status": BEGUN, "attempt": ("newest",)}, DONE,
            "the first outcome of any attempt counts"),
    _accept(ev.ToolResult, {"status": (ALLOWED,), "attempt": ("newest",),
            "outcome": ("error", "not_run")}, DONE, "it ended before it started"),
    _drop(ev.ToolResult, {"status": (ALLOWED,), "attempt": ("newest",), "outcome": ("other",)},
          DUPLICATE, "no attempt was claimed"),
    _drop(ev.ToolResult, {"status": (ALLOWED,), "attempt": ("older",)}, DUPLICATE,
          "no attempt was claimed"),
    _accept(ev.ToolResult, {**LATE_WORD, "contradicts": YES}, CONTRADICTED,
            "the tool's late outcome contradicts a person or a reconciler"),
    _drop(ev.ToolResult, {**LATE_WORD, "contradicts": NO}, DUPLICATE, "the call has its outcome"),
    _drop(ev.ToolResult, {**RETURNS, "status": (*UNDECIDED, CONTRADICTED)}, DUPLICATE,
          "no outcome is expected"),

    _accept(ev.ToolFailedUncertain, {"status": (STARTED,), "attempt": ("newest",)}, DOUBT,
            "it may have had its effect"),
    _drop(ev.ToolFailedUncertain, {"status": (STARTED,), "attempt": ("other",)}, SUPERSEDED,
          "another attempt counts"),
    _accept(ev.ToolFailedUncertain, {"status": (DOUBT,), "attempt": ("newest",), "unasked": YES},
            DOUBT, "the reconciler does not know either: the doubt remains"),
    _drop(ev.ToolFailedUncertain, {"status": (DOUBT,), "attempt": ("other",), "unasked": YES},
          SUPERSEDED, "another attempt counts"),
    _drop(ev.ToolFailedUncertain, {"status": (DOUBT,), "unasked": NO}, DUPLICATE, "known before"),
    _drop(ev.ToolFailedUncertain, {"status": _except(STARTED, DOUBT)}, DUPLICATE,
          "no attempt is running"),

    _accept(ev.HumanNeeded, {"status": IN_DOUBT, "reported": NO}, None, "notify a person once"),
    _drop(ev.HumanNeeded, {"status": IN_DOUBT, "reported": YES}, DUPLICATE, "notified before"),
    _drop(ev.HumanNeeded, {"status": _except(*IN_DOUBT)}, DUPLICATE, "nothing is in doubt"),

    _accept(ev.HumanResolved, {"status": IN_DOUBT}, DONE, "a person reported what happened"),
    _drop(ev.HumanResolved, {"status": _except(*IN_DOUBT), "repeats": YES}, DUPLICATE,
          "a repeated resolution"),
    _refuse(ev.HumanResolved, {"status": _except(*IN_DOUBT), "repeats": NO}, "not_in_doubt",
            "the call is not in doubt"),

    _accept(ev.TurnEnded, {"status": NOT_BEGUN}, DONE, "it never ran"),
    _accept(ev.TurnEnded, {"status": (STARTED,), "effect": ("repeatable",)}, DONE,
            "abandoned: it may be repeated"),
    _accept(ev.TurnEnded, {"status": (STARTED,), "effect": ("once",)}, DOUBT,
            "it began and may have had its effect"),
    _accept(ev.TurnEnded, {"status": (DOUBT,)}, DOUBT, "a doubt remains after its turn"),
    _accept(ev.TurnEnded, {"status": (CONTRADICTED, DONE)}, None, "the call has its outcome"),
)

_ANY = tuple(CallStatus)
_BOOLS = (False, True)
DOMAINS: dict[type, When] = {
    ev.ToolInvoked: {"status": _ANY, "closing": _BOOLS, "basis": ("newest", "older"),
                     "decides": ("ask", "allow", "done")},
    ev.ApprovalDecided: {"status": _ANY, "arguments": ("shown", "others"), "closing": _BOOLS,
                         "grant": ("valid", "invalid"), "decision": ("allow", "deny"),
                         "repeats": _BOOLS},
    ev.ApprovalExpired: {"status": _ANY},
    ev.ToolStarted: {"status": _ANY, "turn": ("runs", "closing", "ended"),
                     "attempt": ("next", "other"), "epoch": ("newer", "older")},
    ev.ToolResult: {"status": _ANY, "attempt": ("older", "newest", "unknown"),
                    "outcome": ("error", "not_run", "other"), "contradicts": _BOOLS},
    ev.ToolFailedUncertain: {"status": _ANY, "attempt": ("newest", "other"),
                             "unasked": _BOOLS},
    ev.HumanNeeded: {"status": _ANY, "reported": _BOOLS},
    ev.HumanResolved: {"status": _ANY, "repeats": _BOOLS},
    ev.TurnEnded: {"status": _ANY, "effect": ("once", "repeatable")},
}
"""The facts of each event, with all values that a fact may have."""

BY_EVENT = {event: tuple(row for row in CALLS if row.event is event) for event in DOMAINS}


def _only_status(event: type) -> CallStatus | None:
    """The next status, if it is the same in all accepted rows of an event, else None."""
    statuses = {row.becomes for row in BY_EVENT[event] if row.ruling.accepted}
    return statuses.pop() if len(statuses) == 1 else None


ONLY_STATUS = {event: _only_status(event) for event in DOMAINS}
"""For each event, the next status, if it is the same in all accepted rows of the event, else None.
If it is the same, no row has to be searched.
"""


@cache  # facts have few values
def row_for(event: type, *facts: object) -> Row:
    """The row that matches an event; `facts`: values in the order of the event's DOMAINS."""
    known = dict(zip(DOMAINS[event], facts, strict=True))
    for row in BY_EVENT[event]:
        if all(known[name] in values for name, values in row.when.items()):
            return row
    raise AssertionError(f"no row of CALLS for {event.__name__} and {known}")
