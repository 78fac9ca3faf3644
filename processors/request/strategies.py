"""`build_context(views, strategy)`: the next request under any strategy.

A context is a query over views; nothing is stored for it. `build_context` folds an LLM_CALLED as if
a step were decided now, so its result cannot differ from a real request.
"""

from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.enums import WhenBusy
from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..fold.cut_points import window_size
from ..fold.projections import context as context_fold
from ..fold.projections.context_view import ContextView, Request
from ..fold.projections.prefixes import Prefix
from ..fold.rulings.workers import step_is_due
from ..fold.views import SessionViews
from .build import Context, context_of

NOTHING = ev.Body(inline=b"[]")


def build_context(views: SessionViews, strategy: str, read_blob: ReadBlob) -> Context:
    """The content of the next request (system, tools, messages) as JSON texts without cache marks.

    `strategy`: full, sliding_window_N or compacted; raises ValueError for any other. Messages that
    wait for the next step are included. Without CONTEXT_SET, system and tools are empty.
    """
    after, request = next_request(views, strategy)
    return context_of(after, views.compaction, request, read_blob)


def next_request(views: SessionViews, strategy: str) -> tuple[ContextView, Request]:
    """The context view as it would be after a step decided now, and the step's request."""
    window_size(strategy)
    view, turn = views.context, views.turn
    if not len(view.prefixes):
        view = replace(view, prefixes=view.prefixes.append(Prefix("", NOTHING, NOTHING, -1)))
    steers = tuple(w.message_id for w in turn.queue if w.when_busy == WhenBusy.STEER)
    is_due = turn.open and step_is_due(views)
    checkpoint = views.compaction.checkpoint if strategy == "compacted" else None
    last = view.request
    event = ev.LlmCalled(
        turn=turn.number,
        step=turn.step + 1,
        model=last.model if last is not None else "",
        params=last.params if last is not None else b"{}",
        strategy=strategy,
        budget=ev.Budget(soft_tokens=0, hard_tokens=0),
        includes=(*turn.owned, *steers) if is_due else (),
        reminders=tuple(r.reminder_id for r in turn.reminders) if is_due else (),
        checkpoint=checkpoint.offset if checkpoint is not None else None,
        compacted_upto=views.compaction.compacted_upto,
        prompt_tokens=0,
        context_sha256=view.prefix_sha,
        basis=turn.basis,
    )
    entry = Entry(views.session_id, 0, turn.basis, 0, "sessions", event)
    after = context_fold.apply(view, entry, turn, views.messages, views.state, views.compaction)
    assert after.request is not None
    return after, after.request
