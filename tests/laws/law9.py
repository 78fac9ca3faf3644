"""Law 9 at one view: what WAKE owes there is accepted by the fold and discharges its row.

Decisions and claims are made by the real decide and Actions; for an effect that is begun, every
kind of outcome that it may have is tried.
"""

from collections import Counter
from functools import partial
from typing import Any

from foldlog.processors.fold.projections.turn_view import FILE_REFUSED, THINKING_REFUSED, TOO_LONG
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import Obligation, wake
from foldlog.processors.worker.actions import BeginGeneration, BeginWork
from foldlog.processors.worker.effects_host import CANDIDATES
from foldlog.processors.worker.ports import BeginDelivery
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, decode, encode
from foldlog.tests.laws import answers
from foldlog.tests.laws.beside import SAYINGS, ends_of
from foldlog.tests.laws.desk import Blobs, Desk, Done
from foldlog.tests.laws.history import REPORTS, History, Step

WAIT = "wait"


def possible_ends(done: Done, blobs: Blobs) -> list[list[Any]]:
    """Every kind of end that the effects which were begun may have: the events of each, in order.
    """
    ends: list[list[Any]] = [[event] for event in done.reported]
    for what, begin in done.begun:
        match begin:
            case BeginGeneration():
                ends += [[event] for event in _of_generation(what, begin, blobs)]
            case BeginWork():
                ends += _of_work(begin, blobs)
            case BeginDelivery():
                ends += [[event] for event in _of_delivery(begin)]
            case _:
                ends += [[event] for event in _of_call(begin)]
    return ends


def _of_generation(what: str, begin: BeginGeneration, blobs: Blobs) -> list[Any]:
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


def _of_call(begin: Any) -> list[Any]:
    call = begin.call
    place = (call.turn, call.step, call.index)
    ends = [
        answers.result(place, call.attempt, "said", outcome)
        for outcome in ("ok", "error", "not_run", "cancelled")
    ]
    return [*ends, answers.uncertain(place, call.attempt)]


def _of_work(begin: BeginWork, blobs: Blobs) -> list[list[Any]]:
    claim = ev.BackgroundStarted(
        kind=begin.kind, upto=begin.upto, attempt=begin.attempt, owner="", epoch=0, deadline=0
    )
    ends = (ends_of(claim, begin.task, begin.agent, said, blobs) for said in SAYINGS)
    return [*ends, [answers.done(begin.kind, begin.upto, begin.attempt, why="it was stopped")]]


def _of_delivery(begin: BeginDelivery) -> list[Any]:
    owed = begin.owed
    place = (owed.turn, owed.step, owed.channel, owed.attempt)
    return [
        ev.GenSent(turn=owed.turn, step=owed.step, channel=owed.channel),
        answers.undelivered(place, permanent=True),
        answers.undelivered(place, retry_at=owed.claim.deadline + 1),
    ]


def take_in(views: SessionViews, event: Any, role: str, step: Step) -> SessionViews:
    """The views after a worker's event, which must be accepted, or be a repetition."""
    offset = step.entry.offset + 1
    entry = Entry(views.session_id, 0, offset, step.at, role, decode(encode(event)))
    after, ruling = fold(views, entry)
    repeats = ruling.code == "duplicate" and type(event) in CANDIDATES  # of an attempt before
    assert ruling.accepted or repeats, f"{ruling.code}: {event}"
    assert after.frozen == views.frozen
    return after


def still_owed(views: SessionViews, owed: Obligation, step: Step, world: History) -> bool:
    again = wake(views, step.holders, step.at, rules_of(world.agent))
    return any((o.row, o.subject) == (owed.row, owed.subject) for o in again)


def check_law_9(world: History, step: Step, rows: Counter) -> None:
    """Discharge everything that is owed at a step's views, each on its own."""
    for owed in wake(step.views, step.holders, step.at, rules_of(world.agent)):
        rows[owed.row] += 1
        holder = step.holders.holder(owed.role)
        if owed.owed == WAIT:
            assert owed.due is not None
            assert holder is None or owed.due > step.at, f"{owed} would be looked at for ever"
            continue
        kept = may_owe(step.views, rules_of(world.agent))
        assert kept, f"{owed} would be forgotten at the next assignment"
        if holder is None:
            continue
        known = (record for record in world.records if record.offset <= step.entry.offset)
        desk = Desk(
            holder.owner, world.blobs, partial(int, step.at), world.layers, records=known
        )
        done = desk.discharge(step.views, step.holders, owed, world.agent, step.at)
        assert any(done) or owed.row == "T6", f"nothing is done about {owed}"
        after = step.views
        for event, role in done.written:
            assert role == owed.role
            after = take_in(after, event, role, step)
        if done.written:
            assert not still_owed(after, owed, step, world), f"{owed} is owed again"
        for end in possible_ends(done, world.blobs):
            after = step.views
            for event in end:
                after = take_in(after, event, REPORTS.get(type(event), "models"), step)
            assert not still_owed(after, owed, step, world), f"{owed} is owed after {end}"
