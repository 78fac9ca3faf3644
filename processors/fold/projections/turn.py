"""turn: the fold of the work in flight. turn_view.py defines the view that it computes.

There is one short function per event type. The functions get only events that the rulings accepted,
so they do not validate; they assert what the rulings guarantee.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ....schemas import events as ev
from ....schemas.codec import ChunkSeen, Entry, digest
from ....schemas.enums import CancelMode, Decision, EndReason, Recovery, Via, WhenBusy
from ....schemas.value import replace
from ..call_facts import row_of
from ..calls import CONTRADICTED, DONE, IN_DOUBT, ONLY_STATUS, CallStatus
from ..grants import grant_of
from ..partial_answer import Chain
from .turn_view import (
    ANSWERED,
    CANCELLED,
    CONTRADICTS_RECONCILER,
    FAILED,
    GRANTS_MAX,
    HAPPENED,
    INTERRUPTED,
    NOT_RUN,
    OK,
    REFUSALS_MAX,
    REMINDERS_MAX,
    RESOLVED_MAX,
    RUNNING,
    SEEN_MAX,
    STOPPED,
    TERMINATED,
    AboutCall,
    Call,
    Closing,
    Generation,
    Refusal,
    Reminder,
    Stream,
    TurnView,
    Waiting,
    call_of,
    calls_of,
    claim_of,
    closed,
    to_rebuild,
)

INITIAL = TurnView()
RANK = {INTERRUPTED: 0, CANCELLED: 1, TERMINATED: 2}  # of several reasons, the highest counts
INTERRUPT, AFTER_STEP = WhenBusy.INTERRUPT, CancelMode.AFTER_STEP
RESUME, RECONCILER = Recovery.RESUME, Via.RECONCILER
ALLOW, DENY = Decision


def apply(view: TurnView, entry: Entry) -> TurnView:
    """The view after an accepted event."""
    kind = type(entry.event)
    change = FOLDS.get(kind)
    if change is None:
        return view
    view = change(view, entry, entry.event)
    return replace(view, due_at=entry.at) if kind in SETTLES else view


def stream(view: Stream, entry: Entry) -> Stream:
    """The stream position after an accepted chunk of the running attempt."""
    chunk: ChunkSeen | ev.GenChunk = entry.event
    same = view.attempt == chunk.attempt and view.step == chunk.step and view.turn == chunk.turn
    chunks = view.chunks + 1 if same else 1
    return Stream(chunk.turn, chunk.step, chunk.attempt, chunks, entry.at)


def _opened(view: TurnView, entry: Entry, event: ev.SessionOpened) -> TurnView:
    return replace(view, known=True, since=entry.at, agent=event.agent, rules=event.rules)


def _message(view: TurnView, entry: Entry, event: ev.MessageReceived) -> TurnView:
    if not view.open:
        return _open_turn(view, entry.offset, (event.message_id,))
    if view.step == 0 and view.closing is None:
        return replace(view, owned=(*view.owned, event.message_id))
    queue = (*view.queue, Waiting(event.message_id, event.when_busy))
    view = replace(view, queue=queue)
    return _close(view, INTERRUPTED, entry.at) if event.when_busy == INTERRUPT else view


def _open_turn(view: TurnView, offset: int, messages: tuple[str, ...]) -> TurnView:
    return replace(
        view,
        number=view.number + 1,
        open=True,
        opened_offset=offset,
        step=0,
        rebuilt=False,
        generation=None,
        calls=(),
        closing=None,
        should_stop=False,
        owned=messages,
        said=(),
    )


def _close(view: TurnView, reason: EndReason, at: int) -> TurnView:
    if view.closing is None:
        return replace(view, closing=Closing(reason, at))
    if RANK[reason] > RANK[view.closing.reason]:
        return replace(view, closing=replace(view.closing, reason=reason))
    return view


def _command(view: TurnView, entry: Entry, event: ev.PhaseTriggered | ev.ProjectLocked) -> TurnView:
    return replace(view, command_ids=(*view.command_ids, event.command_id)[-SEEN_MAX:])


def _cancel(view: TurnView, entry: Entry, event: ev.CancelRequested) -> TurnView:
    view = replace(view, cancel_ids=(*view.cancel_ids, event.cancel_id)[-SEEN_MAX:])
    if event.mode == AFTER_STEP:
        return replace(view, should_stop=True)
    return _close(view, CANCELLED, entry.at) if view.open else view


def _terminated(view: TurnView, entry: Entry, event: ev.SessionTerminated) -> TurnView:
    view = replace(view, terminated=True)
    return _close(view, TERMINATED, entry.at) if view.open else view


def _llm_called(view: TurnView, entry: Entry, event: ev.LlmCalled) -> TurnView:
    included = event.includes
    return replace(
        view,
        step=event.step,
        rebuilt=view.rebuilt or to_rebuild(view),
        generation=Generation(entry.offset, entry.at, digest(event)),
        calls=(),
        owned=tuple([m for m in view.owned if m not in included]),
        said=view.said + included,
        queue=tuple([w for w in view.queue if w.message_id not in included]),
        reminders=tuple([r for r in view.reminders if r.reminder_id not in event.reminders]),
        doubts=_kept(view.doubts, view.calls),
    )


def _claimed(view: TurnView, entry: Entry, event: ev.GenStart | ev.GenResumed) -> TurnView:
    lost = view.generation
    assert lost is not None
    chain: Chain = ()
    if isinstance(event, ev.GenResumed) and event.strategy == RESUME:
        chain = (*lost.chain, (lost.attempt, event.prior_seq))
    claim = claim_of(entry, event)
    running = replace(lost, status=RUNNING, attempt=event.attempt, claim=claim, chain=chain)
    return replace(view, generation=running)


def _gen_complete(view: TurnView, entry: Entry, event: ev.GenComplete) -> TurnView:
    assert view.generation is not None and not view.calls
    generation = replace(view.generation, status=ANSWERED, stop_reason=event.stop_reason)
    calls = tuple(_proposed(entry, event, call) for call in calls_of(event))
    if view.closing is not None:
        calls = tuple(replace(call, status=DONE, outcome=NOT_RUN) for call in calls)
    return replace(view, generation=generation, calls=calls)


def _proposed(entry: Entry, event: ev.GenComplete, call: ev.ProposedCall) -> Call:
    return Call(
        turn=event.turn,
        step=event.step,
        index=call.index,
        call_id=call.call_id,
        name=call.name,
        args=call.args,
        args_sha256=call.args_sha256,
        args_error=call.args_error,
        proposed_at=entry.at,
    )


def _gen_failed(view: TurnView, entry: Entry, event: ev.GenFailed) -> TurnView:
    assert view.generation is not None
    generation = replace(
        view.generation,
        status=FAILED,
        permanent=event.permanent,
        retry_at=event.retry_at or entry.at,
        error=event.error,
    )
    return replace(view, generation=generation)


def _gen_stopped(view: TurnView, entry: Entry, event: ev.GenStopped) -> TurnView:
    assert view.generation is not None
    return replace(view, generation=replace(view.generation, status=STOPPED, retry_at=entry.at))


def _with_call(view: TurnView, call: Call, **changes: Any) -> TurnView:
    changed = replace(call, **changes)
    if call in view.calls:
        return replace(view, calls=tuple([changed if c is call else c for c in view.calls]))
    return replace(view, doubts=_kept(tuple([changed if c is call else c for c in view.doubts])))


def _kept(doubts: tuple[Call, ...], ended: Iterable[Call] = ()) -> tuple[Call, ...]:
    """The calls in doubt, including those among the `ended` calls of a turn, and the newest
    RESOLVED_MAX calls whose doubt was resolved."""
    doubts = (*doubts, *[call for call in ended if _outlives(call)])
    if not doubts:  # nearly always
        return doubts
    resolved = [call for call in doubts if call.status == DONE]
    dropped = set(map(id, resolved[:-RESOLVED_MAX]))
    return tuple([call for call in doubts if id(call) not in dropped])


def _outlives(call: Call) -> bool:
    return call.status in IN_DOUBT or bool(call.human) or call.denied


def _call(view: TurnView, event: AboutCall) -> Call:
    call = call_of(view, event)
    assert call is not None, "an accepted event names a call that is there"
    return call


def _becomes(view: TurnView, call: Call, event: AboutCall) -> CallStatus:
    """The status of a call after an accepted event, from the table CALLS."""
    becomes = ONLY_STATUS[type(event)] or row_of(view, call, event).becomes
    assert becomes is not None, "the event changes the call's status"
    return becomes


def _tool_invoked(view: TurnView, entry: Entry, event: ev.ToolInvoked) -> TurnView:
    call = _call(view, event)
    changes: dict[str, Any] = {
        "name": event.name,  # the real tool, which the model may have named in the arguments
        "effect": event.effect,
        "status": _becomes(view, call, event),
    }
    if event.outcome is not None:
        return _with_call(view, call, outcome=event.outcome, **changes)
    return _with_call(view, call, expires_at=event.expires_at or 0, **changes)


def _approval(view: TurnView, entry: Entry, event: ev.ApprovalDecided) -> TurnView:
    call = _call(view, event)
    status = _becomes(view, call, event)
    if status is DONE:
        return _with_call(view, call, status=status, outcome=NOT_RUN, decision=DENY)
    view = _with_call(view, call, status=status, decision=ALLOW)
    grant = grant_of(call.name, event)
    if event.remember and grant not in view.grants:
        return replace(view, grants=(*view.grants, grant)[-GRANTS_MAX:])
    return view


def _expired(view: TurnView, entry: Entry, event: ev.ApprovalExpired) -> TurnView:
    call = _call(view, event)
    status = _becomes(view, call, event)
    return _with_call(view, call, status=status, outcome=NOT_RUN, decision="expired")


def _tool_started(view: TurnView, entry: Entry, event: ev.ToolStarted) -> TurnView:
    call = _call(view, event)
    status, claim = _becomes(view, call, event), claim_of(entry, event)
    return _with_call(view, call, status=status, attempt=event.attempt, claim=claim)


def _tool_result(view: TurnView, entry: Entry, event: ev.ToolResult) -> TurnView:
    call = _call(view, event)
    texts = list(event.reminders)
    status, late = _becomes(view, call, event), event.outcome
    if status is CONTRADICTED:
        return _with_call(view, call, status=status, outcome=late, reported=late, told=False)
    if call not in view.calls:
        text = (event.content.inline or b"").decode("utf-8", "replace")
        texts.insert(0, f"The earlier call {call.name} ({call.key}) ended: {event.outcome}. {text}")
    denied = event.via == RECONCILER and event.outcome == NOT_RUN
    denied = denied and view.rules >= CONTRADICTS_RECONCILER
    view = _with_call(
        view, call, status=status, outcome=event.outcome, denied=denied, unasked=False
    )
    return _remind(view, entry, texts)


def _uncertain(view: TurnView, entry: Entry, event: ev.ToolFailedUncertain) -> TurnView:
    call = _call(view, event)
    status = _becomes(view, call, event)  # a doubt of an ended turn remains, and a person knows it
    return _with_call(view, call, status=status, told=call.told and call.unasked, unasked=False)


def _resolved(view: TurnView, entry: Entry, event: ev.HumanResolved) -> TurnView:
    call = _call(view, event)
    outcome = OK if event.outcome == HAPPENED else NOT_RUN
    model_has_a_result = call.status is CONTRADICTED or call not in view.calls
    status = _becomes(view, call, event)
    view = _with_call(
        view, call, status=status, outcome=outcome, human=event.outcome, unasked=False
    )
    if not model_has_a_result:
        return view
    text = f"The earlier call {call.name} ({call.key}): {resolution_text(event)}"
    return _remind(view, entry, [text])


def resolution_text(event: ev.HumanResolved) -> str:
    """The text that reports a person's resolution to the model."""
    text = (event.content.inline or b"").decode("utf-8", "replace")
    if event.outcome == HAPPENED:
        return f"A person reports that it happened. {text}".rstrip()
    return f"A person reports that it did not happen. {text}".rstrip()


