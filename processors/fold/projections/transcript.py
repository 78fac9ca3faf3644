"""transcript: what a person sees of a session, in append-only rows.

Only accepted outcomes appear, so superseded attempts never do. No view stores chunks: a viewer
folds the chunks of the open attempt itself (client/transcript_stream.py).
"""

from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.enums import Approval, EndReason, Recovery
from ....schemas.ids import parse_call_key
from ....schemas.value import Value, replace
from ..rows import Rows
from .session_state import RefusedTrigger, SessionState, refusals_of
from .turn_view import TurnView, call_of

FAILED = "failed"
CONTINUED = "continued"
"""The `name` of an attempt's line if the attempt continues the text of a lost attempt."""
REPLACED = "replaced"
"""The `cause` of a result's line if a person replaced the result in a fork."""
ASK, RESUME, REFUSAL = Approval.ASK, Recovery.RESUME, EndReason.REFUSAL


class Line(Value):
    """One line.

    `kind`: message, answer, partial, call, asks, approval, result, doubt, resolved, attempt, ended,
    phase, project, terminated.
    `name`: the message_id, tool, reason or trigger. In a line of kind `attempt`, `name` is
    `failed`, `resumed` (a new attempt starts without the text of the lost attempt) or `continued`
    (a new attempt continues that text).
    `call`: TURN.STEP.INDEX.
    `code`: the outcome of a result or of a doubt, the decision on an approval, the class of a
    failed attempt's error, or the strategy of a new attempt.
    `cause`: the finer code of a failed attempt's error, or `replaced`.
    `attempt`: the number of an attempt.
    `used`, `limit`: of the limit that ended a turn.
    `refused`: the triggers of a result that the fold refused, or the call that the phase forbids.
    `note`: what a provider, a worker or a person wrote.
    `text`: all of this in words, for people; programs must not parse it.
    """

    kind: str
    turn: int
    step: int
    offset: int
    at: int
    name: str = ""
    call: str = ""
    body: ev.Body | None = None
    code: str = ""
    note: str = ""
    attempt: int = 0
    cause: str = ""
    used: int | None = None
    limit: int | None = None
    refused: tuple[RefusedTrigger, ...] = ()

    @property
    def text(self) -> str:
        """The line in words."""
        return in_words(self)


class Sent(Value):
    """The delivery of an answer to a channel."""

    turn: int
    step: int
    channel: str
    offset: int


class TranscriptView(Value):
    """Lines in order, and the answers that each channel received."""

    lines: Rows[Line]
    sent: Rows[Sent]


CallEvent = (
    ev.ToolInvoked
    | ev.ToolResult
    | ev.ToolFailedUncertain
    | ev.ApprovalDecided
    | ev.ApprovalExpired
    | ev.HumanResolved
    | ev.HumanNeeded
)
OtherEvent = (
    ev.MessageReceived
    | ev.GenComplete
    | ev.GenStopped
    | ev.GenFailed
    | ev.GenResumed
    | ev.ResultReplaced
    | ev.TurnEnded
    | ev.PhaseTriggered
    | ev.ProjectLocked
    | ev.SessionTerminated
)
_OF_CALLS = frozenset(get_args(CallEvent))
READS = _OF_CALLS | {ev.GenSent, *get_args(OtherEvent)}


def initial() -> TranscriptView:
    """An empty transcript; a new value each time, because rows share storage."""
    return TranscriptView(Rows(), Rows(key=attrgetter("turn", "step", "channel")))


def apply(
    view: TranscriptView, entry: Entry, before: TurnView, turn: TurnView, state: SessionState
) -> TranscriptView:
    """The view after an accepted event; `state` is the session state before it."""
    event = entry.event
    if type(event) in _OF_CALLS:
        line: Line | None = _call_line(entry, event, before, state)
    elif type(event) is ev.GenSent:
        row = Sent(event.turn, event.step, event.channel, entry.offset)
        return replace(view, sent=view.sent.append(row))
    else:
        line = _line(entry, event, before, turn, view.lines)
    return view if line is None else replace(view, lines=view.lines.append(line))


OF_LIMIT = {"budget_exceeded": "token", "max_steps": "step", "failed": "attempt"}


