"""Describes an event in a sentence for people: who did what.

The page shows the event's fields on request.
"""

from typing import Any

from ...client.printable import text_of, whole
from ...processors.fold.projections.turn_view import TurnView, find_call
from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.enums import Decision, Outcome, Resolution
from ...schemas.ids import parse_call_key
from .runs import worker_name
from .summary import brief

SAID_CHARS = 90


def sentence(entry: Entry, turn: TurnView) -> str:
    """The sentence for an event; '' for a chunk.

    `turn`: the turn view after the event, which has the names of the calls.
    """
    event = entry.event
    match event:
        case ev.GenChunk() | ChunkSeen():
            return ""
        case Unreadable():
            return "This event cannot be read"
        case ev.SessionOpened():
            fork = f", forked from {event.parent_session}" if event.parent_session else ""
            return f"The session was opened for the agent {event.agent}{fork}"
        case ev.MessageReceived():
            return f"{event.by_user or 'A person'} said: “{_said(event.content)}”"
        case ev.ContextSet():
            return "The system prompt and the tools were set"
        case ev.LlmCalled():
            return f"Step {event.turn}.{event.step} was decided"
        case ev.GenStart():
            return f"{_worker(event.owner)} calls the model, attempt {event.attempt}"
        case ev.GenResumed():
            return f"{_worker(event.owner)} took over, attempt {event.attempt}"
        case ev.GenComplete():
            if event.refusal_category:
                why = event.refusal_explanation
                return f"The model refused to answer: {event.refusal_category}{why and f', {why}'}"
            count = len(event.calls)
            calls = f": {count} call{'s' if count > 1 else ''}" if count else ""
            return f"The model answered{calls}"
        case ev.GenFailed():
            return f"The attempt failed: {event.error}"
        case ev.GenStopped():
            return f"The attempt was stopped: {event.why}"
        case ev.ToolInvoked():
            asks = {"ask": "asks for approval"}.get(event.approval, "may run")
            return f"{event.name} {asks}" if event.outcome is None else f"{event.name} was not run"
        case ev.TurnEnded():
            return f"Turn {event.turn} ended: {event.reason.replace('_', ' ')}"
        case ev.PartitionTaken():
            return f"{_worker(event.owner)} took the partition for {event.role}"
        case ev.OwnerGone():
            return f"{_worker(event.owner)} has ended"
        case ev.CancelRequested():
            return f"{event.by_user or 'A person'} stopped the turn"
        case ev.ResultReplaced():
            return f"{event.by_user or 'A person'} replaced the result of call {event.call}"
        case ev.SessionTerminated():
            return f"{event.by_user or 'A person'} ended the session"
        case ev.PhaseTriggered():
            return f"The phase change {event.trigger} was requested"
        case ev.ProjectLocked():
            return f"The project {event.project_id} was chosen"
        case ev.BackgroundStarted():
            return f"{_worker(event.owner)} began background work: {event.kind}"
        case ev.BackgroundDone():
            return f"Background work {'ended' if event.ok else 'failed'}: {event.kind}"
        case ev.ContextCompacted():
            return "A summary was made"
        case ev.ResultCompacted():
            return "A result got a short form"
        case ev.CompactionSkipped():
            return "No summary was made: it would have left out too little"
        case ev.ReminderAdded():
            return "A reminder for the model was added to the next request"
        case ev.ItemAdded():
            items = f"{event.items} " if event.items > 1 else ""  # 0 in records of old versions
            return f"Another framework added {items}item{'' if event.items == 1 else 's'}"
        case ev.ItemRetracted():
            return f"Another framework removed {'all its items' if event.all else 'its last item'}"
        case ev.RecordSkipped():
            return f"{event.by_user or 'A person'} skipped the record at offset {event.offset}"
        case ev.DeliveryStarted():
            return f"Delivery of the answer to {event.channel} began, attempt {event.attempt}"
        case ev.DeliveryFailed():
            return f"Delivery of the answer to {event.channel} failed: {event.error}"
        case ev.GenSent():
            return f"The answer was delivered to {event.channel}"
        case ev.Refused():
            return f"A request was refused: {event.code}"
    return _about_call(event, turn)


def _about_call(event: Any, turn: TurnView) -> str:
    match event:
        case ev.ToolStarted():
            return f"{_name(event, turn)} was started, attempt {event.attempt}"
        case ev.ToolResult():
            how = "returned" if event.outcome == Outcome.OK else event.outcome.replace("_", " ")
            return f"{_name(event, turn)} {how}"
        case ev.ToolFailedUncertain():
            return f"{_name(event, turn)} is in doubt: {brief(event.reason, SAID_CHARS)}"
        case ev.ApprovalDecided():
            did = "allowed" if event.decision == Decision.ALLOW else "denied"
            return f"{event.by_user or 'A person'} {did} {_name(event, turn)}"
        case ev.ApprovalExpired():
            return f"The approval of {_name(event, turn)} expired without a decision"
        case ev.HumanNeeded():
            return f"A person was asked about {_name(event, turn)}"
        case ev.HumanResolved():
            did = "happened" if event.outcome == Resolution.HAPPENED else "did not happen"
            return f"{event.by_user or 'A person'} said: {_name(event, turn)} {did}"
    raise AssertionError(f"{type(event).__name__} has no sentence")


def _name(event: Any, turn: TurnView) -> str:
    key = getattr(event, "call", None)
    place = parse_call_key(key) if key else (event.turn, event.step, event.index)
    call = find_call(turn, *place) if place is not None else None
    return call.name if call is not None else f"call {key or '.'.join(map(str, place or ()))}"


def _worker(owner: str) -> str:
    name = worker_name(owner)
    return name[0].upper() + name[1:]


def _said(body: ev.Body) -> str:
    data = whole(body, None)
    return brief(text_of(data) or data[:400].decode("utf-8", "replace"), SAID_CHARS)
