"""The fold of one session: `fold(views, entry) -> (views, ruling)`, pure, total, never raising.

First the ruling (does this event count?), then the projections that read it, in a fixed order. The
same function runs in the worker, in recovery, in replay, in the time scrubber and in the tests.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable, digest, entry_of
from ...schemas.events import BY_CLASS, EVENT_TYPES
from ...schemas.seed import Seed, unseal
from ...schemas.value import replace
from . import forks
from .field_writers import demand_writer
from .projections import ledger, session_state, turn
from .projections.turn_view import HOLDS_TOOLS, REFUSALS_MAX, Refusal, TurnView
from .ruling import ACCEPTED, FROZEN, MISTAKEN_WRITER, UNKNOWN_SESSION, UNREADABLE, Ruling, refused
from .rulings import (
    background as background_rulings,
    producers as producer_rulings,
    workers as worker_rulings,
)
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
_PAID = frozenset(ledger.OUTCOMES)
# Row G: a frozen session still answers refusals; only RECORD_SKIPPED lets it continue.
_WHILE_FROZEN = frozenset({ev.Refused, ev.HumanNeeded, ev.RecordSkipped})
_ALWAYS_POSSIBLE = (ev.SessionOpened, ev.RecordSkipped)  # their rulings are complete


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
    asked = producer_rulings.JUDGES.get(kind)
    if asked is None:
        if not views.turn.known and kind is not ev.Refused:
            return UNKNOWN_SESSION
        judges = worker_rulings.JUDGES
        if kind not in judges:
            judges = background_rulings.JUDGES
        return judges[kind](views, event)
    if kind not in _ALWAYS_POSSIBLE:
        impossible = producer_rulings.not_possible(views, event)
        if impossible is not None:
            return impossible
    return asked(views, event)


def fold(views: SessionViews, entry: Entry) -> tuple[SessionViews, Ruling]:
    """The views after an event, and the ruling on it.

    An event that makes a fold raise freezes its session at that offset; other sessions continue.
    """
    try:
        ruling = judge(views, entry)
        if ruling is not ACCEPTED:
            return _not_accepted(views, entry, ruling), ruling
        if _is_fork(entry):
            return _fork(views, entry, _parent(entry.seed or _UNRESOLVED))
        if type(entry.event) is ev.RecordSkipped:
            return _skipped(views, entry), ruling
        return _apply(views, entry), ruling
    except Exception as bug:
        frozen = frozen_at(entry.offset, f"{type(bug).__name__}: {bug}")
        return replace(views, frozen=views.frozen or frozen), FROZEN


def _is_fork(entry: Entry) -> bool:
    return type(entry.event) is ev.SessionOpened and entry.event.seed_ref is not None


_UNRESOLVED = Seed(why="no reader resolved it")


class SeedLost(ValueError):
    """A seed is unavailable: a fork is frozen where it begins, a session where it was to continue
    without a record."""


class Parent(NamedTuple):
    """The views of a seed with its open turn closed, and the offset of its last event."""

    views: SessionViews
    last: int


def _fork(views: SessionViews, entry: Entry, parent: Parent) -> tuple[SessionViews, Ruling]:
    ruling = producer_rulings.fork_opened(parent.views, entry.event)
    if ruling is not ACCEPTED:
        return _not_accepted(views, entry, ruling), ruling
    return forks.begun(views, parent.views, entry, parent.last), ruling


def _skipped(views: SessionViews, entry: Entry) -> SessionViews:
    """The session folded from its seed, which lacks the record that is passed over.

    Events that arrived while it was frozen count now. The seed decides the views, not this
    version's fold: later decisions rely on them, even if a later version understands more.
    """
    again = _refolded(entry.seed or _UNRESOLVED).views
    if (again.session_id, again.state.user_id) != (views.session_id, views.state.user_id):
        raise SeedLost(f"it is of session {again.session_id}")
    return replace(again, skipped=(*views.skipped, entry.event.offset))


@lru_cache(maxsize=8)  # forks of the same place are often folded in a row
def _parent(seed: Seed) -> Parent:
    """The initial views of a fork: its parent with the open turn closed."""
    return _closed(_refolded(seed))


class Refolded(NamedTuple):
    """A session folded from the records in a seed, its last entry, and its chunks."""

    views: SessionViews
    last: Entry | None
    chunks: list[ev.GenChunk]


@lru_cache(maxsize=8)
def _refolded(seed: Seed) -> Refolded:
    """Fold a seed: the records of each ancestor, the oldest first; there may be thousands."""
    if seed.why:
        raise SeedLost(seed.why)
    *above, newest = seed.levels
    parent: Parent | None = None
    for level in above:
        parent = _closed(_grown(level, parent))
    return _grown(newest, parent)


def _grown(level: bytes, before: Parent | None) -> Refolded:
    session_id, seed, records = unseal(level)
    views, last = initial(session_id), None
    chunks: list[ev.GenChunk] = []
    for record in records:
        last = entry_of(record, chunks=True)
        if _is_fork(last):
            if before is None or seed != last.event.seed_ref:
                continue  # not the record that counted
            if judge(views, last) is ACCEPTED:
                views, _ = _fork(views, last, before)
            continue
        views, ruling = fold(views, last)
        if type(last.event) is ev.GenChunk and ruling is ACCEPTED:
            chunks.append(last.event)
    return Refolded(views, last, chunks)


def _closed(grown: Refolded) -> Parent:
    views, last, chunks = grown
    if last is None or views.frozen is not None:
        raise SeedLost(f"its parent {views.session_id} can not be folded: {views.frozen}")
    endings = forks.endings(views, last, chunks)
    views = forks.closing(views, last.at) if endings else views
    for ending in endings:
        views = _apply(views, ending)
    return Parent(views, last.offset)


def streamed_on(views: SessionViews, chunks: int, at: int) -> SessionViews:
    """Fold that many more chunks of the attempt whose chunk was just accepted, at once: no chunk
    changes what decides about the next. `at`: broker time of the last."""
    stream = views.stream
    return replace(views, stream=replace(stream, chunks=stream.chunks + chunks, last_at=at))


def _not_accepted(views: SessionViews, entry: Entry, ruling: Ruling) -> SessionViews:
    if ruling.verdict == "refused":
        return replace(views, turn=_refuse(views.turn, entry.offset, ruling))
    if ruling is UNREADABLE and entry.event.must_understand:
        return replace(views, frozen=frozen_at(entry.offset, entry.event.why))
    if type(entry.event) in _PAID and ruling.code in ("superseded", "late", "duplicate"):
        return replace(views, ledger=ledger.apply(views.ledger, entry))
    return views


def _refuse(view: TurnView, offset: int, ruling: Ruling) -> TurnView:
    if len(view.refusals) >= REFUSALS_MAX:
        view = replace(view, refusals=view.refusals[1:], refusals_dropped=view.refusals_dropped + 1)
    owed = Refusal(offset, ruling.code, ruling.detail)
    return replace(view, refusals=(*view.refusals, owed))


def _refuse_triggers(view: TurnView, offset: int, refusals: tuple[Ruling, ...]) -> TurnView:
    """Triggers of a tool that are refused get an answer in the log, like a person's."""
    if not refusals:
        return view
    details = "; ".join(dict.fromkeys(refusal.detail for refusal in refusals))
    return _refuse(view, offset, refused(refusals[0].code, details))


def _apply(views: SessionViews, entry: Entry) -> SessionViews:
    kind = type(entry.event)
    if kind in _CHUNKS:  # most of a log: keep this path short
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
        # The next request contains it, so a decision made before it is stale.
        changed["turn"] = replace(after, basis=entry.offset, basis_sha=digest(now))
        tokens = views.context.tail_tokens - short.saved
        changed["context"] = replace(views.context, tail_tokens=tokens)
    return replace(views, **changed)


def is_input(event: Any) -> bool:
    """Whether decisions depend on events of this type."""
    return BY_CLASS[type(event)].is_input


__all__ = ["ACCEPTED", "fold", "is_input", "judge"]
