"""The fold of one session: `fold(views, entry) -> (views, ruling)`, pure and total.

An entry is an event with its position in the log. The ruling decides whether an event counts; then
each projection that reads events of its type computes its next view, in a fixed order. Workers,
recovery, replay, the time scrubber and the tests run this same function.
"""

from typing import Any

from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable, digest
from ...schemas.events import EVENT_TYPES, RecordSkipped, ResultCompacted, SessionOpened, ToolResult
from ...schemas.value import replace
from . import forks
from .field_writers import demand_writer
from .projections import ledger, session_state, turn
from .projections.turn_view import HOLDS_TOOLS, TurnView
from .ruling import (
    ACCEPTED,
    FROZEN,
    MISTAKEN_WRITER,
    REFUSED,
    UNKNOWN_SESSION,
    UNREADABLE,
    Ruling,
)
from .rulings import producers as producer_rulings, workers as worker_rulings
from .seeds import Steps, parent_of, without_record
from .views import VIEWS, SessionViews, frozen_at

_WRITERS = {row.cls: frozenset(row.writers) for row in EVENT_TYPES}
_WRITERS[ChunkSeen] = _WRITERS[ev.GenChunk]
_NAMES = {row.cls: row.name for row in EVENT_TYPES}
_INPUTS = frozenset(row.cls for row in EVENT_TYPES if row.is_input)
_CHUNKS = frozenset(turn.CHUNKS)
_APPLY = {
    row.cls: [(view.field, view.apply) for view in VIEWS if view.apply and row.cls in view.reads]
    for row in EVENT_TYPES
}
_PAID = ledger.OUTCOMES
# Row G: the refusals of a frozen session are still sent; only RECORD_SKIPPED lets it continue.
_WHILE_FROZEN = frozenset({ev.Refused, ev.HumanNeeded, RecordSkipped})
_CHECK_THE_SESSION = frozenset({SessionOpened, RecordSkipped})  # in their own rulings


def fold(views: SessionViews, entry: Entry) -> tuple[SessionViews, Ruling]:
    """The views after an event, and the ruling on it.

    Never raises: if the code for an event raises, the session is frozen at the event's offset, and
    other sessions continue.
    """
    try:
        ruling = judge(views, entry)
        if ruling is not ACCEPTED:
            return _not_accepted(views, entry, ruling), ruling
        kind = type(entry.event)
        if kind is SessionOpened and entry.event.seed_ref is not None:
            return forks.open_fork(views, entry, parent_of(entry.seed, _STEPS))
        if kind is RecordSkipped:
            return without_record(views, entry, _STEPS), ruling
        return _apply(views, entry), ruling
    except Exception as bug:
        frozen = frozen_at(entry.offset, f"{type(bug).__name__}: {bug}")
        return replace(views, frozen=views.frozen or frozen), FROZEN


def judge(views: SessionViews, entry: Entry) -> Ruling:
    """Whether an event counts at these views, and if not, why."""
    event = entry.event
    kind = type(event)
    if views.frozen is not None and kind not in _WHILE_FROZEN:
        return FROZEN
    if kind is Unreadable:
        return UNREADABLE
    if entry.writer not in _WRITERS[kind]:
        return MISTAKEN_WRITER
    if kind in _CHUNKS:
        return worker_rulings.chunk_seen(views, event)
    judge_command = producer_rulings.JUDGES.get(kind)
    if judge_command is None:
        if not views.turn.known and kind is not ev.Refused:
            return UNKNOWN_SESSION
        return worker_rulings.JUDGES[kind](views, event)
    if kind not in _CHECK_THE_SESSION:
        objection = producer_rulings.why_not_possible(views, event)
        if objection is not None:
            return objection
    return judge_command(views, event)


def _apply(views: SessionViews, entry: Entry) -> SessionViews:
    kind = type(entry.event)
    if kind in _CHUNKS:  # chunks are most of a log: keep this path short
        return replace(views, stream=turn.stream(views.stream, entry))
    state, before = views.state, views.turn
    after: TurnView = turn.apply(before, entry)
    now = session_state.apply(state, entry, before, after) if kind in session_state.READS else state
    demand_writer(state, now, _NAMES[kind])
    if kind is ev.ToolInvoked or (kind is ToolResult and before.rules >= HOLDS_TOOLS):
        refusals = session_state.refusals_of(state, before, entry.event)
        after = _refuse(after, entry.offset, refusals)
    if kind in _INPUTS:
        after = replace(after, basis=entry.offset, basis_sha=digest(now))
    changed: dict[str, Any] = {"state": now, "turn": after}
    for field, apply in _APPLY[kind]:
        changed[field] = apply(views, entry, after)
    if kind is ev.ResultReplaced:
        changed["replaced"] = (*views.replaced, entry.event.call)
    if kind is ResultCompacted and (short := changed["compaction"].shorts[-1]).early:
        # The next request contains the reminder, so a decision made before this event is stale.
        changed["turn"] = replace(after, basis=entry.offset, basis_sha=digest(now))
        tokens = views.context.tail_tokens - short.saved
        changed["context"] = replace(views.context, tail_tokens=tokens)
    return replace(views, **changed)


def _refuse(
    view: TurnView, offset: int, refusals: tuple[session_state.RefusedTrigger, ...]
) -> TurnView:
    """Adds one refusal for all that a tool's call or result requested in vain. A worker answers it
    with REFUSED, as it answers the refusal of a command."""
    if not refusals:
        return view
    details = "; ".join(dict.fromkeys(refusal.detail for refusal in refusals))
    return turn.refuse(view, offset, refusals[0].code, details)


def _not_accepted(views: SessionViews, entry: Entry, ruling: Ruling) -> SessionViews:
    if ruling.verdict == REFUSED:
        pending = turn.refuse(views.turn, entry.offset, ruling.code, ruling.detail)
        return replace(views, turn=pending)
    if ruling is UNREADABLE and entry.event.must_understand:
        return replace(views, frozen=frozen_at(entry.offset, entry.event.why))
    if type(entry.event) in _PAID and ruling.code in ("superseded", "late", "duplicate"):
        return replace(views, ledger=ledger.apply(views.ledger, entry))
    return views


def streamed_on(views: SessionViews, chunks: int, at: int) -> SessionViews:
    """Folds further chunks of an attempt at once. The caller folded the attempt's first chunk, and
    a chunk never changes the ruling on the next chunk. `at`: the broker time of the last chunk."""
    stream = views.stream
    return replace(views, stream=replace(stream, chunks=stream.chunks + chunks, last_at=at))


_STEPS = Steps(judge, fold, _apply)
