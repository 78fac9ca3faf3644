"""The fold of one session: `fold(views, entry) -> (views, ruling)`, pure, total, never raising.

First the ruling (does this event count?), then the projections that care, in a fixed order. The
same function runs in the worker, in recovery, in replay, in the time scrubber and in the tests.
"""

from typing import Any

from ..schemas import events as ev
from ..schemas.codec import ChunkSeen, Entry, Unreadable, digest
from ..schemas.events import BY_CLASS, EVENT_TYPES
from ..schemas.value import Value, replace
from . import rulings_asked, rulings_background, rulings_work
from .projections import (
    background,
    compaction,
    context,
    delivery,
    items,
    ledger,
    messages,
    session_state,
    transcript,
    turn,
)
from .projections.turn_view import REFUSALS_MAX, Refusal, Stream, TurnView
from .ruling import ACCEPTED, FROZEN, MISTAKEN_WRITER, UNKNOWN_SESSION, UNREADABLE, Ruling


class Frozen(Value):
    """Where a session stopped, and why: refolded after an upgrade (law 13)."""

    offset: int
    why: str


class SessionViews(Value):
    """Every view of one session, at one offset."""

    session_id: str
    state: session_state.SessionState
    turn: TurnView
    stream: Stream
    context: context.ContextView
    transcript: transcript.TranscriptView
    ledger: ledger.LedgerView
    messages: messages.MessagesView
    compaction: compaction.CompactionView
    background: background.BackgroundView
    delivery: delivery.DeliveryView
    items: items.ItemsView
    frozen: Frozen | None = None


def initial(session_id: str) -> SessionViews:
    """The views of a session of which nothing is known yet."""
    return SessionViews(
        session_id,
        session_state.INITIAL,
        turn.INITIAL,
        Stream(),
        context.initial(),
        transcript.initial(),
        ledger.initial(),
        messages.initial(),
        compaction.initial(),
        background.INITIAL,
        delivery.INITIAL,
        items.initial(),
    )


_WRITERS = {row.cls: frozenset(row.writers) for row in EVENT_TYPES}
_WRITERS[ChunkSeen] = _WRITERS[ev.GenChunk]
_INPUTS = frozenset(row.cls for row in EVENT_TYPES if row.is_input)
_CHUNKS = frozenset(turn.CHUNKS)
_PAID = frozenset(ledger.OUTCOMES)
_ANSWERS = frozenset({ev.Refused, ev.HumanNeeded})  # row G: a frozen session still owes these


def judge(views: SessionViews, entry: Entry) -> Ruling:
    """Whether an event counts at these views, and if not, why."""
    event = entry.event
    kind = type(event)
    if views.frozen is not None and kind not in _ANSWERS:
        return FROZEN
    if kind is Unreadable:
        return UNREADABLE
    if entry.writer not in _WRITERS[kind]:
        return MISTAKEN_WRITER
    if kind in _CHUNKS:
        return rulings_work.chunk_seen(views, event)
    asked = rulings_asked.JUDGES.get(kind)
    if asked is None:
        if not views.turn.known and kind is not ev.Refused:
            return UNKNOWN_SESSION
        judges = rulings_work.JUDGES if kind in rulings_work.JUDGES else rulings_background.JUDGES
        return judges[kind](views, event)
    if kind is not ev.SessionOpened:
        impossible = rulings_asked.not_possible(views, event)
        if impossible is not None:
            return impossible
    return asked(views, event)


def fold(views: SessionViews, entry: Entry) -> tuple[SessionViews, Ruling]:
    """The views after an event, and the ruling on it.

    An event that makes a fold raise freezes the session at its offset; its neighbours go on.
    """
    try:
        ruling = judge(views, entry)
        if ruling is ACCEPTED:
            return _apply(views, entry), ruling
        return _not_accepted(views, entry, ruling), ruling
    except Exception as bug:
        frozen = Frozen(entry.offset, f"{type(bug).__name__}: {bug}"[:500])
        return replace(views, frozen=views.frozen or frozen), FROZEN


def streamed_on(views: SessionViews, chunks: int, at: int) -> SessionViews:
    """As `fold` of so many more chunks of the attempt whose chunk was just accepted, one after the
    other: nothing that a chunk changes decides about the next one. `at`: of the last."""
    stream = views.stream
    return replace(views, stream=replace(stream, chunks=stream.chunks + chunks, last_at=at))


def _not_accepted(views: SessionViews, entry: Entry, ruling: Ruling) -> SessionViews:
    if ruling.verdict == "refused":
        return replace(views, turn=_refuse(views.turn, entry.offset, ruling))
    if ruling is UNREADABLE and entry.event.must_understand:
        return replace(views, frozen=Frozen(entry.offset, entry.event.why[:500]))
    if type(entry.event) in _PAID and ruling.code in ("superseded", "late", "duplicate"):
        return replace(views, ledger=ledger.apply(views.ledger, entry))
    return views


def _refuse(view: TurnView, offset: int, ruling: Ruling) -> TurnView:
    if len(view.refusals) >= REFUSALS_MAX:
        view = replace(view, refusals=view.refusals[1:], refusals_dropped=view.refusals_dropped + 1)
    owed = Refusal(offset, ruling.code, ruling.detail)
    return replace(view, refusals=(*view.refusals, owed))


def _apply(views: SessionViews, entry: Entry) -> SessionViews:
    kind = type(entry.event)
    if kind in _CHUNKS:  # most of a log: nothing else may happen here
        return replace(views, stream=turn.stream(views.stream, entry))
    state, before, kept = views.state, views.turn, views.items
    seen, lines, spent, said = views.context, views.transcript, views.ledger, views.messages
    after: TurnView = turn.apply(before, entry)
    now = session_state.apply(state, entry, after) if kind in session_state.READS else state
    if kind in _INPUTS:
        after = replace(after, basis=entry.offset, basis_sha=digest(now))
    short, aside, pushed = views.compaction, views.background, views.delivery
    if kind in background.READS:
        aside = background.apply(aside, entry, before, after, seen)
    if kind in compaction.READS:
        short = compaction.apply(short, entry, seen)
        if kind is ev.ResultCompacted and short.shorts[-1].early:  # the next request says it
            after = replace(after, basis=entry.offset, basis_sha=digest(now))
            seen = replace(seen, tail_tokens=seen.tail_tokens - short.shorts[-1].saved)
    if kind in context.READS:
        seen = context.apply(seen, entry, before, said, state, views.compaction)
    if kind in transcript.READS:
        lines = transcript.apply(lines, entry, before, after, state)
    if kind in ledger.READS:
        spent = ledger.apply(spent, entry)
    if kind in delivery.READS:
        pushed = delivery.apply(pushed, entry, before, after)
    if kind in messages.READS:
        said = messages.apply(said, entry, before, after)
    if kind in items.READS:
        kept = items.apply(kept, entry)
    return replace(
        views,
        state=now,
        turn=after,
        context=seen,
        transcript=lines,
        ledger=spent,
        messages=said,
        compaction=short,
        background=aside,
        delivery=pushed,
        items=kept,
    )


def is_input(event: Any) -> bool:
    """Whether decisions depend on events of this type."""
    return BY_CLASS[type(event)].is_input


__all__ = ["ACCEPTED", "Frozen", "SessionViews", "fold", "initial", "is_input", "judge"]
