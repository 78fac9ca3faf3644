"""The fold of one session: `fold(views, entry) -> (views, ruling)`, pure and total.

An entry is an event with its position in the log. The ruling decides whether an event counts; then
each projection that reads events of its type computes its next view, in a fixed order. Workers,
recovery, replay, the time scrubber and the tests run this same function.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable, digest, entry_of
from ...schemas.events import EVENT_TYPES, BlobRef
from ...schemas.seed import Seed, unseal
from ...schemas.value import replace
from . import forks
from .field_writers import demand_writer
from .projections import ledger, session_state, turn
from .projections.turn_view import HOLDS_TOOLS, REFUSALS_MAX, Refusal, TurnView
from .ruling import (
    ACCEPTED,
    FROZEN,
    MISTAKEN_WRITER,
    REFUSED,
    UNKNOWN_SESSION,
    UNREADABLE,
    Ruling,
    refused,
)
from .rulings import producers as producer_rulings, workers as worker_rulings
from .views import VIEWS, SessionViews, frozen_at, initial

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
_WHILE_FROZEN = frozenset({ev.Refused, ev.HumanNeeded, ev.RecordSkipped})
_CHECK_THE_SESSION = frozenset({ev.SessionOpened, ev.RecordSkipped})  # in their own rulings


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


def fold(views: SessionViews, entry: Entry) -> tuple[SessionViews, Ruling]:
    """The views after an event, and the ruling on it.

    Never raises: if the code for an event raises, the session is frozen at the event's offset, and
    other sessions continue.
    """
    try:
        ruling = judge(views, entry)
        if ruling is not ACCEPTED:
            return _not_accepted(views, entry, ruling), ruling
        match entry.event:
            case ev.SessionOpened(seed_ref=BlobRef()):
                return _fork(views, entry, _parent_of(entry.seed or _UNRESOLVED))
            case ev.RecordSkipped():
                return _without_record(views, entry), ruling
        return _apply(views, entry), ruling
    except Exception as bug:
        frozen = frozen_at(entry.offset, f"{type(bug).__name__}: {bug}")
        return replace(views, frozen=views.frozen or frozen), FROZEN


_UNRESOLVED = Seed(why="no reader resolved it")


class SeedLost(ValueError):
    """The seed of a fork or of a skipped record is unavailable (see schemas/seed.py). A fork then
    freezes at its first event, and a session whose record was to be skipped freezes at its
    RECORD_SKIPPED."""


class Parent(NamedTuple):
    """A fork's parent: its views with the open turn ended, and the offset of the last of its events
    that the fork's seed holds (schemas/seed.py)."""

    views: SessionViews
    last: int


def _fork(views: SessionViews, entry: Entry, parent: Parent) -> tuple[SessionViews, Ruling]:
    ruling = producer_rulings.fork_opened(parent.views, entry.event)
    if ruling is not ACCEPTED:
        return _not_accepted(views, entry, ruling), ruling
    return forks.initial_views(views, parent.views, entry, parent.last), ruling


def _without_record(views: SessionViews, entry: Entry) -> SessionViews:
    """The session refolded from its seed, which lacks the skipped record.

    The seed contains the events that arrived while the session was frozen, so they count now. The
    views always come from the seed, even in a version that understands the skipped record, because
    later decisions rely on these views.
    """
    again = _refolded(entry.seed or _UNRESOLVED).views
    is_opened = views.turn.known or again.turn.known
    owner = entry.event.by_user if is_opened else ""
    if (again.session_id, again.state.user_id) != (views.session_id, owner):
        raise SeedLost(f"it is of session {again.session_id}")
    return replace(again, skipped=(*views.skipped, entry.event.offset))


@lru_cache(maxsize=8)  # forks at the same offset are often folded in a row
def _parent_of(seed: Seed) -> Parent:
    """The parent of a fork, with its open turn ended."""
    return _with_turn_ended(_refolded(seed))


class Refolded(NamedTuple):
    """The views of a session folded from a seed, the last entry, and the open attempt's chunks."""

    views: SessionViews
    last: Entry | None
    chunks: list[ev.GenChunk]


@lru_cache(maxsize=8)
def _refolded(seed: Seed) -> Refolded:
    """Fold a seed, ancestor by ancestor in a loop, because there may be thousands."""
    if seed.why:
        raise SeedLost(seed.why)
    *above, newest = seed.levels
    parent: Parent | None = None
    for level in above:
        parent = _with_turn_ended(_fold_level(level, parent))
    return _fold_level(newest, parent)


