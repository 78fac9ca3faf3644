"""Refolds seeds: the history with which a fork begins, or a session without a skipped record.

A seed holds records (schemas/seed.py), and the fold of session.py folds them again. That fold calls
this file, so it passes its own steps in.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ...schemas.codec import Entry, entry_of
from ...schemas.events import GenChunk, SessionOpened
from ...schemas.seed import Seed, unseal
from ...schemas.value import replace
from . import forks
from .field_writers import demand_writer
from .forks import Parent
from .ruling import ACCEPTED, Ruling
from .views import SessionViews, initial

_UNRESOLVED = Seed(why="no reader resolved it")


class Steps(NamedTuple):
    """The steps of the fold.

    `judge`: the ruling on an event.
    `fold`: the views after an event, and the ruling.
    `apply`: the views after an accepted event.
    """

    judge: Callable[[SessionViews, Entry], Ruling]
    fold: Callable[[SessionViews, Entry], tuple[SessionViews, Ruling]]
    apply: Callable[[SessionViews, Entry], SessionViews]


class SeedLost(ValueError):
    """The seed of a fork or of a skipped record is unavailable (see schemas/seed.py). A fork then
    freezes at its first event, and a session whose record was to be skipped freezes at its
    RECORD_SKIPPED."""


def parent_of(seed: Seed | None, steps: Steps) -> Parent:
    """The parent of a fork. Raises SeedLost."""
    return _parent_of(seed or _UNRESOLVED, steps)


def without_record(views: SessionViews, entry: Entry, steps: Steps) -> SessionViews:
    """The session refolded from its seed, which lacks the skipped record. Raises SeedLost.

    The seed contains the events that arrived while the session was frozen, so they count now. The
    views always come from the seed, even in a version that understands the skipped record, because
    later decisions rely on these views.
    """
    again = _refolded(entry.seed or _UNRESOLVED, steps).views
    is_opened = views.turn.known or again.turn.known
    owner = entry.event.by_user if is_opened else ""
    if (again.session_id, again.state.user_id) != (views.session_id, owner):
        raise SeedLost(f"it is of session {again.session_id}")
    demand_writer(views.state, again.state, "RECORD_SKIPPED")
    return replace(again, skipped=(*views.skipped, entry.event.offset))


class _Refolded(NamedTuple):
    """The views of a session folded from a seed, the last entry, and the open attempt's chunks."""

    views: SessionViews
    last: Entry | None
    chunks: list[GenChunk]


@lru_cache(maxsize=8)  # forks at the same offset are often folded in a row
def _parent_of(seed: Seed, steps: Steps) -> Parent:
    return _with_turn_ended(_refolded(seed, steps), steps)


@lru_cache(maxsize=8)
def _refolded(seed: Seed, steps: Steps) -> _Refolded:
    """Fold a seed, ancestor by ancestor in a loop, because there may be thousands."""
    if seed.why:
        raise SeedLost(seed.why)
    *above, newest = seed.levels
    parent: Parent | None = None
    for level in above:
        parent = _with_turn_ended(_fold_level(level, parent, steps), steps)
    return _fold_level(newest, parent, steps)


def _fold_level(level: bytes, parent: Parent | None, steps: Steps) -> _Refolded:
    """Fold one session of a seed; `parent`: the session that it was forked from, if any."""
    session_id, seed, records = unseal(level)
    views, last = initial(session_id), None
    chunks: list[GenChunk] = []
    for record in records:
        last = entry_of(record, chunks=True)
        if type(last.event) is SessionOpened and last.event.seed_ref is not None:
            if parent is None or seed != last.event.seed_ref:
                continue  # the skip of another record counted
            if steps.judge(views, last) is ACCEPTED:
                views, _ = forks.open_fork(views, last, parent)
            continue
        views, ruling = steps.fold(views, last)
        if type(last.event) is GenChunk and ruling is ACCEPTED:
            chunks.append(last.event)
    return _Refolded(views, last, chunks)


def _with_turn_ended(refolded: _Refolded, steps: Steps) -> Parent:
    views, last, chunks = refolded
    if last is None or views.frozen is not None:
        raise SeedLost(f"its parent {views.session_id} can not be folded: {views.frozen}")
    ending = forks.ending_events(views, last, chunks)
    views = forks.with_turn_closing(views, last.at) if ending else views
    for entry in ending:
        views = steps.apply(views, entry)
    return Parent(views, last.offset)
