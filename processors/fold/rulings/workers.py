"""Rulings on the events of workers: decisions, claims, chunks and outcomes.

An event of a worker is never refused, because nothing waits for an answer. If it does not fit the
views it is ignored, and WAKE decides again. A decision that lost a race has a stale basis.
"""

from collections.abc import Callable
from typing import assert_never

from ....schemas import events as ev
from ....schemas.codec import ChunkSeen
from ....schemas.enums import EndReason, WhenBusy
from ..call_facts import row_of
from ..cut_points import must_think
from ..projections.turn_view import (
    ANSWERED,
    FAILED,
    OWED,
    RUNNING,
    STOPPED,
    Generation,
    call_of,
    is_open,
    to_rebuild,
)
from ..ruling import (
    ACCEPTED,
    DUPLICATE,
    LATE,
    MISPLACED,
    STALE,
    SUPERSEDED,
    UNKNOWN_CALL,
    VOID,
    Ruling,
)
from ..views import SessionViews
from . import background as background_rulings, delivery as delivery_rulings
from .background import may_adopt
from .judges import Judges

STEER = WhenBusy.STEER
WAITING = (OWED, FAILED, STOPPED)  # no attempt runs: the next one may start
GenerationEvent = (
    ev.GenStart
    | ev.GenResumed
    | ChunkSeen
    | ev.GenChunk
    | ev.GenComplete
    | ev.GenFailed
    | ev.GenStopped
)


def context_set(views: SessionViews, event: ev.ContextSet) -> Ruling:
    """Rules on a new prefix. A prefix that is already in force is a duplicate. Once a turn has had
    a step, its prefix does not change."""
    view, turn = views.context, views.turn
    if view.prefix_sha == event.sha256:
        return DUPLICATE
    is_bound = (turn.open and turn.step > 0) or must_think(view.request, view.fragments)
    return STALE if is_bound else ACCEPTED


def step_is_due(views: SessionViews) -> bool:
    """Whether the next step is due in the open turn: the turn has had no step; or the last step is
    answered and its calls have outcomes; or the model refused the request and another must be
    built."""
    turn = views.turn
    if not turn.open or turn.closing is not None:
        return False
    if turn.step == 0 or to_rebuild(turn):
        return True
    answered = turn.generation is not None and turn.generation.status is ANSWERED
    return answered and not any(is_open(call) for call in turn.calls)


def llm_called(views: SessionViews, event: ev.LlmCalled) -> Ruling:
    """Rules on the next step of the open turn. The basis of the event must still be the newest
    input."""
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if turn.closing is not None:
        return VOID
    if event.step <= turn.step:
        return DUPLICATE
    if event.basis != turn.basis or event.context_sha256 != views.context.prefix_sha:
        return STALE
    messages = {*turn.owned, *(w.message_id for w in turn.queue if w.when_busy == STEER)}
    reminders = {reminder.reminder_id for reminder in turn.reminders}
    fits = messages.issuperset(event.includes) and reminders.issuperset(event.reminders)
    fits = fits and may_adopt(views, event)
    if event.step != turn.step + 1 or not step_is_due(views) or not fits:
        return STALE
    return ACCEPTED


def tool_invoked(views: SessionViews, event: ev.ToolInvoked) -> Ruling:
    """Rules on the decision about a proposed call. Only the first decision about a call counts. The
    phase by which it was decided must still be the session's: another call's result may have
    changed it, and a result does not move the basis."""
    call = call_of(views.turn, event)
    if call is None:
        return LATE
    ruling = row_of(views.turn, call, event).ruling
    is_current = event.phase is None or event.phase == views.state.phase
    return ruling if is_current or not ruling.accepted else STALE


def approval_expired(views: SessionViews, event: ev.ApprovalExpired) -> Ruling:
    """Rules on an expiry: only a call that still waits for approval can expire."""
    call = call_of(views.turn, event)
    if call is None or call not in views.turn.calls:
        return LATE
    return row_of(views.turn, call, event).ruling


def turn_ended(views: SessionViews, event: ev.TurnEnded) -> Ruling:
    """Rules on the end of the open turn. If the turn is closing, the event must give the reason for
    which it closes. Otherwise, _MAY_END has the condition for each reason."""
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if event.basis != turn.basis:
        return STALE
    if turn.closing is not None:
        return ACCEPTED if event.reason == turn.closing.reason else STALE
    return ACCEPTED if _MAY_END[event.reason](views) else STALE


def _condition(reason: EndReason) -> Callable[[SessionViews], bool]:
    """The condition under which a turn that is not closing may end for a reason."""
    match reason:
        case EndReason.CANCELLED | EndReason.INTERRUPTED | EndReason.TERMINATED:
            return _never
        case EndReason.FAILED:
            return _may_have_failed
        case EndReason.BUDGET_EXCEEDED:
            return step_is_due
        case (
            EndReason.END_TURN
            | EndReason.STOP_TOOL
            | EndReason.MAX_STEPS
            | EndReason.MAX_TOKENS
            | EndReason.SHOULD_STOP
            | EndReason.REFUSAL
            | EndReason.FORKED
        ):
            return _has_answered
        case _:
            assert_never(reason)


