"""compaction: short forms by call, the newest candidate summary, and the adopted checkpoint.

A candidate comes into force when an LLM_CALLED adopts it through `checkpoint`. A short form is in
force if it was written before its result was first sent to the model, or if a later LLM_CALLED
adopted it through `compacted_upto`.
"""

from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from ..rows import Rows
from .context_view import ContextView, fragment_tokens, place_of_call


class Short(Value):
    """A short form of a result. `early`: it was written before any request contained the result.

    `place`: the ordinal of the result's fragment.
    `saved`: estimated tokens that the short form saves.
    """

    call: str
    place: int
    offset: int
    body: ev.Body
    saved: int
    early: bool


class Summary(Value):
    """A summary, which replaces the fragments before `kept_from`.

    `offset`: the offset of its CONTEXT_COMPACTED.
    `upto`: the offset of the newest fragment when the summary became due.
    """

    offset: int
    upto: int
    kept_from: int
    body: ev.Body
    tokens: int
    model: str


class CompactionView(Value):
    """`candidate_at`: the offset of the newest summary, if it is not adopted.
    `checkpoint_at`: the offset of the summary in force.
    `compacted_upto`: short forms at or before this offset are in force.
    `waiting`: estimated tokens that a request would save by adopting the short forms after that
        offset.
    """

    shorts: Rows[Short]
    summaries: Rows[Summary]
    candidate_at: int | None = None
    checkpoint_at: int | None = None
    compacted_upto: int = -1
    waiting: int = 0

    @property
    def candidate(self) -> Summary | None:
        """The newest summary, if no request has adopted it."""
        return self.summaries.last(self.candidate_at)

    @property
    def checkpoint(self) -> Summary | None:
        """The summary in force, with which the messages of a request begin, or None."""
        return self.summaries.last(self.checkpoint_at)


Reads = ev.ResultCompacted | ev.ResultReplaced | ev.ContextCompacted | ev.LlmCalled
READS = frozenset(get_args(Reads))


def initial() -> CompactionView:
    """The view without compactions; a new value each time, because rows share storage."""
    return CompactionView(Rows(key=attrgetter("call")), Rows(key=attrgetter("offset")))


def in_force(view: CompactionView, call: str, compacted_upto: int) -> Short | None:
    """The short form that a request contains instead of a call's result, or None."""
    short = view.shorts.last(call)
    if short is None or not (short.early or short.offset <= compacted_upto):
        return None
    return short


def kept_from(view: CompactionView) -> int:
    """The ordinal of the first fragment after the summary in force."""
    checkpoint = view.checkpoint
    return checkpoint.kept_from if checkpoint is not None else 0


def has_summary(view: CompactionView, upto: int) -> bool:
    """Whether the summary that covers the session up to this offset is already in the log. It can
    only be the newest, because summaries are made one at a time."""
    return len(view.summaries) > 0 and view.summaries[-1].upto == upto


def apply(view: CompactionView, entry: Entry, context: ContextView) -> CompactionView:
    """The view after an accepted event; `context` is the context view before it."""
    event: Reads = entry.event
    match event:
        case ev.ResultCompacted():
            return _shortened(view, entry, event, context)
        case ev.ResultReplaced():
            if view.shorts.last(event.call) is None:
                return view
            others = [short for short in view.shorts if short.call != event.call]
            return replace(view, shorts=Rows(others, key=attrgetter("call")))
        case ev.ContextCompacted():
            place = (entry.offset, event.upto, event.kept_from)
            made = Summary(*place, event.summary, event.tokens, event.model)
            return replace(view, summaries=view.summaries.append(made), candidate_at=entry.offset)
        case ev.LlmCalled():
            return _adopted(view, event)
        case _:
            assert_never(event)


def _shortened(
    view: CompactionView, entry: Entry, event: ev.ResultCompacted, context: ContextView
) -> CompactionView:
    place = place_of_call(context, event.call)
    assert place is not None, "a shortened result is in the context"
    early = context.request is None or place >= context.request.fragments
    saved = max(0, fragment_tokens(context.fragments, place) - event.tokens)
    short = Short(event.call, place, entry.offset, event.short, saved, early)
    waiting = view.waiting if early or place < kept_from(view) else view.waiting + saved
    return replace(view, shorts=view.shorts.append(short), waiting=waiting)


def _adopted(view: CompactionView, event: ev.LlmCalled) -> CompactionView:
    moved = event.compacted_upto > view.compacted_upto
    adopts = event.checkpoint is not None and event.checkpoint != view.checkpoint_at
    if not adopts and not moved:
        return view
    if adopts:
        view = replace(view, checkpoint_at=event.checkpoint, candidate_at=None)
    upto, begin = max(view.compacted_upto, event.compacted_upto), kept_from(view)
    left = [s for s in view.shorts if not s.early and s.offset > upto and s.place >= begin]
    return replace(view, compacted_upto=upto, waiting=sum(short.saved for short in left))
