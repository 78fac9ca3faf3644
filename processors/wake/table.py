"""The WAKE table: the obligation of a session for each combination of facts about its views.

Normal operation, retry, restart, rebalance and a manual wake all read this table, so recovery needs
no code of its own. facts.py computes the facts. A row matches when each fact that it names has one
of the values that the row lists. At most one row of a lane matches: a test tries every combination.

A lane has at most one obligation for each of its subjects, which are in parentheses in this list.
Lanes A (effect that has begun) and C (turn) apply while a turn closes; lanes T (call), S (model
call) and N (turn) apply while it runs; lanes B (background work), D (delivery to a push channel)
and R (refusal) always apply.
"""

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from ...schemas.enums import Role
from ..fold.calls import ALLOWED, ASKS, IN_DOUBT, PROPOSED, STARTED, CallStatus
from ..fold.projections.delivery import DeliveryStatus
from ..fold.projections.partition import GONE, MINE, OTHER, VOID, ClaimStatus
from ..fold.projections.turn_view import ANSWERED, FAILED, OWED, RUNNING

Fact = str | bool
Facts = dict[str, Fact]
"""The facts of one subject, by the names that rows use."""
When = dict[str, tuple[Fact, ...]]
"""The values that match, by the name of the fact."""


class Action(StrEnum):
    """The action of a row. A value in capitals is the type of an event to write; a value in lower
    case is an action of a worker."""

    APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
    BACKGROUND_DONE = "BACKGROUND_DONE"
    BACKGROUND_STARTED = "BACKGROUND_STARTED"
    COMPACTION_SKIPPED = "COMPACTION_SKIPPED"
    DELIVERY_FAILED = "DELIVERY_FAILED"
    DELIVERY_STARTED = "DELIVERY_STARTED"
    GEN_RESUMED = "GEN_RESUMED"
    GEN_START = "GEN_START"
    GEN_STOPPED = "GEN_STOPPED"
    HUMAN_NEEDED = "HUMAN_NEEDED"
    LLM_CALLED = "LLM_CALLED"
    REFUSED = "REFUSED"
    TOOL_FAILED_UNCERTAIN = "TOOL_FAILED_UNCERTAIN"
    TOOL_INVOKED = "TOOL_INVOKED"
    TOOL_RESULT = "TOOL_RESULT"
    TOOL_STARTED = "TOOL_STARTED"
    TURN_ENDED = "TURN_ENDED"
    ABORT = "abort"
    BEGIN = "begin"
    WAIT = "wait"


class StepDue(StrEnum):
    """Why a step is due. No step is due if one is in flight (NO) or if the model is done
    (ENDED)."""

    NO = "no"
    FIRST = "first"
    ANSWERED = "answered"
    STEER = "steer"
    PAUSE = "pause"
    TOO_LONG = "too_long"
    PART_REFUSED = "part_refused"
    ENDED = "ended"


SESSIONS, MODELS, TOOLS, BACKGROUND, DELIVERY = Role


class Row(NamedTuple):
    """One row. `when`: the values that match, by fact.
    `why`: the reason, for people and the docs."""

    id: str
    lane: str
    when: When
    owed: Action
    role: Role
    why: str


LIVE: When = {"gate": ("live",)}
RUNS: When = {**LIVE, "closing": (False,)}
CLOSES: When = {**LIVE, "closing": (True,)}
ASKED: When = {"status": (CallStatus.DOUBT,), "told": (True,), "unasked": (True,)}
REBUILT = (StepDue.TOO_LONG, StepDue.PART_REFUSED)  # a request is built again, without a part
ANOTHER = (StepDue.ANSWERED, StepDue.STEER, StepDue.PAUSE, *REBUILT)
ANY = (StepDue.FIRST, *ANOTHER)

