"""background: the background work of a session (lane B of WAKE), which is due, claimed or failed.

A piece of work is identified by its kind and by the offset up to which it covers the session. The
view is bounded: if too many results wait for a short form, the view drops the oldest.
"""

from enum import StrEnum
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from .context_view import ContextView
from .turn_view import CANCELLED, TERMINATED, Claim, TurnView, call_of, claim_of, is_open


class WorkKind(StrEnum):
    """result: a short form of one tool result.
    context: a summary, made while a turn runs.
    resume: a summary, made while the session is idle.
    memory: an extraction of memory from ended turns.
    """

    RESULT = "result"
    CONTEXT = "context"
    RESUME = "resume"
    MEMORY = "memory"


KINDS = tuple(WorkKind)
SUMMARIES = (WorkKind.CONTEXT, WorkKind.RESUME)  # one summary runs at a time
RESULT_TOKENS_MIN = 500  # a smaller result is never worth a model call
RESULTS_MAX = 32  # how many may wait; a summary covers the dropped ones
STOPPING = (CANCELLED, TERMINATED)  # an abort ends background work too
TOO_LITTLE = "too_little"  # the code of a COMPACTION_SKIPPED, which has no other reason
SAID_CHARS_MAX = 200
MEMORY_TRIES = 4  # failures in a row after which extraction skips the turns that they covered
MEMORY_WAIT_MS = 60_000  # wait before the second try; each further wait is ten times longer


class Large(Value):
    """A result that may be worth a short form. `upto`: the offset of its TOOL_RESULT."""

    upto: int
    call: str
    tokens: int


class Work(Value):
    """Claimed work.

    `stop`: a turn was aborted while the work ran, so the work must stop.
    `released`: the owner of the claim ended cleanly, so another worker may take over at once.
    """

    kind: WorkKind
    upto: int
    attempt: int
    claim: Claim
    stop: bool = False
    released: bool = False


class BackgroundView(Value):
    """`results`: results for which no short form was tried.
    `works`: claimed work that has not ended.
    `tried_upto`, `tried_tokens`: the offset of the newest failed summary, and the tokens of the
        conversation at that time.
    `idle_at`: the offset of the newest TURN_ENDED, or of a later failed extraction.
    `remembered_upto`: everything before this offset is in memory or was given up.
    `memory_missed`: how many extractions have failed in a row; the next extraction runs at
        `memory_at` (Unix ms) or later.
    `code`: why the newest work failed, or '' if it did not or an older version wrote its end.
    `said`: the same for people, or ''.
    """

    results: tuple[Large, ...] = ()
    works: tuple[Work, ...] = ()
    tried_upto: int = -1
    tried_tokens: int = 0
    idle_at: int = -1
    remembered_upto: int = -1
    memory_missed: int = 0
    memory_at: int = 0
    said: str = ""
    code: str = ""


INITIAL = BackgroundView()
Reads = (
    ev.ToolResult
    | ev.BackgroundStarted
    | ev.BackgroundDone
    | ev.CompactionSkipped
    | ev.ContextCompacted
    | ev.CancelRequested
    | ev.SessionTerminated
    | ev.TurnEnded
)
READS = frozenset(get_args(Reads))


def find_work(view: BackgroundView, kind: str, upto: int) -> Work | None:
    """The claimed work of that kind and offset, or None."""
    for work in view.works:
        if work.upto == upto and work.kind == kind:
            return work
    return None


def running_summary(view: BackgroundView) -> Work | None:
    """The claimed work that makes a summary, or None."""
    return next((work for work in view.works if work.kind in SUMMARIES), None)


