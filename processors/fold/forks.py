"""Forks: the initial views of a session that was forked from another.

They are the parent's views at an offset, as if a TURN_ENDED with the reason `forked` had ended the
open turn. Everything that concerns the outside world stays with the parent: doubts, deliveries,
refusals, background work, money spent. inherited.py lists what each view inherits. Pure.
"""

from typing import NamedTuple

from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.value import replace
from .field_writers import demand_writer
from .partial_answer import chunks_of, said_so_far
from .projections import turn as turn_fold
from .projections.messages import Progress
from .projections.turn_view import CANCELLED, RUNNING, Closing, Stream
from .ruling import ACCEPTED, Ruling
from .rulings.producers import fork_opened
from .views import VIEWS, Origin, SessionViews


class Parent(NamedTuple):
    """A fork's parent: its views with the open turn ended, and the offset of the last of its events
    that the fork's seed holds (schemas/seed.py)."""

    views: SessionViews
    last: int


def open_fork(
    views: SessionViews, entry: Entry, parent: Parent
) -> tuple[SessionViews, Ruling]:
    """The views after a fork's SESSION_OPENED, and the ruling on it. `views`: the fork's views
    before that event."""
    ruling = fork_opened(parent.views, entry.event)
    if ruling is not ACCEPTED:
        turn = turn_fold.refuse(views.turn, entry.offset, ruling.code, ruling.detail)
        return replace(views, turn=turn), ruling
    inherited = {view.field: view.inherit(parent.views, entry, parent.last) for view in VIEWS}
    demand_writer(views.state, inherited["state"], "SESSION_OPENED")
    return replace(views, stream=Stream(), origin=origin_of(entry), **inherited), ruling


def origin_of(entry: Entry) -> Origin:
    """The origin that a fork's SESSION_OPENED names."""
    event = entry.event
    return Origin(event.parent_session, event.parent_offset, event.seed_ref.sha256, entry.offset)


def ending_events(views: SessionViews, last: Entry, chunks: list[ev.GenChunk]) -> list[Entry]:
    """The events that end the parent's open turn in the fork. They are not in the log; they get the
    position of the parent's last event.

    The partial answer of an open attempt is kept, as when a person stops the attempt.
    """
    turn = views.turn
    if not turn.open:
        return []
    place = (last.session_id, last.partition, last.offset, last.at)
    ended = ev.TurnEnded(
        turn=turn.number, reason="forked", basis=turn.basis, views_sha=turn.basis_sha
    )
    ending = [Entry(*place, "sessions", ended)]
    generation = turn.generation
    if generation is None or generation.status != RUNNING:
        return ending
    attempt = (turn.number, turn.step, generation.attempt)
    content = said_so_far(chunks_of(chunks, attempt, generation.chain))
    if content == b"[]":
        return ending
    stopped = ev.GenStopped(
        turn=turn.number,
        step=turn.step,
        attempt=generation.attempt,
        why="forked",
        content=ev.Body(inline=content),
    )
    return [Entry(*place, "models", stopped), *ending]


def with_turn_closing(views: SessionViews, at: int) -> SessionViews:
    """The views of a parent whose turn a fork is about to end.

    In the parent, later turns answer the messages that are queued behind this turn. In the fork, no
    turn answers these messages: they are recorded as messages of this turn.
    """
    turn, messages = views.turn, views.messages
    consumed = [
        Progress(waiting.message_id, turn.number, "forked", turn.basis) for waiting in turn.queue
    ]
    return replace(
        views,
        turn=replace(turn, queue=(), closing=Closing(CANCELLED, at)),
        messages=replace(messages, progress=messages.progress.append(*consumed)),
    )