WAKE: tuple[Row, ...] = (
    Row("R", "R", {}, Action.REFUSED, SESSIONS, "a refused producer must get the reason"),
    Row("A1", "A", {**CLOSES, "kind": ("generation",), "effect": (MINE,)}, Action.ABORT, MODELS,
        "my model call must end; it writes its own outcome"),
    Row("A1t", "A", {**CLOSES, "kind": ("call",), "effect": (MINE,)}, Action.ABORT, TOOLS,
        "my tool call must end; it writes its own outcome"),
    Row("A2", "A", {**CLOSES, "kind": ("generation",), "effect": (GONE,), "chunks": (True,)},
        Action.GEN_STOPPED, MODELS,
        "the partial answer of a lost attempt is read from its chunks"),
    Row("C1", "C", {**CLOSES, "may_end": (False,)}, Action.WAIT, SESSIONS,
        "effects are still ending, within the grace period"),
    Row("C2", "C", {**CLOSES, "may_end": (True,)}, Action.TURN_ENDED, SESSIONS,
        "nothing more can arrive, or the grace period is over"),
    Row("T1", "T", {**RUNS, "status": (PROPOSED,)}, Action.TOOL_INVOKED, SESSIONS,
        "the model proposed a call that is not decided yet: the phase and the rules decide, as of "
        "the basis; a call in a wrong phase is answered with the code wrong_phase"),
    Row("T2", "T", {**RUNS, "status": (ASKS,), "expired": (True,)}, Action.APPROVAL_EXPIRED,
        SESSIONS,
        "the approval expired without an answer"),
    Row("T2w", "T", {**RUNS, "status": (ASKS,), "expired": (False,)}, Action.WAIT, SESSIONS,
        "a person has to answer"),
    Row("T3", "T", {**RUNS, "status": (ALLOWED,)}, Action.TOOL_STARTED, TOOLS,
        "the call is allowed: claim it when a slot is free; T1 checked its phase, and an approval "
        "holds although the phase changed since"),
    Row("T4", "T", {**RUNS, "status": (STARTED,), "claim": (MINE,)}, Action.BEGIN, TOOLS,
        "my claim was read back: begin, once, before start_by"),
    Row("T4w", "T", {**RUNS, "status": (STARTED,), "claim": (OTHER,)}, Action.WAIT, TOOLS,
        "another owner may still report"),
    Row("T5", "T", {**RUNS, "status": (STARTED,), "claim": (VOID,), "left": (True,)},
        Action.TOOL_STARTED, TOOLS,
        "the claim never began: claim the call again"),
    Row("T5r", "T", {**RUNS, "status": (STARTED,), "claim": (GONE,), "repeatable": (True,),
        "left": (True,)}, Action.TOOL_STARTED, TOOLS,
        "the owner is dead and the tool may run again"),
    Row("T6v", "T", {**RUNS, "status": (STARTED,), "claim": (VOID,), "left": (False,)},
        Action.TOOL_RESULT, TOOLS,
        "every claim lost its partition before it began: not run"),
    Row("T6r", "T", {**RUNS, "status": (STARTED,), "claim": (GONE,), "repeatable": (True,),
        "left": (False,)}, Action.TOOL_RESULT, TOOLS,
        "attempts are used up: an error the model sees"),
    Row("T6", "T", {**RUNS, "status": (STARTED,), "claim": (GONE,), "repeatable": (False,)},
        Action.TOOL_FAILED_UNCERTAIN, TOOLS,
        "it may have happened: ask its reconciler, else it is in doubt; it never reruns by itself"),
    Row("T7", "T", {"status": IN_DOUBT, "told": (False,)}, Action.HUMAN_NEEDED,
        SESSIONS,
        "a person must settle what happened"),
    Row("T8", "T", {**ASKED, "claim": (GONE,)}, Action.TOOL_FAILED_UNCERTAIN, TOOLS,
        "its turn ended, and its owner is dead: ask its reconciler, which may settle the doubt"),
    Row("T8w", "T", {**ASKED, "claim": (OTHER,)}, Action.WAIT, TOOLS,
        "its turn ended, and its owner may still report"),
    Row("S1", "S", {**RUNS, "status": (OWED,), "left": (True,)}, Action.GEN_START, MODELS,
        "a step was decided: claim its model call when a slot is free"),
    Row("S1r", "S", {**RUNS, "status": (FAILED,), "permanent": (False,), "left": (True,),
        "retry_due": (True,)}, Action.GEN_START, MODELS,
        "the next attempt is due"),
    Row("S1w", "S", {**RUNS, "status": (FAILED,), "permanent": (False,), "left": (True,),
        "retry_due": (False,)}, Action.WAIT, MODELS,
        "the next attempt is not due yet"),
    Row("S2", "S", {**RUNS, "status": (RUNNING,), "claim": (MINE,)}, Action.BEGIN, MODELS,
        "my claim was read back: begin, once, within the start window"),
    Row("S2w", "S", {**RUNS, "status": (RUNNING,), "claim": (OTHER,)}, Action.WAIT, MODELS,
        "another owner still streams, or its deadline has not passed"),
    Row("S3", "S", {**RUNS, "status": (RUNNING,), "claim": (GONE, VOID), "left": (True,)},
        Action.GEN_RESUMED, MODELS,
        "the owner is dead: take over, by replace or by resume"),
    Row("S4", "S", {**RUNS, "status": (FAILED,), "permanent": (True,), "rebuilds": (False,)},
        Action.TURN_ENDED, SESSIONS,
        "no attempt can help"),
    Row("S4u", "S", {**RUNS, "status": (FAILED, OWED), "permanent": (False,), "left": (False,)},
        Action.TURN_ENDED, SESSIONS,
        "attempts are used up"),
    Row("S4g", "S", {**RUNS, "status": (RUNNING,), "claim": (GONE, VOID), "left": (False,)},
        Action.TURN_ENDED, SESSIONS,
        "attempts are used up and none runs"),
    Row("N1", "N", {**RUNS, "due": (StepDue.ENDED,)}, Action.TURN_ENDED, SESSIONS,
        "the model is done: no calls, no steer"),
    Row("N1s", "N", {**RUNS, "due": ANOTHER, "stop": (True,)}, Action.TURN_ENDED, SESSIONS,
        "a stop condition holds: steps, a stop tool, or should-stop"),
    Row("N2", "N", {**RUNS, "due": ANY, "stop": (False,), "over_cap": (True,),
        "may_come": (False,)}, Action.TURN_ENDED, SESSIONS,
        "the request would exceed the hard cap, and no summary can shorten it"),
    Row("N2w", "N", {**RUNS, "due": ANY, "stop": (False,), "over_cap": (True,),
        "may_come": (True,)}, Action.WAIT, SESSIONS,
        "the request would exceed the hard cap: a summary may still arrive"),
    Row("N3", "N", {**RUNS, "due": ANY, "stop": (False,), "over_cap": (False,)},
        Action.LLM_CALLED, SESSIONS,
        "the next step, with CONTEXT_SET before it if the prefix changed"),
    Row("D1", "D", {**LIVE, "status": (OWED,)}, Action.DELIVERY_STARTED, DELIVERY,
        "an answer must be pushed to a channel: claim its delivery when a slot is free"),
    Row("D1r", "D", {**LIVE, "status": (FAILED,), "left": (True,), "retry_due": (True,)},
        Action.DELIVERY_STARTED, DELIVERY,
        "the next attempt is due"),
    Row("D1w", "D", {**LIVE, "status": (FAILED,), "left": (True,), "retry_due": (False,)},
        Action.WAIT, DELIVERY,
        "the next attempt is not due yet"),
    Row("D2", "D", {**LIVE, "status": (RUNNING,), "claim": (MINE,)}, Action.BEGIN, DELIVERY,
        "my claim was read back: begin, once, within the start window"),
    Row("D2w", "D", {**LIVE, "status": (RUNNING,), "claim": (OTHER,)}, Action.WAIT, DELIVERY,
        "another owner still delivers, or its deadline has not passed"),
    Row("D3", "D", {**LIVE, "status": (RUNNING,), "claim": (GONE, VOID), "left": (True,)},
        Action.DELIVERY_STARTED, DELIVERY,
        "the owner is dead: deliver again, with the same idempotency key"),
    Row("D4", "D", {**LIVE, "status": (FAILED,), "left": (False,)}, Action.DELIVERY_FAILED,
        DELIVERY,
        "attempts are used up: it is given up"),
    Row("D4g", "D", {**LIVE, "status": (RUNNING,), "claim": (GONE, VOID), "left": (False,)},
        Action.DELIVERY_FAILED, DELIVERY,
        "all attempts are used up, and none of them runs: the work is given up"),
    Row("B1", "B", {**RUNS, "status": ("due",), "worth": (True,), "retry_due": (True,)},
        Action.BACKGROUND_STARTED, BACKGROUND,
        "work is due: claim it when a slot is free"),
    Row("B1w", "B", {**RUNS, "status": ("due",), "worth": (True,), "retry_due": (False,)},
        Action.WAIT, BACKGROUND,
        "the last memory extraction failed: the next one is not due yet"),
    Row("B1s", "B", {**RUNS, "status": ("due",), "worth": (False,)}, Action.COMPACTION_SKIPPED,
        SESSIONS,
        "too little could be left out: record that, and try again when there is more"),
    Row("B2", "B", {**LIVE, "status": (RUNNING,), "stop": (False,), "claim": (MINE,)}, Action.BEGIN,
        BACKGROUND,
        "my claim was read back: begin, once, within the start window"),
    Row("B2a", "B", {**LIVE, "status": (RUNNING,), "stop": (True,), "claim": (MINE,)}, Action.ABORT,
        BACKGROUND,
        "the turn was aborted, and its background work with it"),
    Row("B2w", "B", {**LIVE, "status": (RUNNING,), "claim": (OTHER,)}, Action.WAIT, BACKGROUND,
        "another owner still works"),
    Row("B3", "B", {**RUNS, "status": (RUNNING,), "stop": (False,), "claim": (GONE, VOID),
        "left": (True,)}, Action.BACKGROUND_STARTED, BACKGROUND,
        "the owner is dead: take the work over"),
    Row("B3u", "B", {**LIVE, "status": (RUNNING,), "stop": (False,), "claim": (GONE, VOID),
        "left": (False,)}, Action.BACKGROUND_DONE, BACKGROUND,
        "attempts are used up: it is given up"),
    Row("B3a", "B", {**LIVE, "status": (RUNNING,), "stop": (True,), "claim": (GONE, VOID)},
        Action.BACKGROUND_DONE, BACKGROUND,
        "the turn was aborted and the owner is dead: the work is given up"),
)

