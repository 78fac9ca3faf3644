"""The views of one session: all that the fold keeps of its events, as one value.

Rulings, projections, wake and request take them; session.py makes new ones.
"""

from ...schemas.value import Value
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
from .projections.turn_view import Stream, TurnView


class Frozen(Value):
    """Where a session stopped, and why: refolded after an upgrade (law 13)."""

    offset: int
    why: str


class Origin(Value):
    """Where a fork comes from. `session_id`, `offset`: its parent, and where it was left; `seed`:
    the sha256 of the blob; `opened`: the fork's SESSION_OPENED, where its own history begins."""

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
    context: context.ContextView
    transcript: transcript.TranscriptView
    ledger: ledger.LedgerView
    messages: messages.MessagesView
    compaction: compaction.CompactionView
    background: background.BackgroundView
    delivery: delivery.DeliveryView
    items: items.ItemsView
    frozen: Frozen | None = None
    origin: Origin | None = None
    skipped: tuple[int, ...] = ()  # offsets of the records passed over (RECORD_SKIPPED)


def frozen_at(offset: int, why: str) -> Frozen:
    """A session stops here; the reason is shortened, and made to fit UTF-8."""
    return Frozen(offset, why[:500].encode("utf-8", "replace").decode())


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


__all__ = ["Frozen", "Origin", "SessionViews", "frozen_at", "initial"]
