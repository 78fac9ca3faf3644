"""Rulings on what workers write: decisions, claims, chunks and outcomes.

A worker is never refused, because nothing waits for an answer: an event that does not fit the views
is ignored, and WAKE decides again. A decision that lost a race has a stale basis (law 8).
"""

from typing import Any

from ....schemas import events as ev
from ....schemas.codec import ChunkSeen
from ..call_facts import row_of
from ..cut_points import must_think
from ..projections.turn_view import Generation, call_of, is_open, to_rebuild
from ..ruling import ACCEPTED, DUPLICATE, LATE, STALE, SUPERSEDED, UNKNOWN_CALL, VOID, Ruling
from ..views import SessionViews
from . import delivery as delivery_rulings
from .background import may_adopt
from .judges import Judges

CLOSING_REASONS = ("terminated", "cancelled", "interrupted")


def context_set(views: SessionViews, event: ev.ContextSet) -> Ruling:
    """A prefix that is already in force is a duplicate; a running turn keeps its own."""
    view, turn = views.context, views.turn
    if view.prefix_sha == event.sha256:
        return DUPLICATE
    runs = (turn.open and turn.step > 0) or must_think(view.request, view.fragments)
    return STALE if runs else ACCEPTED


def step_is_due(views: SessionViews) -> bool:
    """Whether the open turn has no step in flight: none yet, answered with all calls decided, or
    refused by the model as it was built."""
    turn = views.turn
    if not turn.open or turn.closing is not None:
        return False
    if turn.step == 0 or to_rebuild(turn):
        return True
    done = turn.generation is not None and turn.generation.status == "done"
    return done and not any(is_open(call) for call in turn.calls)


def llm_called(views: SessionViews, event: ev.LlmCalled) -> Ruling:
    """The next step of the open turn, decided on what is still the newest input."""
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if turn.closing is not None:
        return VOID
    if event.step <= turn.step:
        return DUPLICATE
    if event.basis != turn.basis or event.context_sha256 != views.context.prefix_sha:
        return STALE
    sayable = {*turn.owned, *(w.message_id for w in turn.queue if w.when_busy == "steer")}
    pending = {reminder.reminder_id for reminder in turn.reminders}
    fits = sayable.issuperset(event.includes) and pending.issuperset(event.reminders)
    fits = fits and may_adopt(views, event)
    if event.step != turn.step + 1 or not step_is_due(views) or not fits:
        return STALE
    return ACCEPTED


def tool_invoked(views: SessionViews, event: ev.ToolInvoked) -> Ruling:
    """Decides a proposed call, once."""
    call = call_of(views.turn, event)
    return LATE if call is None else row_of(views.turn, call, event).ruling


def approval_expired(views: SessionViews, event: ev.ApprovalExpired) -> Ruling:
    """Only a call that still waits for approval can expire."""
    call = call_of(views.turn, event)
    if call is None or call not in views.turn.calls:
        return LATE
    return row_of(views.turn, call, event).ruling


def turn_ended(views: SessionViews, event: ev.TurnEnded) -> Ruling:
    """Ends the open turn: for the reason it is closing, or when nothing in it is open."""
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if event.basis != turn.basis:
        return STALE
    if turn.closing is not None:
        return ACCEPTED if event.reason == turn.closing.reason else STALE
    if event.reason in CLOSING_REASONS:
        return STALE
    if event.reason == "failed":
        over = ("failed", "stopped", "running")  # the last attempt, in any of these states
        failed = turn.generation is not None and turn.generation.status in over
        return ACCEPTED if failed else STALE
    if event.reason == "budget_exceeded" and step_is_due(views):
        return ACCEPTED
    return ACCEPTED if turn.step > 0 and step_is_due(views) else STALE


def refused_event(views: SessionViews, event: ev.Refused) -> Ruling:
    """Answers a refusal that is still pending."""
    owed = any(refusal.offset == event.offset for refusal in views.turn.refusals)
    return ACCEPTED if owed else DUPLICATE