def _fold_level(level: bytes, parent: Parent | None) -> Refolded:
    """Fold one session of a seed; `parent`: the session that it was forked from, if any."""
    session_id, seed, records = unseal(level)
    views, last = initial(session_id), None
    chunks: list[ev.GenChunk] = []
    for record in records:
        last = entry_of(record, chunks=True)
        if type(last.event) is ev.SessionOpened and last.event.seed_ref is not None:
            if parent is None or seed != last.event.seed_ref:
                continue  # the skip of another record counted
            if judge(views, last) is ACCEPTED:
                views, _ = _fork(views, last, parent)
            continue
        views, ruling = fold(views, last)
        if type(last.event) is ev.GenChunk and ruling is ACCEPTED:
            chunks.append(last.event)
    return Refolded(views, last, chunks)


def _with_turn_ended(refolded: Refolded) -> Parent:
    views, last, chunks = refolded
    if last is None or views.frozen is not None:
        raise SeedLost(f"its parent {views.session_id} can not be folded: {views.frozen}")
    ending = forks.ending_events(views, last, chunks)
    views = forks.with_turn_closing(views, last.at) if ending else views
    for entry in ending:
        views = _apply(views, entry)
    return Parent(views, last.offset)


def streamed_on(views: SessionViews, chunks: int, at: int) -> SessionViews:
    """Folds further chunks of an attempt at once. The caller folded the attempt's first chunk, and
    a chunk never changes the ruling on the next chunk. `at`: the broker time of the last chunk."""
    stream = views.stream
    return replace(views, stream=replace(stream, chunks=stream.chunks + chunks, last_at=at))


def _not_accepted(views: SessionViews, entry: Entry, ruling: Ruling) -> SessionViews:
    if ruling.verdict == REFUSED:
        return replace(views, turn=_refuse(views.turn, entry.offset, ruling))
    if ruling is UNREADABLE and entry.event.must_understand:
        return replace(views, frozen=frozen_at(entry.offset, entry.event.why))
    if type(entry.event) in _PAID and ruling.code in ("superseded", "late", "duplicate"):
        return replace(views, ledger=ledger.apply(views.ledger, entry))
    return views


def _refuse(view: TurnView, offset: int, ruling: Ruling) -> TurnView:
    if len(view.refusals) >= REFUSALS_MAX:
        view = replace(view, refusals=view.refusals[1:], refusals_dropped=view.refusals_dropped + 1)
    refusal = Refusal(offset, ruling.code, ruling.detail)
    return replace(view, refusals=(*view.refusals, refusal))


def _refuse_triggers(
    view: TurnView, offset: int, refusals: tuple[session_state.RefusedTrigger, ...]
) -> TurnView:
    """Adds one refusal for all invalid triggers of a tool result. A worker answers it with REFUSED,
    as it answers the refusal of a command."""
    if not refusals:
        return view
    details = "; ".join(dict.fromkeys(refusal.detail for refusal in refusals))
    return _refuse(view, offset, refused(refusals[0].code, details))


def _apply(views: SessionViews, entry: Entry) -> SessionViews:
    kind = type(entry.event)
    if kind in _CHUNKS:  # chunks are most of a log: keep this path short
        return replace(views, stream=turn.stream(views.stream, entry))
    state, before = views.state, views.turn
    after: TurnView = turn.apply(before, entry)
    now = session_state.apply(state, entry, before, after) if kind in session_state.READS else state
    demand_writer(state, now, _NAMES[kind])
    if kind is ev.ToolResult and before.rules >= HOLDS_TOOLS:
        _, refusals = session_state.triggered(state, before, entry.event)
        after = _refuse_triggers(after, entry.offset, refusals)
    if kind in _INPUTS:
        after = replace(after, basis=entry.offset, basis_sha=digest(now))
    changed: dict[str, Any] = {"state": now, "turn": after}
    for field, apply in _APPLY[kind]:
        changed[field] = apply(views, entry, after)
    if kind is ev.ResultCompacted and (short := changed["compaction"].shorts[-1]).early:
        # The next request contains the reminder, so a decision made before this event is stale.
        changed["turn"] = replace(after, basis=entry.offset, basis_sha=digest(now))
        tokens = views.context.tail_tokens - short.saved
        changed["context"] = replace(views.context, tail_tokens=tokens)
    return replace(views, **changed)