def _never(views: SessionViews) -> bool:
    return False


def _has_answered(views: SessionViews) -> bool:
    return views.turn.step > 0 and step_is_due(views)


def _may_have_failed(views: SessionViews) -> bool:
    generation = views.turn.generation
    return generation is not None and generation.status not in (OWED, ANSWERED)


_MAY_END: dict[str, Callable[[SessionViews], bool]] = {
    reason: _condition(reason) for reason in EndReason
}


def refused_event(views: SessionViews, event: ev.Refused) -> Ruling:
    """Rules on a REFUSED event. The answer that it gives to a producer must still be pending."""
    is_pending = any(refusal.offset == event.offset for refusal in views.turn.refusals)
    return ACCEPTED if is_pending else DUPLICATE


def human_needed(views: SessionViews, event: ev.HumanNeeded) -> Ruling:
    """Rules on the notice to a person. It counts once for each doubt, and once more for a
    contradiction."""
    call = call_of(views.turn, event)
    return DUPLICATE if call is None else row_of(views.turn, call, event).ruling


def reminder_added(views: SessionViews, event: ev.ReminderAdded) -> Ruling:
    """Rules on a reminder: one per id, whether it is pending or sent."""
    return DUPLICATE if event.reminder_id in views.turn.reminder_ids else ACCEPTED


def _generation(views: SessionViews, event: GenerationEvent) -> Generation | Ruling:
    """The generation of the current step, or the ruling on an event that is about another step."""
    turn = views.turn
    if not turn.open or event.turn != turn.number:
        return LATE
    if event.step != turn.step or turn.generation is None:
        return SUPERSEDED
    return turn.generation


def _claimable(
    views: SessionViews, event: ev.GenStart | ev.GenResumed
) -> Generation | Ruling:
    """The generation, or the ruling on a claim that was made for another decision than the one in
    force."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    if views.turn.closing is not None:
        return VOID
    return generation if event.called == generation.called else STALE


def gen_start(views: SessionViews, event: ev.GenStart) -> Ruling:
    """Rules on a claim of the next attempt of the step, made for exactly the decision in force."""
    generation = _claimable(views, event)
    if isinstance(generation, Ruling):
        return generation
    if event.attempt != generation.attempt + 1:
        return DUPLICATE
    waits = generation.status in WAITING and not generation.permanent
    return ACCEPTED if waits else SUPERSEDED


def gen_resumed(views: SessionViews, event: ev.GenResumed) -> Ruling:
    """Rules on the takeover of a running attempt, under a newer epoch than that of its claim.

    The check of the epoch protects only against forged and foreign records, here and in every other
    takeover: a worker always takes over under its own, newer epoch, with the next attempt number.
    """
    generation = _claimable(views, event)
    if isinstance(generation, Ruling):
        return generation
    if generation.status is not RUNNING or event.attempt != generation.attempt + 1:
        return DUPLICATE
    assert generation.claim is not None, "a running attempt has a claim"
    return ACCEPTED if event.epoch > generation.claim.epoch else SUPERSEDED


def chunk_seen(views: SessionViews, event: ChunkSeen) -> Ruling:
    """Rules on a chunk. It counts only if its attempt is the newest and is still running."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    is_live = generation.status is RUNNING and event.attempt == generation.attempt
    return ACCEPTED if is_live else SUPERSEDED


def gen_outcome(
    views: SessionViews, event: ev.GenComplete | ev.GenFailed | ev.GenStopped
) -> Ruling:
    """Rules on the outcome of an attempt. It counts only if the attempt is the newest and is still
    running, and the turn has not ended."""
    generation = _generation(views, event)
    if isinstance(generation, Ruling):
        return generation
    if event.attempt != generation.attempt:
        return SUPERSEDED
    return ACCEPTED if generation.status is RUNNING else DUPLICATE


def call_event(
    views: SessionViews, event: ev.ToolStarted | ev.ToolResult | ev.ToolFailedUncertain
) -> Ruling:
    """Rules on a claim or an outcome of a call by the table CALLS."""
    call = call_of(views.turn, event)
    if call is None:
        return LATE if event.turn <= views.turn.number else UNKNOWN_CALL
    return row_of(views.turn, call, event).ruling


def misplaced(views: SessionViews, event: ev.PartitionTaken | ev.OwnerGone) -> Ruling:
    """Rules on a PARTITION_TAKEN or OWNER_GONE whose record has the key of a session. The event
    does not concern the session."""
    return MISPLACED


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
    **background_rulings.JUDGES,
    **delivery_rulings.JUDGES,
}