BOOLS: tuple[Fact, ...] = (False, True)
CLAIMS = tuple(ClaimStatus)
COMMON: When = {"gate": ("live", "halted"), "closing": BOOLS}
DOMAINS: dict[str, When] = {
    "R": COMMON,
    "A": {
        **COMMON,
        "kind": ("generation", "call"),
        "effect": ("idle", MINE, GONE, OTHER),
        "chunks": BOOLS,
    },
    "C": {**COMMON, "may_end": BOOLS},
    "T": {
        **COMMON,
        "status": tuple(CallStatus),
        "expired": BOOLS,
        "claim": CLAIMS,
        "repeatable": BOOLS,
        "left": BOOLS,
        "told": BOOLS,
        "unasked": BOOLS,
    },
    "S": {
        **COMMON,
        "status": (OWED, RUNNING, FAILED, ANSWERED),
        "claim": CLAIMS,
        "left": BOOLS,
        "permanent": BOOLS,
        "retry_due": BOOLS,
        "rebuilds": BOOLS,
    },
    "N": {
        **COMMON,
        "due": tuple(StepDue),
        "stop": BOOLS,
        "over_cap": BOOLS,
        "may_come": BOOLS,
    },
    "D": {
        **COMMON,
        "status": tuple(DeliveryStatus),
        "claim": CLAIMS,
        "left": BOOLS,
        "retry_due": BOOLS,
    },
    "B": {
        **COMMON,
        "status": ("due", RUNNING),
        "worth": BOOLS,
        "retry_due": BOOLS,
        "stop": BOOLS,
        "claim": CLAIMS,
        "left": BOOLS,
    },
}
BY_LANE = {lane: tuple(row for row in WAKE if row.lane == lane) for lane in DOMAINS}
BY_ID = {row.id: row for row in WAKE}