def apply(
    view: BackgroundView, entry: Entry, before: TurnView, after: TurnView, context: ContextView
) -> BackgroundView:
    """The view after an accepted event. `context`: the context view before the event."""
    event: Reads = entry.event
    match event:
        case ev.ToolResult():
            return _result(view, entry, event, before)
        case ev.BackgroundStarted():
            return _started(view, entry, event)
        case ev.BackgroundDone():
            return _done(view, entry, event, context)
        case ev.CompactionSkipped():
            view = replace(view, said=event.why[:SAID_CHARS_MAX], code=TOO_LITTLE)
            return _tried(view, event.upto, context)
        case ev.ContextCompacted():
            return replace(view, tried_tokens=0)
        case ev.TurnEnded():
            view = replace(view, idle_at=entry.offset)
        case ev.CancelRequested() | ev.SessionTerminated():
            pass
        case _:
            assert_never(event)
    if after.terminated and not after.open:
        return replace(view, works=(), results=())  # row G: no worker continues it
    if after.closing is not None and after.closing.reason in STOPPING:
        works = tuple([replace(work, stop=True) for work in view.works])
        return replace(view, works=works, results=())
    return view


def _result(
    view: BackgroundView, entry: Entry, event: ev.ToolResult, before: TurnView
) -> BackgroundView:
    call = call_of(before, event)
    if event.tokens < RESULT_TOKENS_MIN or call not in before.calls or before.closing is not None:
        return view
    if not is_open(call):
        return view  # the model has seen the earlier result
    large = Large(entry.offset, call.key, event.tokens)
    return replace(view, results=(*view.results, large)[-RESULTS_MAX:])


def _started(view: BackgroundView, entry: Entry, event: ev.BackgroundStarted) -> BackgroundView:
    work = Work(WorkKind(event.kind), event.upto, event.attempt, claim_of(entry, event))
    return replace(view, works=(*_others(view, event), work))


def _others(view: BackgroundView, event: ev.BackgroundStarted | ev.BackgroundDone) -> list[Work]:
    """The claimed work, except the work that the event names."""
    return [work for work in view.works if (work.kind, work.upto) != (event.kind, event.upto)]


def _done(
    view: BackgroundView, entry: Entry, event: ev.BackgroundDone, context: ContextView
) -> BackgroundView:
    work, others = find_work(view, event.kind, event.upto), _others(view, event)
    assert work is not None, "an accepted end names claimed work"
    if event.released:
        return replace(view, works=(*others, replace(work, released=True)))
    said = "" if event.ok else f"{event.kind}: {event.why}"[:SAID_CHARS_MAX]
    view = replace(view, works=tuple(others), said=said, code=event.code)
    match work.kind:
        case WorkKind.RESULT:
            left = tuple([large for large in view.results if large.upto != event.upto])
            return replace(view, results=left)
        case WorkKind.MEMORY:
            if work.stop and not event.ok:
                return view  # stopped work is due again when the turn has ended
            return _extracted(view, entry, event)
        case WorkKind.CONTEXT | WorkKind.RESUME:
            if event.ok:  # the summary exists or became useless: none is due for this offset
                return replace(view, tried_upto=max(view.tried_upto, event.upto), tried_tokens=0)
            return _tried(view, event.upto, context)
        case _:
            assert_never(work.kind)


def _extracted(view: BackgroundView, entry: Entry, event: ev.BackgroundDone) -> BackgroundView:
    """The view after an extraction of memory.

    After a failure, the next extraction covers the session up to the offset of that failure. This
    includes what was added while the failed extraction ran. After MEMORY_TRIES failures in a row,
    the part of the session that the last of them covered is given up.
    """
    missed = 0 if event.ok else view.memory_missed + 1
    if not 0 < missed < MEMORY_TRIES:
        upto = max(view.remembered_upto, event.upto)
        return replace(view, remembered_upto=upto, memory_missed=0, memory_at=0)
    at = entry.at + MEMORY_WAIT_MS * 10 ** (missed - 1)
    return replace(view, idle_at=entry.offset, memory_missed=missed, memory_at=at)


def _tried(view: BackgroundView, upto: int, context: ContextView) -> BackgroundView:
    total = context.fragments[-1].total if len(context.fragments) else 0
    return replace(view, tried_upto=upto, tried_tokens=total)
