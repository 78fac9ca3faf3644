"""background: work outside the conversation (lane B): due, claimed and tried.

Kinds: `result` (a short form of one tool result), `context` (a summary while a turn runs),
`resume` (a summary while the session is idle), `memory` (what to remember of a turn). Work is
identified by its kind and the offset it covers up to. Bounded: older results are dropped.
"""

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from .context_view import ContextView
from .turn_view import Claim, TurnView, call_of, is_open

KINDS = ("result", "context", "resume", "memory")
SUMMARIES = ("context", "resume")  # of these, one at a time
RESULT_TOKENS_MIN = 500  # a smaller result is never worth a model call
RESULTS_MAX = 32  # waiting at a time; a summary covers the dropped ones
STOPPING = ("cancelled", "terminated")  # an abort ends background work too (constraint 3)
# Errors of BACKGROUND_DONE that are not failures, and those of a provider without the feature.
ABORTED, STOPPED = "the turn was aborted", "it was stopped"
NOTHING_LEFT = "nothing is left to be done"
NOT_SUMMARIZED = "the provider could not summarize"
MEMORY_TRIES = 4  # failures in a row, after which the turns they covered are skipped
MEMORY_WAIT_MS = 60_000  # before the second try; ten times longer before each further one


class Large(Value):
    """A result that may be worth a short form. `upto`: the offset of its TOOL_RESULT."""

    upto: int
    call: str
    tokens: int


class Work(Value):
    """Claimed work. `stop`: the turn during which it ran was aborted; `released`: its owner ended
    cleanly, so another worker may take over at once."""

    kind: str
    upto: int
    attempt: int
    claim: Claim
    stop: bool = False
    released: bool = False


class BackgroundView(Value):
    """`results`: not yet tried. `works`: claimed and not done. `tried_upto`, `tried_tokens`: the
    newest summary that failed, and the tokens of the conversation at that time.
    `idle_at`: offset of the newest TURN_ENDED, or of a failed extraction since;
    `remembered_upto`: everything before it is in memory or was given up. `memory_missed`:
    failed extractions since; the next one runs at `memory_at` (Unix ms) or later."""

    results: tuple[Large, ...] = ()
    works: tuple[Work, ...] = ()
    tried_upto: int = -1
    tried_tokens: int = 0
    idle_at: int = -1
    remembered_upto: int = -1
    memory_missed: int = 0
    memory_at: int = 0
    said: str = ""


INITIAL = BackgroundView()
READS = frozenset(
    {
        ev.ToolResult,
        ev.BackgroundStarted,
        ev.BackgroundDone,
        ev.CompactionSkipped,
        ev.ContextCompacted,
        ev.CancelRequested,
        ev.SessionTerminated,
        ev.TurnEnded,
    }
)


def find_work(view: BackgroundView, kind: str, upto: int) -> Work | None:
    """The claimed work of that name, or None."""
    for work in view.works:
        if work.upto == upto and work.kind == kind:
            return work
    return None


def summary_runs(view: BackgroundView) -> Work | None:
    """The summary that is being made, or None."""
    return next((work for work in view.works if work.kind in SUMMARIES), None)


def apply(
    view: BackgroundView, entry: Entry, before: TurnView, after: TurnView, context: ContextView
) -> BackgroundView:
    """The view after an accepted event; `context` and `before` are as they were before it."""
    event = entry.event
    match event:
        case ev.ToolResult():
            return _result(view, entry, event, before)
        case ev.BackgroundStarted():
            return _started(view, entry, event)
        case ev.BackgroundDone():
            return _done(view, entry, event, context)
        case ev.CompactionSkipped():
            return _tried(view, event.upto, event.why, context)
        case ev.ContextCompacted():
            return replace(view, tried_tokens=0)
        case ev.TurnEnded():
            view = replace(view, idle_at=entry.offset)
    if after.terminated and not after.open:
        return replace(view, works=(), results=())  # no worker continues it: row G
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
    claim = Claim(event.owner, event.epoch, entry.offset, entry.at, event.deadline)
    work = Work(event.kind, event.upto, event.attempt, claim)
    others = [w for w in view.works if (w.kind, w.upto) != (event.kind, event.upto)]
    return replace(view, works=(*others, work))


def _done(
    view: BackgroundView, entry: Entry, event: ev.BackgroundDone, context: ContextView
) -> BackgroundView:
    works = tuple([w for w in view.works if (w.kind, w.upto) != (event.kind, event.upto)])
    work = find_work(view, event.kind, event.upto)
    if event.released and work is not None:
        return replace(view, works=(*works, replace(work, released=True)))
    view = replace(view, works=works, said="" if event.ok else f"{event.kind}: {event.why}"[:200])
    match event.kind:
        case "result":
            left = tuple([large for large in view.results if large.upto != event.upto])
            return replace(view, results=left)
        case "memory":
            if work is not None and work.stop and not event.ok:
                return view  # aborted work is due again when the turn has ended
            return _remembered(view, entry, event)
    if event.ok:  # a summary exists, or is no longer useful: do not repeat it for this offset
        return replace(view, tried_upto=max(view.tried_upto, event.upto), tried_tokens=0)
    return _tried(view, event.upto, view.said, context)


def _remembered(view: BackgroundView, entry: Entry, event: ev.BackgroundDone) -> BackgroundView:
    """Updates the memory fields. A failed try is due again under its own offset, so it also covers
    everything since."""
    missed = 0 if event.ok else view.memory_missed + 1
    if not 0 < missed < MEMORY_TRIES:
        upto = max(view.remembered_upto, event.upto)
        return replace(view, remembered_upto=upto, memory_missed=0, memory_at=0)
    at = entry.at + MEMORY_WAIT_MS * 10 ** (missed - 1)
    return replace(view, idle_at=entry.offset, memory_missed=missed, memory_at=at)


def _tried(view: BackgroundView, upto: int, why: str, context: ContextView) -> BackgroundView:
    total = context.fragments[-1].total if len(context.fragments) else 0
    return replace(view, tried_upto=upto, tried_tokens=total, said=why[:200])