SEED_ROWS: tuple[tuple[str, str, str], ...] = (
    ("MESSAGE_RECEIVED", "N3", "a step is decided: the model was never called"),
    ("LLM_CALLED", "S1", "the model call is claimed: it was decided but not begun"),
    ("TOOL_INVOKED", "T3, T4, T5, T6",
        "the call runs, fails or is in doubt: its claim and the tool's declared effect determine "
        "which"),
    ("TOOL_RESULT", "N3 (N1s if the turn must stop)", "the next step is decided: nothing was lost"),
    ("GEN_START, GEN_CHUNK", "S2w, S3, S4g", "wait for the owner, take over, or end the turn"),
    ("GEN_COMPLETE", "T1 or N1, and D1",
        "the answer's calls are decided, or the turn ends; an answer is pushed to its channel"),
    ("GEN_SENT", "nothing", "the session is idle"),
    ("SESSION_TERMINATED", "C2, then nothing", "the open turn is closed, then nothing is pending"),
)


def match(lane: str, facts: Facts) -> Row | None:
    """The row of a lane that matches the facts, or None. Facts that no row uses may be missing."""
    return _match(lane, tuple(facts.items()))


@cache  # facts have few values, so each combination is searched once
def _match(lane: str, facts: tuple[tuple[str, Fact], ...]) -> Row | None:
    known = dict(facts)
    for row in BY_LANE[lane]:
        if all(known[name] in values for name, values in row.when.items()):
            return row
    return None
