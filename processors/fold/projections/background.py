"""background: work beside the conversation (lane B): what is due, what is claimed, what was tried.

Kinds: `result` (a short form of one tool result), `context` (a summary while a turn runs),
`resume` (a summary while the session is idle), `memory` (what a turn leaves to remember). A work
is named by its kind and the offset it goes up to. Bounded: older results are let go.
"""

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.value import Value, replace
from .context_view import ContextView
from .turn_view import Claim, TurnView, call_of, is_open

KINDS = ("result", "context", "resume", "memory")
SUMMARIES = ("context", "resume")  # of these, one at a time
RESULT_TOKENS_MIN = 500  # a result below this is not worth a model call, whatever an agent says
RESULTS_MAX = 32  # waiting at a time; a summary covers what was let go
STOPPING = ("cancelled", "terminated")  # an abort ends background work too (constraint 3)
# What BACKGROUND_DONE says where nobody failed, and where the provider can not do it.
ABORTED, STOPPED = "the turn was aborted", "it was stopped"
NOTHING_LEFT = "nothing is left to be done"
NOT_SUMMARIZED = "the provider could not summarize"
MEMORY_TRIES = 4  # in a row that came to nothing: then what they covered is let go
MEMORY_WAIT_MS = 60_000  # before the second, and ten times as long before each further one


class Large(Value):
    """A result that may be worth a short form. `upto`: the offset of its TOOL_RESULT."""

    upto: int
    call: str
    tokens: int


class Work(Value):
    """Claimed work. `stop`: the turn it ran beside was aborted; `released`: its owner has ended
    in peace, and somebody may take it over at once."""

    kind: str
    upto: int
    attempt: int
    claim: Claim
    stop: bool = False
    released: bool = False


class BackgroundView(Value):
    """`results`: not yet tried. `works`: claimed and not done. `tried_upto`, `tried_tokens`: the
    newest summary that was tried in vain, and all that had ever been said when it was.
    `idle_at`: offset of the newest TURN_ENDED, or of the extraction that came to nothing since;
    `remembered_upto`: what lies before it is in the memory, or was given up. `memory_missed`:
    extractions that came to nothing since; before `memory_at` (Unix ms) there is no other."""

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
        return replace(view, works=(), results=())  # nobody goes on with it: row G
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
        return view  # the result that the model was told came before
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
                return view  # what an abort took is due again when the turn has ended
            return _remembered(view, entry, event)
    if event.ok:  # its summary is there, or was useless by then: not again for the same offset
        return replace(view, tried_upto=max(view.tried_upto, event.upto), tried_tokens=0)
    return _tried(view, event.upto, view.said, context)


def _remembered(view: BackgroundView, entry: Entry, event: ev.BackgroundDone) -> BackgroundView:
    """What is remembered now. A try that came to nothing is owed anew under its own offset: it
    covers what was missed, and whatever was said since."""
    missed = 0 if event.ok else view.memory_missed + 1
    if not 0 < missed < MEMORY_TRIES:
        upto = max(view.remembered_upto, event.upto)
        return replace(view, remembered_upto=upto, memory_missed=0, memory_at=0)
    at = entry.at + MEMORY_WAIT_MS * 10 ** (missed - 1)
    return replace(view, idle_at=entry.offset, memory_missed=missed, memory_at=at)


def _tried(view: BackgroundView, upto: int, why: str, context: ContextView) -> BackgroundView:
    total = context.fragments[-1].total if len(context.fragments) else 0
    return replace(view, tried_upto=upto, tried_tokens=total, said=why[:200])
