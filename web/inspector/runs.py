"""Computes the bars of a session's timeline: what ran, what waited for whom, and what was in doubt,
from when to when.

Each bar is a `Run`: a time during which the state of one subject (a model call, a tool call or
background work) did not change. `Runs` gets the moments of a timeline in order, and compares the
state of each subject before and after each event, so a long session needs one pass. The page draws
its timeline from these runs.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from ...client.printable import text_of, whole
from ...log.blobs import BlobError
from ...processors.fold.calls import (
    ALLOWED,
    ASKS,
    CONTRADICTED,
    DOUBT,
    PROPOSED,
    STARTED,
)
from ...processors.fold.projections.partition import worker_id
from ...processors.fold.projections.turn_view import (
    ANSWERED,
    FAILED,
    RUNNING,
    Call,
    Generation,
    TurnView,
)
from ...processors.fold.ruling import Ruling
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.enums import Decision, Resolution
from ...schemas.events.parts import Body, ReadBlob
from .summary import brief

WAIT_MIN_MS = 50
"""A shorter wait for a worker is not kept, because claiming work always takes some milliseconds."""

TITLE_CHARS = 80
WORKER_CHARS, WORKER_END = 12, 4


class Lane(StrEnum):
    """The lane in which a run is drawn."""

    PERSON = "person"
    MODEL = "model"
    TOOL = "tool"
    BACKGROUND = "background"


class Kind(StrEnum):
    """What happened during a run.

    RUN: something ran.
    POINT: a person acted.
    Every other kind is a reason why nothing ran.
    """

    RUN = "run"
    POINT = "point"
    WAITS_PERSON = "waits_person"
    WAITS_WORKER = "waits_worker"
    WAITS_RETRY = "waits_retry"
    DOUBT = "doubt"


class Run(NamedTuple):
    """One run. Times are broker times in Unix ms; `end_at` is None while the run lasts.

    `outcome`: how the run ended, such as ok, error, failed, lost or stopped; '' while it lasts.
    `note`: the worker or the error.
    `offset`, `end_offset`: the events at its start and at its end.
    """

    lane: Lane
    kind: Kind
    title: str
    turn: int
    step: int
    key: str
    attempt: int
    offset: int
    at: int
    end_offset: int | None = None
    end_at: int | None = None
    outcome: str = ""
    note: str = ""


FIELDS = Run._fields

Subject = tuple[str, ...]
"""Identifies what a run is about: a model call, a tool call or background work."""


class _Stands(NamedTuple):
    """The state of one subject after an event."""

    lane: Lane
    kind: Kind
    title: str
    turn: int
    step: int
    key: str = ""
    attempt: int = 0
    note: str = ""


class Runs:
    """The runs up to the last event passed to `feed`.

    `closed`: the runs that have ended. Runs are only appended to it.
    `open`: the runs that have not ended.
    """

    def __init__(self) -> None:
        self.closed: list[Run] = []
        self._open: dict[Subject, tuple[_Stands, Run]] = {}
        self._turn: TurnView | None = None
        self._works: object = None
        self._signs: dict[Subject, tuple[int, int]] = {}
        """The newest chunk: its offset and time."""

    @property
    def open(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for _, run in self._open.values()]

    def feed(
        self, entry: Entry, ruling: Ruling, views: SessionViews, read: ReadBlob | None = None
    ) -> None:
        """Read the next event, and the views after the event."""
        if not ruling.accepted:
            return
        event = entry.event
        if isinstance(event, ev.GenChunk):
            self._signs["model",] = (entry.offset, entry.at)
            return
        title = _done_by_person(event, read)
        if title:
            number = views.turn.number
            self.closed.append(Run(
                Lane.PERSON, Kind.POINT, title, number, views.turn.step, "", 0, entry.offset,
                entry.at, entry.offset, entry.at, note=getattr(event, "by_user", ""),
            ))
        if views.turn is self._turn and views.background.works is self._works:
            return
        self._turn, self._works = views.turn, views.background.works
        self._change(entry, _standing(views))

    def _change(self, entry: Entry, after: dict[Subject, _Stands]) -> None:
        for subject, (stood, run) in list(self._open.items()):
            now = after.get(subject)
            if now is not None and now.lane is Lane.BACKGROUND:
                now = now._replace(turn=stood.turn, step=stood.step)  # it may outlive its step
            if now != stood:
                del self._open[subject]
                self._close(entry, run, now)
        for subject, stands in after.items():
            if subject not in self._open:
                run = Run(*stands[:7], entry.offset, entry.at, note=stands.note)
                self._open[subject] = (stands, run)
                self._signs.pop(subject, None)

    def _close(self, entry: Entry, run: Run, after: _Stands | None) -> None:
        """End a run.

        If the run ends because a new attempt replaced it, the run's worker was lost. A model call
        then ended at its last chunk, and the time from there to the new attempt becomes a run of
        kind `waits_worker`.
        """
        outcome, note = _outcome(entry.event, run)
        if run.kind is not Kind.RUN:
            is_worth = run.kind is not Kind.WAITS_WORKER or entry.at - run.at >= WAIT_MIN_MS
            if is_worth:
                ended = run._replace(end_offset=entry.offset, end_at=entry.at, outcome=outcome)
                self.closed.append(ended)
            return
        offset, at = entry.offset, entry.at
        is_lost = after is not None and after.kind is Kind.RUN
        if is_lost:
            outcome = "lost"
        if is_lost and run.lane is Lane.MODEL:  # only model calls write chunks
            offset, at = self._signs.pop(("model",), (run.offset, run.at))
        ended = run._replace(
            end_offset=offset, end_at=at, outcome=outcome,
            note=" · ".join(part for part in (run.note, note) if part),
        )
        self.closed.append(ended)
        if is_lost and entry.at > at:
            self.closed.append(ended._replace(
                kind=Kind.WAITS_WORKER, offset=offset, at=at, end_offset=entry.offset,
                end_at=entry.at, outcome="ok", note=f"{run.note} was lost",
            ))


def _done_by_person(event: object, read: ReadBlob | None) -> str:
    """What a person did, in words; '' if the event is not of a person."""
    match event:
        case ev.MessageReceived():
            return brief(_text(event.content, read), TITLE_CHARS) or "a message"
        case ev.ApprovalDecided():
            return "allowed it" if event.decision == Decision.ALLOW else "denied it"
        case ev.HumanResolved():
            happened = event.outcome == Resolution.HAPPENED
            return f"reported that it {'happened' if happened else 'did not happen'}"
        case ev.ResultReplaced():
            return f"replaced the result of call {event.call}"
        case ev.CancelRequested():
            return "stopped the turn"
        case ev.SessionTerminated():
            return "ended the session"
        case ev.PhaseTriggered():
            return f"asked for the phase change {event.trigger}"
        case ev.ProjectLocked():
            return f"chose the project {event.project_id}"
    return ""


def _text(body: Body, read: ReadBlob | None) -> str:
    try:
        data = whole(body, read)
    except BlobError:
        return ""
    return text_of(data) or data[:400].decode("utf-8", "replace")


def _standing(views: SessionViews) -> dict[Subject, _Stands]:
    """The state of each subject after an event."""
    turn = views.turn
    found: dict[Subject, _Stands] = {}
    calls = [*turn.doubts, *turn.calls] if turn.open else [*turn.doubts]
    for call in calls:
        stands = _call(call)
        if stands is not None:
            found["tool", call.key] = stands
    if turn.open:
        is_quiet = not any(call.status in CALL_KINDS for call in turn.calls)
        stands = _model(turn, is_quiet=is_quiet)
        if stands is not None:
            found["model",] = stands
    for work in views.background.works:
        if not work.released:
            key = f"{work.kind}.{work.upto}"
            found["background", key] = _Stands(
                Lane.BACKGROUND, Kind.RUN, WORKS[work.kind], turn.number, turn.step, key,
                work.attempt, worker_name(work.claim.owner),
            )
    return found


WORKS = {
    "result": "short form",
    "context": "summary",
    "resume": "summary",
    "memory": "memory",
}
"""What background work produces, by its kind."""


def _model(turn: TurnView, *, is_quiet: bool) -> _Stands | None:
    """The state of the model call, or of the wait for it.

    `is_quiet`: whether no tool call of the turn runs or waits.
    """
    generation: Generation | None = turn.generation
    place = (turn.number, turn.step)
    number = f"{turn.number}.{turn.step}"
    if generation is not None and generation.status is RUNNING:
        assert generation.claim is not None, "a running attempt has a claim"
        worker = worker_name(generation.claim.owner)
        attempt = generation.attempt
        return _Stands(Lane.MODEL, Kind.RUN, number, *place, number, attempt, worker)
    if generation is not None and generation.status is FAILED and not generation.permanent:
        title = f"{number} is tried again"
        return _Stands(
            Lane.MODEL, Kind.WAITS_RETRY, title, *place, number, generation.attempt,
            generation.error,
        )
    if generation is None or generation.status is not ANSWERED or is_quiet:
        return _Stands(Lane.MODEL, Kind.WAITS_WORKER, "waits for a worker", *place)
    return None


CALL_KINDS = {
    PROPOSED: Kind.WAITS_WORKER,
    ALLOWED: Kind.WAITS_WORKER,
    ASKS: Kind.WAITS_PERSON,
    STARTED: Kind.RUN,
    DOUBT: Kind.DOUBT,
    CONTRADICTED: Kind.DOUBT,
}


def _call(call: Call) -> _Stands | None:
    kind = CALL_KINDS.get(call.status)
    if kind is None:
        return None
    is_run = kind is Kind.RUN and call.claim is not None
    note = worker_name(call.claim.owner) if is_run and call.claim is not None else ""
    attempt = call.attempt if is_run else 0
    return _Stands(
        Lane.TOOL, kind, call.name, call.turn, call.step, call.key, attempt, note
    )


def worker_name(owner: str) -> str:
    """The name of a worker on the page: `worker` and the worker's id. If the id is long, only
    its last characters are shown.
    """
    name = worker_id(owner)
    if len(name) > WORKER_CHARS:
        return f"worker {name[-WORKER_END:]}"
    return name if name.startswith("worker") else f"worker {name}"


def _outcome(event: object, run: Run) -> tuple[str, str]:
    """How a run ended with an event, and a note about it."""
    match event:
        case ev.GenFailed() if run.lane is Lane.MODEL:
            return "failed", event.error
        case ev.GenStopped() if run.lane is Lane.MODEL:
            return "stopped", event.why
        case ev.ToolResult() if run.lane is Lane.TOOL:
            return event.outcome, ""
        case ev.ToolFailedUncertain() if run.lane is Lane.TOOL:
            return "doubt", event.reason
        case ev.ApprovalDecided() if run.lane is Lane.TOOL:
            return event.decision, ""
        case ev.ApprovalExpired() if run.lane is Lane.TOOL:
            return "expired", ""
        case ev.HumanResolved() if run.lane is Lane.TOOL:
            return event.outcome, ""
        case ev.BackgroundDone() if run.lane is Lane.BACKGROUND:
            return ("ok", "") if event.ok else ("failed", event.why)
        case ev.TurnEnded():
            return "stopped", event.reason
    return "ok", ""


def runs_json(runs: Runs, since: int) -> dict[str, Any]:
    """The ended runs from number `since` on (counted from 0), as rows of FIELDS, and all runs that
    have not ended.
    """
    closed = runs.closed[since:]
    return {
        "fields": list(FIELDS),
        "runs": [list(run) for run in closed],
        "open": [list(run) for run in runs.open],
        "next": since + len(closed),
    }