def _remind(view: TurnView, entry: Entry, texts: list[str]) -> TurnView:
    if not texts:
        return view
    added = [Reminder(f"r{entry.offset}.{n}", text) for n, text in enumerate(texts)]
    return replace(view, reminders=(*view.reminders, *added)[-REMINDERS_MAX:])


def _reminder(view: TurnView, entry: Entry, event: ev.ReminderAdded) -> TurnView:
    added = Reminder(event.reminder_id, event.text)
    return replace(
        view,
        reminders=(*view.reminders, added)[-REMINDERS_MAX:],
        reminder_ids=(*view.reminder_ids, event.reminder_id)[-SEEN_MAX:],
    )


def _human_needed(view: TurnView, entry: Entry, event: ev.HumanNeeded) -> TurnView:
    return _with_call(view, _call(view, event), told=True)


def refuse(view: TurnView, offset: int, code: str, detail: str) -> TurnView:
    """The view after a refusal of the event at an offset. A worker answers it with REFUSED."""
    if len(view.refusals) >= REFUSALS_MAX:
        view = replace(view, refusals=view.refusals[1:], refusals_dropped=view.refusals_dropped + 1)
    return replace(view, refusals=(*view.refusals, Refusal(offset, code, detail)))


def _refused(view: TurnView, entry: Entry, event: ev.Refused) -> TurnView:
    pending = tuple([refusal for refusal in view.refusals if refusal.offset != event.offset])
    return replace(view, refusals=pending)


