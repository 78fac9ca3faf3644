"""Forks: what a session begins with that was forked from another (design section 5).

Its parent's views at an offset, the open turn closed as by TURN_ENDED `forked`. What is still owed
in the world stays the parent's: doubts, deliveries, refusals, background work, money spent. What
was said came into this session by its SESSION_OPENED, so every row has the offset of that event;
the offsets that compactions are compared by are moved below it, in their order. Pure.
"""

from typing import Any

from ...schemas import events as ev
from ...schemas.codec import Entry, digest
from ...schemas.value import replace
from .partial_answer import chunks_of, said_so_far
from .projections import background, context, delivery, items, ledger, transcript
from .projections.compaction import CompactionView, Short, Summary
from .projections.messages import MessagesView, Progress
from .projections.turn_view import Closing, Stream, TurnView
from .views import Origin, SessionViews


def origin_of(entry: Entry) -> Origin:
    """What a fork's SESSION_OPENED says of where it comes from."""
    event = entry.event
    return Origin(event.parent_session, event.parent_offset, event.seed_ref.sha256, entry.offset)


def endings(views: SessionViews, last: Entry, chunks: list[ev.GenChunk]) -> list[Entry]:
    """The events that close the open turn of a parent, as if right after its last one.

    What an open attempt had said is kept as it is when somebody stops it.
    """
    turn, stopped = views.turn, []
    generation = turn.generation
    if not turn.open:
        return []
    if generation is not None and generation.status == "running":
        here = (turn.number, turn.step, generation.attempt)
        said = said_so_far(chunks_of(chunks, here, generation.chain))
        stopped = [
            ev.GenStopped(
                turn=turn.number,
                step=turn.step,
                attempt=generation.attempt,
                why="forked",
                content=ev.Body(inline=said),
            )
        ] * (said != b"[]")
    ended = ev.TurnEnded(
        turn=turn.number, reason="forked", basis=turn.basis, views_sha=turn.basis_sha
    )
    place = (last.session_id, last.partition, last.offset, last.at)
    return [
        *(Entry(*place, "models", event) for event in stopped),
        Entry(*place, "sessions", ended),
    ]


def closing(views: SessionViews, at: int) -> SessionViews:
    """The views of a parent whose turn is about to be ended by a fork.

    What waits behind the turn is the parent's to answer: here it is consumed with it.
    """
    turn, messages = views.turn, views.messages
    waiting = [
        Progress(waits.message_id, turn.number, "forked", turn.basis) for waits in turn.queue
    ]
    return replace(
        views,
        turn=replace(turn, queue=(), closing=Closing("cancelled", at)),
        messages=replace(messages, progress=messages.progress.append(*waiting)),
    )


def begun(views: SessionViews, parent: SessionViews, entry: Entry, last: int) -> SessionViews:
    """The views of a fork after its SESSION_OPENED. `views`: before it; `parent`: with its turn
    ended; `last`: the offset of the parent's last event."""
    at, event = entry.offset, entry.event
    state = replace(
        parent.state,
        session_id=views.session_id,
        user_id=event.user_id,
        pending_tool=None,
        cancel_token=None,
        updated_at=entry.at,
    )
    tried = parent.background.tried_tokens
    aside = replace(background.INITIAL, tried_tokens=tried, idle_at=at, remembered_upto=at)
    lines = _moved(transcript.initial().lines, parent.transcript.lines, at)
    return replace(
        views,
        state=state,
        turn=replace(_turn(parent.turn, event, at, digest(state)), since=entry.at),
        stream=Stream(),
        context=_context(parent.context, at, last),
        transcript=replace(transcript.initial(), lines=lines),
        ledger=ledger.initial(),
        messages=_messages(views.messages, parent.messages, at),
        compaction=_compaction(views.compaction, parent.compaction, last),
        background=aside,
        delivery=delivery.INITIAL,
        items=_items(parent.items, at),
        origin=origin_of(entry),
    )


def _moved(empty: Any, rows: Any, at: int) -> Any:
    """Rows as they came into a fork: all by one event."""
    return empty.append(*(replace(row, offset=at) for row in rows))


def _turn(parent: TurnView, event: ev.SessionOpened, at: int, state_sha: bytes) -> TurnView:
    reminders = tuple(
        replace(reminder, reminder_id=f"r{at}.{n}") for n, reminder in enumerate(parent.reminders)
    )
    return TurnView(
        known=True,
        rules=event.rules,
        agent=event.agent,
        basis=at,
        basis_sha=state_sha,
        number=parent.number,
        opened_offset=at,
        step=parent.step,
        due_at=parent.due_at,
        grants=parent.grants,
        reminders=reminders,
        reminder_ids=parent.reminder_ids,
    )


def _context(parent: context.ContextView, at: int, last: int) -> context.ContextView:
    empty, request = context.initial(), parent.request
    if request is not None:
        request = replace(
            request,
            offset=at,
            checkpoint=_below(request.checkpoint, last),
            compacted_upto=_below(request.compacted_upto, last),
        )
    return replace(
        parent,
        fragments=_moved(empty.fragments, parent.fragments, at),
        prefixes=_moved(empty.prefixes, parent.prefixes, at),
        request=request,
    )


def _messages(empty: MessagesView, parent: MessagesView, at: int) -> MessagesView:
    return MessagesView(
        _moved(empty.received, parent.received, at), _moved(empty.progress, parent.progress, at)
    )


def _items(parent: items.ItemsView, at: int) -> items.ItemsView:
    empty = items.initial()
    return replace(
        parent,
        batches=_moved(empty.batches, parent.batches, at),
        retractions=_moved(empty.retractions, parent.retractions, at),
    )


def _below(offset: int | None, last: int) -> int | None:
    """An offset of the parent where it is compared with others: below all of the fork's own, and
    below -1, which says that there is none."""
    return None if offset is None else offset - last - 2


def _compaction(empty: CompactionView, parent: CompactionView, last: int) -> CompactionView:
    def short(row: Short) -> Short:
        return replace(row, offset=_below(row.offset, last))

    def summary(row: Summary) -> Summary:
        return replace(row, offset=_below(row.offset, last), upto=_below(row.upto, last))

    return replace(
        parent,
        shorts=empty.shorts.append(*map(short, parent.shorts)),
        summaries=empty.summaries.append(*map(summary, parent.summaries)),
        candidate_at=_below(parent.candidate_at, last),
        checkpoint_at=_below(parent.checkpoint_at, last),
        compacted_upto=_below(parent.compacted_upto, last),
    )


__all__ = ["begun", "closing", "endings", "origin_of"]