def human_needed(views: SessionViews, event: ev.HumanNeeded) -> Ruling:
    """Once for each doubt, and once more for a contradiction."""
    call = call_of(views.turn, event)
    return DUPLICATE if call is None else row_of(views.turn, call, event).ruling


def reminder_added(views: SessionViews, event: ev.ReminderAdded) -> Ruling:
    """One reminder per id, waiting or already sent (constraint 6)."""
    return DUPLICATE if event.reminder_id in views.turn.reminder_ids else ACCEPTED


def _generation(views: SessionViews, event: Any) -> Generation | Ruling:
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if event.step != turn.step or turn.generation is None:
        return SUPERSEDED
    return turn.generation


def _claimable(
    views: SessionViews, event: ev.GenStart | ev.GenResumed
) -> Generation | Ruling:
    """The generation of a claim that was made for exactly the decision that counts."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    if views.turn.closing is not None:
        return VOID
    return generation if event.called == generation.called else STALE


def gen_start(views: SessionViews, event: ev.GenStart) -> Ruling:
    """Claims the next attempt of the decided step, for exactly that decision."""
    generation = _claimable(views, event)
    if isinstance(generation, Ruling):
        return generation
    if event.attempt != generation.attempt + 1:
        return DUPLICATE
    waits = generation.status in ("owed", "failed", "stopped") and not generation.permanent
    return ACCEPTED if waits else SUPERSEDED


def gen_resumed(views: SessionViews, event: ev.GenResumed) -> Ruling:
    """Takes a running attempt over, under a newer epoch than its claim's.

    The epoch is a guard against forged and foreign records, here and in every other takeover: an
    honest worker takes over under its own epoch, which is newer, and by the next attempt's number.
    """
    generation = _claimable(views, event)
    if isinstance(generation, Ruling):
        return generation
    if generation.status != "running" or event.attempt != generation.attempt + 1:
        return DUPLICATE
    assert generation.claim is not None, "a running attempt has a claim"
    return ACCEPTED if event.epoch > generation.claim.epoch else SUPERSEDED


def chunk_seen(views: SessionViews, event: ChunkSeen) -> Ruling:
    """A chunk of the newest attempt, while it runs."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    live = generation.status == "running" and event.attempt == generation.attempt
    return ACCEPTED if live else SUPERSEDED


def gen_outcome(
    views: SessionViews, event: ev.GenComplete | ev.GenFailed | ev.GenStopped
) -> Ruling:
    """Only the newest attempt's outcome counts, once, until the turn has ended."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    if event.attempt != generation.attempt:
        return SUPERSEDED
    return ACCEPTED if generation.status == "running" else DUPLICATE


def call_event(
    views: SessionViews, event: ev.ToolStarted | ev.ToolResult | ev.ToolFailedUncertain
) -> Ruling:
    """A claim or an outcome of a call: CALLS has the ruling."""
    call = call_of(views.turn, event)
    if call is None:
        return LATE if event.turn <= views.turn.number else UNKNOWN_CALL
    return row_of(views.turn, call, event).ruling


def misplaced(views: SessionViews, event: Any) -> Ruling:
    """An event about a partition, written under a session's key, does not concern the session."""
    return Ruling("ignored", "misplaced")


JUDGES: Judges = {
    ev.ContextSet: context_set,
    ev.LlmCalled: llm_called,
    ev.ToolInvoked: tool_invoked,
    ev.ApprovalExpired: approval_expired,
    ev.TurnEnded: turn_ended,
    ev.Refused: refused_event,
    ev.HumanNeeded: human_needed,
    ev.ReminderAdded: reminder_added,
    ev.GenStart: gen_start,
    ev.GenResumed: gen_resumed,
    ChunkSeen: chunk_seen,
    ev.GenChunk: chunk_seen,
    ev.GenComplete: gen_outcome,
    ev.GenFailed: gen_outcome,
    ev.GenStopped: gen_outcome,
    ev.ToolStarted: call_event,
    ev.ToolResult: call_event,
    ev.ToolFailedUncertain: call_event,
    ev.PartitionTaken: misplaced,
    ev.OwnerGone: misplaced,
    **delivery_rulings.JUDGES,
}