def in_words(line: Line) -> str:
    """What a line states besides its name and content, for people."""
    match line.kind:
        case "attempt" if line.name == FAILED:
            return f"attempt {line.attempt}: {line.code}: {line.note}"
        case "attempt":
            return f"attempt {line.attempt} by {line.code}: the one before was lost"
        case "ended" if line.used is not None and line.limit is not None:
            unit = OF_LIMIT.get(line.name)
            what = f"{unit}{'s' * (line.used != 1)}" if unit else "used"
            allowed = "is" if line.limit == 1 else "are"
            return f"{line.used:,} {what}, {line.limit:,} {allowed} allowed"
        case "result" if line.cause == REPLACED:
            return "; ".join(filter(None, (line.code, "replaced by a person", line.note)))
        case "result":
            return "; ".join((line.code, *(each.detail for each in line.refused)))
    return line.note or line.code


def _why_refused(event: ev.TurnEnded, lines: Rows[Line]) -> str:
    """Why the model refused to answer; '' if the turn ended for another reason."""
    last = lines[-1] if event.reason == REFUSAL and len(lines) else None
    return last.note if last is not None and last.kind == "answer" else ""


def _refusal(event: ev.GenComplete) -> str:
    return ": ".join(filter(None, (event.refusal_category, event.refusal_explanation)))


def _line(
    entry: Entry, event: OtherEvent, before: TurnView, turn: TurnView, lines: Rows[Line]
) -> Line | None:
    """The line that an event adds if it is not about a call."""
    at = (entry.offset, entry.at)
    match event:
        case ev.MessageReceived():
            name, body = event.message_id, event.content
            return Line("message", turn.number, turn.step, *at, name, body=body)
        case ev.GenComplete():
            name, body = event.stop_reason, event.content
            note = _refusal(event)
            return Line("answer", event.turn, event.step, *at, name, body=body, note=note)
        case ev.TurnEnded():
            note = _why_refused(event, lines)
            return Line(
                "ended", event.turn, before.step, *at, event.reason, note=note,
                used=event.used, limit=event.limit,
            )
        case ev.GenStopped():
            if before.closing is None:
                return None
            return Line("partial", event.turn, event.step, *at, event.why, body=event.content)
        case ev.GenFailed():
            return Line(
                "attempt", event.turn, event.step, *at, FAILED, code=event.error,
                note=event.detail, attempt=event.attempt, cause=event.cause,
            )
        case ev.GenResumed():
            name = CONTINUED if event.strategy == RESUME else "resumed"
            return Line(
                "attempt", event.turn, event.step, *at, name,
                code=event.strategy, attempt=event.attempt,
            )
        case ev.ResultReplaced():
            place = parse_call_key(event.call)
            assert place is not None, "an accepted event names a call"
            tool = next((line.name for line in lines if line.call == event.call), "")
            return Line(
                "result", *place[:2], *at, tool, event.call, event.content, event.outcome,
                event.reason, cause=REPLACED,
            )
        case ev.PhaseTriggered():
            return Line("phase", turn.number, turn.step, *at, event.trigger)
        case ev.ProjectLocked():
            return Line("project", turn.number, turn.step, *at, event.project_id)
        case ev.SessionTerminated():
            return Line("terminated", turn.number, turn.step, *at, note=event.reason)
        case _:
            assert_never(event)


def _call_line(entry: Entry, event: CallEvent, before: TurnView, state: SessionState) -> Line:
    """The line that an event about a call adds."""
    call = call_of(before, event)
    assert call is not None, "an accepted event names a call that is there"
    place = (call.turn, call.step, entry.offset, entry.at, call.name, call.key)
    match event:
        case ev.ToolInvoked():
            if event.outcome is not None:
                refused = refusals_of(state, before, event)
                return Line("result", *place, event.content, event.outcome, refused=refused)
            return Line("asks" if event.approval == ASK else "call", *place, call.args)
        case ev.ToolResult():
            refused = refusals_of(state, before, event)
            return Line("result", *place, event.content, event.outcome, refused=refused)
        case ev.ToolFailedUncertain():
            return Line("doubt", *place, note=event.reason)
        case ev.ApprovalDecided():
            return Line("approval", *place, code=event.decision)
        case ev.ApprovalExpired():
            return Line("approval", *place, code="expired")
        case ev.HumanResolved():
            return Line("resolved", *place, event.content, event.outcome)
        case ev.HumanNeeded():
            return Line("doubt", *place, note=event.why)
        case _:
            assert_never(event)
