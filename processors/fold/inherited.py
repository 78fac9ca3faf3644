"""The part of each view that a fork inherits from its parent.

In this file, `at` is the offset of the fork's SESSION_OPENED; rows that the fork inherits get this
offset. `last` is the offset of the parent's last event; see `below`. Deliveries, background work
and money spent stay with the parent.
"""

from typing import TypeVar

from ...schemas.codec import Entry
from ...schemas.value import Value, replace
from .projections import (
    compaction as compaction_fold,
    context as context_fold,
    items as items_fold,
    messages as messages_fold,
    transcript as transcript_fold,
)
from .projections.background import BackgroundView
from .projections.compaction import CompactionView, Short, Summary
from .projections.context_view import ContextView
from .projections.items import ItemsView
from .projections.messages import MessagesView
from .projections.session_state import SessionState
from .projections.transcript import TranscriptView
from .projections.turn_view import TurnView
from .rows import Rows

V = TypeVar("V", bound=Value)


def _moved(empty: Rows[V], rows: Rows[V], at: int) -> Rows[V]:
    """The parent's rows as rows of the fork, all at the offset `at`."""
    return empty.append(*(replace(row, offset=at) for row in rows))


def state(parent: SessionState, entry: Entry) -> SessionState:
    """The parent's phase and project, under the fork's own id."""
    return replace(
        parent,
        session_id=entry.session_id,
        user_id=entry.event.user_id,
        pending_tool=None,
        cancel_token=None,
        updated_at=entry.at,
    )


def turn(parent: TurnView, entry: Entry, state_sha: bytes) -> TurnView:
    """The parent's turn and step numbers, grants and reminders, without work in flight."""
    event, at = entry.event, entry.offset
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
        since=entry.at,
    )


def context(parent: ContextView, at: int, last: int) -> ContextView:
    """The parent's whole conversation, at the offset of the event that opened the fork."""
    empty, request = context_fold.initial(), parent.request
    if request is not None:
        request = replace(
            request,
            offset=at,
            checkpoint=below(request.checkpoint, last),
            compacted_upto=below(request.compacted_upto, last),
        )
    return replace(
        parent,
        fragments=_moved(empty.fragments, parent.fragments, at),
        prefixes=_moved(empty.prefixes, parent.prefixes, at),
        request=request,
    )


def transcript(parent: TranscriptView, at: int) -> TranscriptView:
    """The parent's lines, without their deliveries."""
    empty = transcript_fold.initial()
    return replace(empty, lines=_moved(empty.lines, parent.lines, at))


def messages(parent: MessagesView, at: int) -> MessagesView:
    """The parent's messages, so that the fork recognizes their ids as used."""
    empty = messages_fold.initial()
    return MessagesView(
        _moved(empty.received, parent.received, at), _moved(empty.progress, parent.progress, at)
    )


def background(parent: BackgroundView, at: int) -> BackgroundView:
    """A view without background work. It keeps only `tried_tokens`, so that a summary that
    failed in the parent is not tried again at once."""
    tried = parent.tried_tokens
    return BackgroundView(tried_tokens=tried, idle_at=at, remembered_upto=at)


def items(parent: ItemsView, at: int) -> ItemsView:
    """The parent's items, live or retracted."""
    empty = items_fold.initial()
    return replace(
        parent,
        batches=_moved(empty.batches, parent.batches, at),
        retractions=_moved(empty.retractions, parent.retractions, at),
    )


def below(offset: int | None, last: int) -> int | None:
    """Moves an offset of the parent below -1. It is then less than every offset of the fork, and
    differs from -1, which means in a view that there is no offset."""
    return None if offset is None else offset - last - 2


def compaction(parent: CompactionView, last: int) -> CompactionView:
    """The parent's short forms and summaries, at offsets below all offsets of the fork."""
    empty = compaction_fold.initial()

    def short(row: Short) -> Short:
        return replace(row, offset=below(row.offset, last))

    def summary(row: Summary) -> Summary:
        return replace(row, offset=below(row.offset, last), upto=below(row.upto, last))

    return replace(
        parent,
        shorts=empty.shorts.append(*map(short, parent.shorts)),
        summaries=empty.summaries.append(*map(summary, parent.summaries)),
        candidate_at=below(parent.candidate_at, last),
        checkpoint_at=below(parent.checkpoint_at, last),
        compacted_upto=below(parent.compacted_upto, last),
    )