def _replaced(view: TurnView, entry: Entry, event: ev.ResultReplaced) -> TurnView:
    """The model answers again: a turn without a message opens, unless one waits for its request."""
    return view if view.open else _open_turn(view, entry.offset, ())


def _turn_ended(view: TurnView, entry: Entry, event: ev.TurnEnded) -> TurnView:
    ended = [after[0] if (after := closed(call)) else call for call in view.calls]
    waiting = () if view.terminated else tuple([message.message_id for message in view.queue])
    view = replace(
        view,
        open=False,
        generation=None,
        calls=(),
        closing=None,
        should_stop=False,
        owned=(),
        said=(),
        queue=(),
        doubts=_kept(view.doubts, ended),
    )
    return _open_turn(view, entry.offset, waiting) if waiting else view


FOLDS: dict[type, Callable[[TurnView, Entry, Any], TurnView]] = {
    ev.SessionOpened: _opened,
    ev.MessageReceived: _message,
    ev.PhaseTriggered: _command,
    ev.ProjectLocked: _command,
    ev.CancelRequested: _cancel,
    ev.SessionTerminated: _terminated,
    ev.ApprovalDecided: _approval,
    ev.HumanResolved: _resolved,
    ev.ResultReplaced: _replaced,
    ev.LlmCalled: _llm_called,
    ev.ToolInvoked: _tool_invoked,
    ev.ApprovalExpired: _expired,
    ev.TurnEnded: _turn_ended,
    ev.Refused: _refused,
    ev.HumanNeeded: _human_needed,
    ev.ReminderAdded: _reminder,
    ev.GenStart: _claimed,
    ev.GenResumed: _claimed,
    ev.GenComplete: _gen_complete,
    ev.GenFailed: _gen_failed,
    ev.GenStopped: _gen_stopped,
    ev.ToolStarted: _tool_started,
    ev.ToolResult: _tool_result,
    ev.ToolFailedUncertain: _uncertain,
}
# The events that may make a step due. Row N2w waits for a summary from their time on.
SETTLES = frozenset(
    {
        ev.MessageReceived,
        ev.GenComplete,
        ev.GenFailed,
        ev.ToolInvoked,
        ev.ToolResult,
        ev.ApprovalDecided,
        ev.ApprovalExpired,
        ev.HumanResolved,
        ev.ResultReplaced,
        ev.TurnEnded,
    }
)
CHUNKS = (ChunkSeen, ev.GenChunk)
