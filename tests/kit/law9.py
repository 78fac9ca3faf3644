"""Law 9 at one view: a worker discharges each obligation of WAKE, the fold accepts the events, and
the row no longer matches.

The real decide and Actions make decisions and claims. For an effect that begins, every kind of
outcome is tried.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import (
    BeginDelivery,
    BeginGeneration,
    BeginTool,
    BeginWork,
)
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.projections.turn_view import FILE_REFUSED, THINKING_REFUSED, TOO_LONG
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.layers import NO_LAYERS, Layers
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import Obligation, wake
from foldlog.processors.worker.effects_host import CANDIDATES
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, decode, encode
from foldlog.schemas.record import Record
from foldlog.tests.kit import answers
from foldlog.tests.kit.background_ends import MODEL_TEXTS, ends_of
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.history import History, Step
from foldlog.tests.kit.recorded_actions import Begin, Discharge, RecordedActions

WAIT = "wait"


class ViewOfPartition(NamedTuple):
    """The views of a session after every record below `next_offset` was folded, and the present
    time."""

    views: SessionViews
    holders: PartitionView
    at: int
    next_offset: int
    partition: int = 0


def possible_ends(done: Discharge, blobs: MemoryBlobs) -> list[list[Any]]:
    """Every kind of outcome of the effects that have begun: the events of each outcome, in
    order."""
    ends: list[list[Any]] = [[event] for event in done.reported]
    for what, begin in done.begun:
        ends += _ends_of(what, begin, blobs)
    return ends


def _ends_of(what: str, begin: Begin, blobs: MemoryBlobs) -> list[list[Any]]:
    match begin:
        case BeginGeneration():
            return [[event] for event in _of_generation(what, begin, blobs)]
        case BeginTool():
            return [[event] for event in _of_call(begin)]
        case BeginWork():
            return _of_work(begin, blobs)
        case BeginDelivery():
            return [[event] for event in _of_delivery(begin)]


def _of_generation(what: str, begin: BeginGeneration, blobs: MemoryBlobs) -> list[Any]:
    place = (begin.turn, begin.step, begin.attempt)
    ends = [answers.stopped(place, [answers.text("so far")], blobs)]
    if what != "generate":
        return ends
    call = answers.Use("look", "{}", "a")
    return [
        *ends,
        answers.complete(place, [answers.text("yes")], "end_turn", blobs),
        answers.complete(place, [call], "tool_use", blobs),
        answers.complete(place, [], "refusal", blobs),
        answers.failed(place),
        answers.failed(place, permanent=True),
        answers.failed(place, permanent=True, error=TOO_LONG[0]),
        answers.failed(place, permanent=True, error=THINKING_REFUSED),
        answers.failed(place, permanent=True, error=FILE_REFUSED),
    ]


def _of_call(begin: BeginTool) -> list[Any]:
    call = begin.call
    place = (call.turn, call.step, call.index)
    ends = [
        answers.result(place, call.attempt, "text", outcome)
        for outcome in ("ok", "error", "not_run", "cancelled")
    ]
    return [*ends, answers.uncertain(place, call.attempt)]


def _of_work(begin: BeginWork, blobs: MemoryBlobs) -> list[list[Any]]:
    claim = ev.BackgroundStarted(
        kind=begin.kind, upto=begin.upto, attempt=begin.attempt, owner="", epoch=0, deadline=0
    )
    ends = (ends_of(claim, begin.task, begin.agent, text, blobs) for text in MODEL_TEXTS)
    return [*ends, [answers.done(begin.kind, begin.upto, begin.attempt, why="it was stopped")]]


def _of_delivery(begin: BeginDelivery) -> list[Any]:
    owed = begin.owed
    place = (owed.turn, owed.step, owed.channel, owed.attempt)
    return [
        ev.GenSent(turn=owed.turn, step=owed.step, channel=owed.channel),
        answers.undelivered(place, permanent=True),
        answers.undelivered(place, retry_at=owed.claim.deadline + 1),
    ]


def fold_accepted(views: SessionViews, event: Any, role: str, now: ViewOfPartition) -> SessionViews:
    """The views after a worker's event. The fold must accept the event, or ignore it as a
    duplicate."""
    value = decode(encode(event))
    entry = Entry(views.session_id, now.partition, now.next_offset, now.at, role, value)
    after, ruling = fold(views, entry)
    repeats = ruling.code == "duplicate" and type(event) in CANDIDATES  # of an earlier attempt
    assert ruling.accepted or repeats, f"{ruling.code}: {event} at {views.turn}"
    assert after.frozen == views.frozen
    return after


def check_view(
    now: ViewOfPartition,
    agent: Agent | None,
    blobs: MemoryBlobs,
    rows: Counter[str],
    *,
    layers: Layers = NO_LAYERS,
    records: Iterable[Record] = (),
) -> None:
    """Discharge every obligation of a view, each of them alone, and count the rows."""
    rules = rules_of(agent) if agent is not None else None

    def still_owed(views: SessionViews, owed: Obligation) -> bool:
        again = wake(views, now.holders, now.at, rules)
        return any((o.row, o.subject) == (owed.row, owed.subject) for o in again)

    for owed in wake(now.views, now.holders, now.at, rules):
        rows[owed.row] += 1
        holder = now.holders.holder(owed.role)
        if owed.owed == WAIT:
            assert owed.due is not None
            assert holder is None or owed.due > now.at, f"{owed} would wake its worker for ever"
            continue
        assert may_owe(now.views, rules), f"{owed} would be forgotten at the next assignment"
        if holder is None:
            continue
        known = (record for record in records if record.offset < now.next_offset)
        worker = RecordedActions(
            holder.owner, blobs, partial(int, now.at), layers, records=known
        )
        done = worker.discharge(now.views, now.holders, owed, agent, now.at)
        assert any(done) or owed.row in ("T6", "T8"), f"nothing is done about {owed}"
        after = now.views
        for event, role in done.written:
            assert role == owed.role
            after = fold_accepted(after, event, role, now)
        if done.written:
            assert not still_owed(after, owed), f"{owed} is still owed after {done.written}"
        for end in possible_ends(done, blobs):
            after = now.views
            for event in end:
                after = fold_accepted(after, event, ROLE_OF[type(event)], now)
            assert not still_owed(after, owed), f"{owed} is still owed after {end}"


def check_law_9(history: History, step: Step, rows: Counter[str]) -> None:
    """Check law 9 at the views after a step of a history."""
    now = ViewOfPartition(step.views, step.holders, step.at, step.entry.offset + 1)
    layers, records = history.layers, history.records
    check_view(now, history.agent, history.blobs, rows, layers=layers, records=records)
