"""The views of one session as one value: everything that the fold computes from its events.

Rulings, projections, wake and request read them; session.py computes new ones. The fold, forks, the
store's codec, `show` and `replay` read the table VIEWS. docs/contributing.md lists what a new view
needs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ...schemas.codec import Entry, digest
from ...schemas.value import Value
from . import inherited
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
)
from .projections.context_view import ContextView
from .projections.turn_view import Stream, TurnView


class Frozen(Value):
    """The offset at which a session froze, and why. An upgrade refolds the session."""

    offset: int
    why: str


class Origin(Value):
    """The origin of a fork.

    `session_id`: the parent.
    `offset`: the parent's offset at which it was forked.
    `seed`: the sha256 of the seed's blob.
    `opened`: the offset of the fork's SESSION_OPENED.
    """

    session_id: str
    offset: int
    seed: str
    opened: int


class SessionViews(Value):
    """Every view of one session, at one offset."""

    session_id: str
    state: session_state.SessionState
    turn: TurnView
    stream: Stream
    context: ContextView
    transcript: transcript.TranscriptView
    ledger: ledger.LedgerView
    messages: messages.MessagesView
    compaction: compaction.CompactionView
    background: background.BackgroundView
    delivery: delivery.DeliveryView
    items: items.ItemsView
    frozen: Frozen | None = None
    origin: Origin | None = None
    skipped: tuple[int, ...] = ()  # offsets of skipped records (RECORD_SKIPPED)
    replaced: tuple[str, ...] = ()  # calls whose result was replaced (RESULT_REPLACED)

    @property
    def rewrites(self) -> tuple[int | str, ...]:
        """Changes with each event that changed earlier rows."""
        return (*self.skipped, *self.replaced)


def frozen_at(offset: int, why: str) -> Frozen:
    """The value for a session frozen at an offset. The reason is shortened and made valid UTF-8."""
    return Frozen(offset, why[:500].encode("utf-8", "replace").decode())


class View(NamedTuple):
    """One view.

    `field`: its name in SessionViews and in the output of `show`.
    `name`: its name in replays and in the web pages.

    `reads`: the events that may change the view.
    `apply`: computes the view after such an event, from all views before the event and the turn
        view after it. `apply` is None for the turn and the session state, which session.py folds
        before the other views.
    `inherit`: computes the initial view of a fork, from the parent's views, the fork's
        SESSION_OPENED and the offset of the parent's last event.
    """

    name: str
    field: str
    initial: Callable[[], Any]
    reads: frozenset[type]
    apply: Callable[[SessionViews, Entry, TurnView], Any] | None
    inherit: Callable[[SessionViews, Entry, int], Any]


def _state_of_fork(parent: SessionViews, entry: Entry, _last: int) -> session_state.SessionState:
    return inherited.state(parent.state, entry)


def _turn_of_fork(parent: SessionViews, entry: Entry, last: int) -> TurnView:
    return inherited.turn(parent.turn, entry, digest(_state_of_fork(parent, entry, last)))


# In the functions below, `v` are the views before event `e`, `turn_after` is the turn view after
# it, and `p` are the views of a fork's parent.
VIEWS = (
    View(
        "session_state", "state", session_state.SessionState, session_state.READS, None,
        _state_of_fork,
    ),
    View("turn", "turn", TurnView, frozenset(), None, _turn_of_fork),
    View(
        "context", "context", context.initial, context.READS,
        lambda v, e, _: context.apply(v.context, e, v.turn, v.messages, v.state, v.compaction),
        lambda p, e, last: inherited.context(p.context, e.offset, last),
    ),
    View(
        "transcript", "transcript", transcript.initial, transcript.READS,
        lambda v, e, turn_after: transcript.apply(v.transcript, e, v.turn, turn_after, v.state),
        lambda p, e, _: inherited.transcript(p.transcript, e.offset),
    ),
    View(
        "ledger", "ledger", ledger.initial, ledger.READS,
        lambda v, e, _: ledger.apply(v.ledger, e),
        lambda _p, _e, _: ledger.initial(),
    ),
    View(
        "messages", "messages", messages.initial, messages.READS,
        lambda v, e, turn_after: messages.apply(v.messages, e, v.turn, turn_after),
        lambda p, e, _: inherited.messages(p.messages, e.offset),
    ),
    View(
        "compaction", "compaction", compaction.initial, compaction.READS,
        lambda v, e, _: compaction.apply(v.compaction, e, v.context),
        lambda p, _, last: inherited.compaction(p.compaction, last),
    ),
    View(
        "background", "background", background.BackgroundView, background.READS,
        lambda v, e, turn_after: background.apply(
            v.background, e, v.turn, turn_after, v.context
        ),
        lambda p, e, _: inherited.background(p.background, e.offset),
    ),
    View(
        "delivery", "delivery", delivery.DeliveryView, delivery.READS,
        lambda v, e, turn_after: delivery.apply(v.delivery, e, v.turn, turn_after),
        lambda _p, _e, _: delivery.INITIAL,
    ),
    View(
        "items", "items", items.initial, items.READS,
        lambda v, e, _: items.apply(v.items, e),
        lambda p, e, _: inherited.items(p.items, e.offset),
    ),
)
"""Every view, in display order. A fold reads the turn view as it is after the event, and all other
views as they were before the event, so the order of folding does not matter."""


def initial(session_id: str) -> SessionViews:
    """The views of an unknown session."""
    views = {view.field: view.initial() for view in VIEWS}
    return SessionViews(session_id, stream=Stream(), **views)
