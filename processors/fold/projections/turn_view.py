"""The values of the turn view, which is a session's work in flight. The turn fold computes them,
and WAKE reads them.

The view is bounded. It has the arguments of calls, but no content of messages (which is in the
messages view) and none of answers (which is in the context view).
"""

from enum import StrEnum

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.enums import Effect, EndReason, Outcome, Resolution
from ....schemas.events import Body, GenComplete, ProposedCall
from ....schemas.ids import call_key, parse_call_key
from ....schemas.value import Value, replace
from ..calls import DOUBT, NOT_BEGUN, OPEN, PROPOSED, CallStatus, row_for

REFUSALS_MAX = 64  # pending refusals that are kept; older ones are only counted
SEEN_MAX = 64  # cancel, command and reminder ids kept to recognize duplicates
GRANTS_MAX = 64
QUEUE_MAX = 256  # messages that may wait behind a turn; more are refused
RESOLVED_MAX = 16  # resolved doubts kept, to detect a late result that contradicts them
REMINDERS_MAX = 64
CONTRADICTS_RECONCILER = 2  # from this version on, a late success contradicts "did not happen"
HOLDS_TOOLS = 2  # from here on, only the project tool may lock, and refused tools get answers
DEMANDS_CONFIRMATION = 3  # from here on, a call that locks a project must confirm a new one
# Errors in GEN_FAILED: the request is too long in tokens or bytes; or the model refused a part of
# it, thinking or a file.
TOO_LONG = ("context_too_long", "request_too_large")
THINKING_REFUSED = "thinking_refused"
FILE_REFUSED = "file_refused"
PARTS = (THINKING_REFUSED, FILE_REFUSED)  # a request can leave them out
BAD_REQUEST = "bad_request"  # for a reason that has no class of its own
REBUILDABLE = (*TOO_LONG, *PARTS, BAD_REQUEST)


class GenerationStatus(StrEnum):
    """The status of a model call's newest attempt, or OWED before the first attempt."""

    OWED = "owed"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    ANSWERED = "done"


# Python 3.11 looks enum members up slowly, and these are read for every event.
OWED, RUNNING, FAILED, STOPPED, ANSWERED = GenerationStatus
INTERRUPTED, CANCELLED = EndReason.INTERRUPTED, EndReason.CANCELLED
TERMINATED, BUDGET_EXCEEDED = EndReason.TERMINATED, EndReason.BUDGET_EXCEEDED
ONCE = Effect.ONCE
OK, ERROR, NOT_RUN = Outcome.OK, Outcome.ERROR, Outcome.NOT_RUN
HAPPENED = Resolution.HAPPENED


AnyClaim = (
    ev.GenStart | ev.GenResumed | ev.ToolStarted | ev.BackgroundStarted | ev.DeliveryStarted
)


class Claim(Value):
    """The owner of an attempt, the offset and the time of the claim, and the deadline. Times are in
    Unix ms."""

    owner: str
    epoch: int
    offset: int
    at: int
    deadline: int


def claim_of(entry: Entry, event: AnyClaim) -> Claim:
    """The claim that an accepted event makes."""
    return Claim(event.owner, event.epoch, entry.offset, entry.at, event.deadline)


class Generation(Value):
    """The model call of the current step and its newest attempt.

    `called`: digest of the LLM_CALLED. `chain`: the earlier attempts whose text the newest attempt
    continues, oldest first, each as (attempt, seq of its last chunk that is kept).
    """

    offset: int
    at: int
    called: bytes
    status: GenerationStatus = OWED
    attempt: int = 0
    claim: Claim | None = None
    retry_at: int = 0
    permanent: bool = False
    error: str = ""
    stop_reason: str = ""
    chain: tuple[tuple[int, int], ...] = ()


class Call(Value):
    """One tool call. calls.py lists the events that change its status.

    `human`: what a person reported about the call. `denied`: a reconciler reported that the call
    did not happen. `told`: HUMAN_NEEDED was written for this status. `reported`: a late outcome of
    the tool that contradicts `human` or `denied`; only one is accepted. `unasked`: the turn ended
    while the call ran, and nobody has tried to find out whether it happened.
    """

    turn: int
    step: int
    index: int
    call_id: str
    name: str
    args: Body
    args_sha256: str
    args_error: str | None
    proposed_at: int
    status: CallStatus = PROPOSED
    effect: str = ONCE
    decision: str = ""
    expires_at: int = 0
    attempt: int = 0
    claim: Claim | None = None
    outcome: str = ""
    human: str = ""
    denied: bool = False
    told: bool = False
    reported: str = ""
    unasked: bool = False

    @property
    def key(self) -> str:
        """The key of the call, TURN.STEP.INDEX."""
        return call_key(self.turn, self.step, self.index)


class Waiting(Value):
    """A message queued behind the running turn."""

    message_id: str
    when_busy: str


class Closing(Value):
    """Why the open turn must end, and since when (Unix ms). If there are several reasons, `since`
    is the time of the first."""

    reason: EndReason
    since: int


class Refusal(Value):
    """A pending answer to a producer."""

    offset: int
    code: str
    detail: str


class Reminder(Value):
    """A text to be sent to the model once."""

    reminder_id: str
    text: str


