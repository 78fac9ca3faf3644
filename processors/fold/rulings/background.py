"""Rulings on background work, and on the compactions that a request may adopt.

As with all events of workers, an event that does not fit the views is ignored, and WAKE decides
again. The first outcome of any attempt counts, because a summary is equally good from any worker.
"""

from typing import assert_never

from ....schemas import events as ev
from ....schemas.ids import parse_call_key
from ..cut_points import is_cut, window_size
from ..projections.background import KINDS, SUMMARIES, WorkKind, find_work, running_summary
from ..projections.compaction import has_summary, kept_from
from ..projections.context_view import place_of_result
from ..ruling import ACCEPTED, DUPLICATE, LATE, STALE, SUPERSEDED, UNSUPPORTED, VOID, Ruling
from ..views import SessionViews
from .judges import Judges


def may_adopt(views: SessionViews, event: ev.LlmCalled) -> bool:
    """Whether a request may adopt the compactions that it names.

    It may name the summary in force or the candidate. Short forms that an earlier request adopted
    stay adopted.
    """
    view = views.compaction
    try:
        window_size(event.strategy)
    except ValueError:
        return False
    if event.compacted_upto < view.compacted_upto:
        return False
    if event.strategy != "compacted" or event.checkpoint is None:
        return event.checkpoint is None and (
            event.strategy != "compacted" or view.checkpoint is None
        )
    return any(s and s.offset == event.checkpoint for s in (view.checkpoint, view.candidate))


def background_started(views: SessionViews, event: ev.BackgroundStarted) -> Ruling:
    """Rules on a claim of work that is due, or on a takeover of claimed work under a newer
    epoch."""
    view = views.background
    if event.kind not in KINDS:
        return UNSUPPORTED
    if views.turn.closing is not None or views.turn.terminated:
        return VOID
    work = find_work(view, event.kind, event.upto)
    if work is not None:
        if event.attempt != work.attempt + 1:
            return DUPLICATE
        # The check of the epoch guards against forged and foreign records, as in gen_resumed.
        takes_over = (work.released or event.epoch > work.claim.epoch) and not work.stop
        return ACCEPTED if takes_over else SUPERSEDED
    if event.attempt != 1:
        return DUPLICATE
    return ACCEPTED if _is_due(views, WorkKind(event.kind), event.upto) else LATE


def _is_due(views: SessionViews, kind: WorkKind, upto: int) -> bool:
    view, fragments = views.background, views.context.fragments
    match kind:
        case WorkKind.RESULT:
            return any(large.upto == upto for large in view.results)
        case WorkKind.MEMORY:
            runs = any(work.kind is kind for work in view.works)
            return view.remembered_upto < upto == view.idle_at and not runs
        case WorkKind.CONTEXT | WorkKind.RESUME:
            if running_summary(view) is not None or not len(fragments):
                return False
            is_new = upto == fragments[-1].offset and upto > view.tried_upto
            return is_new and (kind is WorkKind.CONTEXT) == views.turn.open
        case _:
            assert_never(kind)


def background_done(views: SessionViews, event: ev.BackgroundDone) -> Ruling:
    """Rules on the end of work. The first outcome counts. An owner that ends may release its claim
    only if the claim is the newest attempt of the work."""
    work = find_work(views.background, event.kind, event.upto)
    if work is None or (event.released and work.released):
        return DUPLICATE
    if event.released and event.attempt < work.attempt:
        return SUPERSEDED  # the ledger counts the cost anyway
    return ACCEPTED if event.attempt <= work.attempt else STALE


def result_compacted(views: SessionViews, event: ev.ResultCompacted) -> Ruling:
    """Rules on a short form. It counts only if it is the first one for its result, if it comes from
    claimed work, and if the context has the result."""
    view = views.background
    if views.compaction.shorts.last(event.call) is not None:
        return DUPLICATE
    upto = next((large.upto for large in view.results if large.call == event.call), None)
    work = None if upto is None else find_work(view, WorkKind.RESULT, upto)
    place = parse_call_key(event.call)
    if work is None or place is None or place_of_result(views.context, *place) is None:
        return LATE
    return VOID if work.stop else ACCEPTED


def context_compacted(views: SessionViews, event: ev.ContextCompacted) -> Ruling:
    """Rules on a candidate summary. It must come from the summary work that runs, and must not end
    between a call and the call's result."""
    work = running_summary(views.background)
    if has_summary(views.compaction, event.upto):
        return DUPLICATE  # adopted or not: after a takeover, both workers may write one
    if work is None or work.upto != event.upto:
        return LATE
    if work.stop:
        return VOID
    fragments = views.context.fragments
    candidate = views.compaction.candidate
    begin = candidate.kept_from if candidate is not None else kept_from(views.compaction)
    within = begin < event.kept_from < len(fragments)
    return ACCEPTED if within and is_cut(fragments, event.kept_from) else STALE


def compaction_skipped(views: SessionViews, event: ev.CompactionSkipped) -> Ruling:
    """Rules on a note that a summary up to this offset is not worth its cost. Only the first note
    for an offset counts."""
    if event.upto <= views.background.tried_upto:
        return DUPLICATE
    due = any(_is_due(views, kind, event.upto) for kind in SUMMARIES)
    return ACCEPTED if due else LATE


JUDGES: Judges = {
    ev.BackgroundStarted: background_started,
    ev.BackgroundDone: background_done,
    ev.ResultCompacted: result_compacted,
    ev.ContextCompacted: context_compacted,
    ev.CompactionSkipped: compaction_skipped,
}
