"""Law 9 at one view: what WAKE owes there is accepted by the fold and discharges its row.

Decisions and claims are made by the real decide and Actions; for an effect that is begun, every
kind of outcome that it may have is tried.
"""

from collections import Counter
from functools import partial
from typing import Any

from foldlog.processors.decide import rules_of
from foldlog.processors.runtime.actions import BeginGeneration
from foldlog.processors.runtime.owned import may_owe
from foldlog.processors.session import SessionViews, fold
from foldlog.processors.wake import Obligation, wake
from foldlog.schemas.codec import Entry, decode, encode
from foldlog.tests.laws import answers
from foldlog.tests.laws.desk import Blobs, Desk, Done
from foldlog.tests.laws.history import REPORTS, History, Step

WAIT = "wait"


def possible_ends(done: Done, blobs: Blobs) -> list[Any]:
    """Every kind of outcome that the effects which were begun may have."""
    ends: list[Any] = list(done.reported)
    for what, begin in done.begun:
        if isinstance(begin, BeginGeneration):
            place = (begin.turn, begin.step, begin.attempt)
            ends.append(answers.stopped(place, [answers.text("so far")], blobs))
            if what == "generate":
                call = answers.Use("look", "{}", "a")
                ends.append(answers.complete(place, [answers.text("yes")], "end_turn", blobs))
                ends.append(answers.complete(place, [call], "tool_use", blobs))
                ends.append(answers.complete(place, [], "refusal", blobs))
                ends.append(answers.failed(place))
                ends.append(answers.failed(place, permanent=True))
        else:
            call = begin.call
            call_place = (call.turn, call.step, call.index)
            ends += [
                answers.result(call_place, begin.call.attempt, "said", outcome)
                for outcome in ("ok", "error", "not_run", "cancelled")
            ]
            ends.append(answers.uncertain(call_place, begin.call.attempt))
    return ends


def take_in(views: SessionViews, event: Any, role: str, step: Step) -> SessionViews:
    """The views after a worker's event, which must be accepted."""
    offset = step.entry.offset + 1
    entry = Entry(views.session_id, 0, offset, step.at, role, decode(encode(event)))
    after, ruling = fold(views, entry)
    assert ruling.accepted, f"{ruling.code}: {event}"
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
        assert may_owe(step.views, rules_of(world.agent)), f"{owed} would be forgotten at the next assignment"
        if holder is None:
            continue
        desk = Desk(holder.owner, world.blobs, partial(int, step.at))
        done = desk.discharge(step.views, step.holders, owed, world.agent, step.at)
        assert any(done) or owed.row == "T6", f"nothing is done about {owed}"
        after = step.views
        for event, role in done.written:
            assert role == owed.role
            after = take_in(after, event, role, step)
        if done.written:
            assert not still_owed(after, owed, step, world), f"{owed} is owed again"
        for event in possible_ends(done, world.blobs):
            after = take_in(step.views, event, REPORTS.get(type(event), "models"), step)
            assert not still_owed(after, owed, step, world), f"{owed} is owed after {event}"
