"""transcript: what a person sees of a session, as rows that only grow.

Superseded attempts never get here: only accepted outcomes do. Chunks are not stored in any view; a
viewer folds those of the open attempt itself (consumers/).
"""

from ...schemas import events as ev
from ...schemas.value import Value, replace
from ..rows import Rows
from .session_state import SessionState, triggered
from .turn_view import TurnView, find_call


class Line(Value):
    """One thing seen. kind: message, answer, partial, call, asks, result, doubt, attempt, ended,
    phase, project, terminated.

    `name` is the message_id, tool name, reason or phase; `call` is TURN.STEP.INDEX; `text` is a
    note for people.
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
    """A channel that has an answer."""

    turn: int
    step: int
    channel: str
    offset: int


class TranscriptView(Value):
    """Lines in order, and which channels have which answers."""

    lines: Rows[Line]
    sent: Rows[Sent]


def _sent_key(row: Sent) -> tuple[int, int, str]:
    return (row.turn, row.step, row.channel)


def initial() -> TranscriptView:
    """An empty transcript; made anew because rows share their storage."""
    return TranscriptView(Rows(), Rows(key=_sent_key))


def apply(
    view: TranscriptView, entry, before: TurnView, turn: TurnView, state: SessionState
) -> TranscriptView:
    """The view after an accepted event; `state` is the session state before it."""
    event = entry.event
    if isinstance(event, ev.GenSent):
        row = Sent(event.turn, event.step, event.channel, entry.offset)
        return replace(view, sent=view.sent.append(row))
    made = _line(entry, event, before, turn, state)
    if made is None:
        return view
    kind, place, fields = made
    line = Line(kind, *place, entry.offset, entry.at, **fields)
    return replace(view, lines=view.lines.append(line))


def _line(entry, event, before: TurnView, turn: TurnView, state: SessionState):
    """(kind, (turn, step), fields) of the line that an event adds, or None."""
    here = (turn.number, turn.step)
    match event:
        case ev.MessageReceived():
            return "message", here, {"name": event.message_id, "body": event.content}
        case ev.GenComplete():
            fields = {"name": event.stop_reason, "body": event.content}
            return "answer", (event.turn, event.step), fields
        case ev.GenStopped() if before.closing is not None:
            fields = {"name": event.why, "body": event.content}
            return "partial", (event.turn, event.step), fields
        case ev.GenFailed():
            text = f"attempt {event.attempt}: {event.error}: {event.detail}"
            return "attempt", (event.turn, event.step), {"name": "failed", "text": text}
        case ev.GenResumed():
            text = f"attempt {event.attempt} by {event.strategy}: the one before was lost"
            return "attempt", (event.turn, event.step), {"name": "resumed", "text": text}
        case ev.TurnEnded():
            return "ended", (event.turn, before.step), {"name": event.reason}
        case ev.PhaseTriggered():
            return "phase", here, {"name": event.trigger}
        case ev.ProjectLocked():
            return "project", here, {"name": event.project_id}
        case ev.SessionTerminated():
            return "terminated", here, {"text": event.reason}
        case _:
            return _call_line(entry, event, before, state)


def _call_line(entry, event, before: TurnView, state: SessionState):
    if hasattr(event, "call"):
        place = tuple(int(part) for part in event.call.split("."))
    elif hasattr(event, "index"):
        place = (event.turn, event.step, event.index)
    else:
        return None
    call = find_call(before, *place)
    assert call is not None, "an accepted event names a call that is there"
    fields: dict = {"name": call.name, "call": call.key}
    match event:
        case ev.ToolInvoked(outcome=None):
            kind = "asks" if event.approval == "ask" else "call"
            fields["body"] = call.args
        case ev.ToolInvoked():
            kind = "result"
            fields |= {"body": event.content, "text": event.outcome}
        case ev.ToolResult():
            _, refusals = triggered(state, event.triggers)
            kind = "result"
            fields |= {"body": event.content, "text": "; ".join((event.outcome, *refusals))}
        case ev.ToolFailedUncertain():
            kind = "doubt"
            fields["text"] = event.reason
        case ev.ApprovalDecided():
            kind = "approval"
            fields["text"] = event.decision
        case ev.ApprovalExpired():
            kind = "approval"
            fields["text"] = "expired"
        case ev.HumanResolved():
            kind = "resolved"
            fields |= {"body": event.content, "text": event.outcome}
        case ev.HumanNeeded():
            kind = "doubt"
            fields["text"] = event.why
        case _:
            return None
    return kind, place[:2], fields
