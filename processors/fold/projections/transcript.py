"""transcript: what a person sees of a session, in append-only rows.

Only accepted outcomes appear, so superseded attempts never do. No view stores chunks: a viewer
folds the chunks of the open attempt itself (client/transcript_stream.py).
"""

from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.enums import Approval, EndReason, Recovery
from ....schemas.value import Value, replace
from ..rows import Rows
from .session_state import SessionState, triggered
from .turn_view import TurnView, call_of

CONTINUED = "continued"
"""The `name` of an attempt's line if the attempt continues the text of a lost attempt."""
RESUME, REFUSAL = Recovery.RESUME, EndReason.REFUSAL


class Line(Value):
    """One line. `kind`: message, answer, partial, call, asks, approval, result, doubt, resolved,
    attempt, ended, phase, project, terminated.

    `name`: the message_id, tool, reason or trigger. In a line of kind `attempt`, `name` is
    `failed`, `resumed` (a new attempt starts without the text of the lost attempt) or `continued`
    (a new attempt continues that text). `call`: TURN.STEP.INDEX. `text`: a note for people.
    """

    kind: str
    turn: int
    step: int
    offset: int
    at: int
    name: str = ""
    call: str = ""
    body: ev.Body | None = None
    text: str = ""


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


OF_LIMIT = {"budget_exceeded": "tokens", "max_steps": "steps", "failed": "attempts"}


def _limit(event: ev.TurnEnded) -> str:
    """How much of the limit that ended a turn was used, for people; '' for other reasons."""
    if event.limit is None or event.used is None:
        return ""
    return f"{event.used:,} {OF_LIMIT.get(event.reason, 'used')}, {event.limit:,} are allowed"


def _why(event: ev.TurnEnded, lines: Rows[Line]) -> str:
    """How much of a limit was used, or why the model refused to answer, for people."""
    last = lines[-1] if event.reason == REFUSAL and len(lines) else None
    return last.text if last is not None and last.kind == "answer" else _limit(event)


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
            text = _refusal(event)
            return Line("answer", event.turn, event.step, *at, name, body=body, text=text)
        case ev.TurnEnded():
            text = _why(event, lines)
            return Line("ended", event.turn, before.step, *at, event.reason, text=text)
        case ev.GenStopped():
            if before.closing is None:
                return None
            return Line("partial", event.turn, event.step, *at, event.why, body=event.content)
        case ev.GenFailed():
            text = f"attempt {event.attempt}: {event.error}: {event.detail}"
            return Line("attempt", event.turn, event.step, *at, "failed", text=text)
        case ev.GenResumed():
            text = f"attempt {event.attempt} by {event.strategy}: the one before was lost"
            name = CONTINUED if event.strategy == RESUME else "resumed"
            return Line("attempt", event.turn, event.step, *at, name, text=text)
        case ev.PhaseTriggered():
            return Line("phase", turn.number, turn.step, *at, event.trigger)
        case ev.ProjectLocked():
            return Line("project", turn.number, turn.step, *at, event.project_id)
        case ev.SessionTerminated():
            return Line("terminated", turn.number, turn.step, *at, text=event.reason)
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
                return Line("result", *place, event.content, event.outcome)
            return Line("asks" if event.approval == Approval.ASK else "call", *place, call.args)
        case ev.ToolResult():
            _, refusals = triggered(state, before, event)
            text = "; ".join((event.outcome, *(refusal.detail for refusal in refusals)))
            return Line("result", *place, event.content, text)
        case ev.ToolFailedUncertain():
            return Line("doubt", *place, text=event.reason)
        case ev.ApprovalDecided():
            return Line("approval", *place, text=event.decision)
        case ev.ApprovalExpired():
            return Line("approval", *place, text="expired")
        case ev.HumanResolved():
            return Line("resolved", *place, event.content, event.outcome)
        case ev.HumanNeeded():
            return Line("doubt", *place, text=event.why)
        case _:
            assert_never(event)