class TurnView(Value):
    """The work in flight of a session. `number`: the open or last turn; `step`: its last step."""

    known: bool = False
    rules: int = 1  # the `rules` of SESSION_OPENED, see CONTRADICTS_RECONCILER
    since: int = 0  # broker time of SESSION_OPENED, Unix ms
    agent: str = ""
    terminated: bool = False
    basis: int = -1
    basis_sha: bytes = b""
    number: int = 0
    open: bool = False
    opened_offset: int = -1
    step: int = 0
    due_at: int = 0  # broker time of the last event that may have made a step due, Unix ms
    rebuilt: bool = False  # the model refused a request of this turn, which was rebuilt
    generation: Generation | None = None
    calls: tuple[Call, ...] = ()
    closing: Closing | None = None
    should_stop: bool = False
    owned: tuple[str, ...] = ()  # message ids of this turn, not yet in a request
    said: tuple[str, ...] = ()  # message ids that are in a request of this turn
    queue: tuple[Waiting, ...] = ()
    doubts: tuple[Call, ...] = ()  # doubts of ended turns
    grants: tuple[str, ...] = ()  # see grants.py
    reminders: tuple[Reminder, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    refusals_dropped: int = 0
    cancel_ids: tuple[str, ...] = ()
    command_ids: tuple[str, ...] = ()
    reminder_ids: tuple[str, ...] = ()  # ids of pending and sent reminders, to recognize duplicates


class Stream(Value):
    """How far the running attempt has streamed; not in TurnView, because chunks are frequent."""

    turn: int = 0
    step: int = 0
    attempt: int = 0
    chunks: int = 0
    last_at: int = 0


def find_call(view: TurnView, turn: int, step: int, index: int) -> Call | None:
    """The call with this turn, step and index, or None. It is a call of the open turn, or a call in
    doubt of an ended turn."""
    for call in (*view.calls, *view.doubts):
        if call.index == index and call.step == step and call.turn == turn:
            return call
    return None


NAMES_KEY = (ev.ApprovalDecided, ev.ApprovalExpired, ev.HumanNeeded, ev.HumanResolved)
NamesKey = ev.ApprovalDecided | ev.ApprovalExpired | ev.HumanNeeded | ev.HumanResolved
NamesPlace = ev.ToolInvoked | ev.ToolStarted | ev.ToolResult | ev.ToolFailedUncertain
AboutCall = NamesPlace | NamesKey
"""The events about one call. Workers' events have its turn, step and index,
other events its key."""


def call_of(view: TurnView, event: AboutCall) -> Call | None:
    """The call that an event is about, or None."""
    if not isinstance(event, NAMES_KEY):
        return find_call(view, event.turn, event.step, event.index)
    place = parse_call_key(event.call)
    return None if place is None else find_call(view, *place)


def calls_of(event: GenComplete) -> tuple[ProposedCall, ...]:
    """The calls of a response. If its stop_reason is not tool_use, the response may end in the
    middle of a call, so none of its calls count."""
    return event.calls if event.stop_reason == "tool_use" else ()


def is_open(call: Call) -> bool:
    """Whether the turn must still wait for the call. It does not wait for a contradicted call."""
    return call.status in OPEN


def too_long(view: TurnView) -> bool:
    """Whether the model refused the newest request as too long, for the first time in this turn."""
    return error_to_mend(view) in TOO_LONG


def thinking_refused(view: TurnView) -> bool:
    """Whether the model refused its own thinking, for the first time in this turn."""
    return error_to_mend(view) == THINKING_REFUSED


def to_rebuild(view: TurnView) -> bool:
    """Whether the newest request must be rebuilt in another way, which is tried once per turn."""
    return error_to_mend(view) in REBUILDABLE


def part_refused(view: TurnView) -> bool:
    """Whether the model refused a part that a request can leave out, for the first time in this
    turn."""
    return error_to_mend(view) in (*PARTS, BAD_REQUEST)


def error_to_mend(view: TurnView) -> str | None:
    """The error of the newest request. None if the request has not failed, or if this turn has
    already rebuilt a request."""
    generation = view.generation
    if generation is None or view.rebuilt or generation.status is not FAILED:
        return None
    return generation.error


def generation_deadline(generation: Generation, stream: Stream) -> int:
    """The time (Unix ms) after which the running attempt counts as lost. Each chunk extends it by
    the stall timeout."""
    claim = generation.claim
    assert claim is not None
    if stream.attempt != generation.attempt or not stream.chunks:
        return claim.deadline
    return max(claim.deadline, stream.last_at + (claim.deadline - claim.at))


def closed(call: Call) -> tuple[Call, str] | None:
    """The call after TURN_ENDED, and its result for the model; None if the call already has an
    outcome.

    A `once` call that has begun stays in doubt and outlives the turn; repeatable calls are
    abandoned.
    """
    effect = "once" if call.effect == ONCE else "repeatable"
    becomes = row_for(ev.TurnEnded, call.status, effect).becomes
    if becomes is None:
        return None
    if becomes is DOUBT:
        unasked = call.unasked or call.status is CallStatus.STARTED
        return replace(call, status=becomes, unasked=unasked), OUTCOME_UNKNOWN
    if call.status in NOT_BEGUN:
        return replace(call, status=becomes, outcome=NOT_RUN), "Not run: the turn ended."
    return replace(call, status=becomes, outcome=ERROR), "Abandoned: the turn ended."


OUTCOME_UNKNOWN = (
    "Outcome unknown: the call may or may not have had its effect. A person is asked; do not "
    "repeat it until you know."
)


def contradicts(call: Call, outcome: str) -> bool:
    """Whether a late outcome contradicts what a person or a reconciler reported about the call.

    A reconciler that reports an effect has seen it, so only its report "did not happen" can be
    contradicted.
    """
    if call.human:
        return (call.human == HAPPENED) != (outcome == OK)
    return call.denied and outcome == OK
