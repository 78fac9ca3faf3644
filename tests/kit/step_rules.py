"""Rules that every folded record must obey. The laws and the simulator share them.

The laws check the rules over random histories, the simulator over its schedules. A step is the
record's entry and ruling, with the views before and after it: `Step` of a history, `Seen` of the
simulator.
"""

from typing import Any

from foldlog.processors.fold.field_writers import WRITERS
from foldlog.processors.fold.projections import turn_view
from foldlog.processors.fold.projections.session_state import as_json
from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.processors.wake.budget import Rules
from foldlog.processors.wake.facts import wake
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace

STATE_BYTES_MAX = 1024  # S0.1


def phase_follows_transitions(step: Any) -> None:
    """I10, S0.4: the phase moves only along TRANSITIONS, one trigger at a time."""
    phase, after = step.before.state.phase, step.views.state.phase
    if phase == after:
        return
    assert after in TRANSITIONS
    match step.entry.event:
        case ev.PhaseTriggered(trigger=trigger):
            triggers = [trigger]
        case ev.CancelRequested(mode="now"):
            triggers = ["cancel"]
        case ev.ToolResult(triggers=wanted):
            triggers = [each.trigger for each in wanted if each.trigger]
        case _:
            triggers = []
    for trigger in triggers:
        phase = TRANSITIONS[phase].get(trigger, phase)
    assert phase == after, f"{step.before.state.phase} became {after} by {step.entry}"


def fields_have_their_writers(step: Any) -> None:
    """I9, S0.2: only the events that WRITERS names change a field of session_state."""
    before, after = step.before.state, step.views.state
    if before is after:
        return
    row = ev.BY_CLASS.get(type(step.entry.event))
    name = row.name if row else ""
    for field in before.__struct_fields__:
        if getattr(before, field) != getattr(after, field):
            assert name in WRITERS[field], f"{name} changed {field}"


def state_is_small(step: Any) -> None:
    """S0.1: session_state stays below 1 KB, however long the ids are."""
    if step.before.state is not step.views.state:
        size = len(as_json(step.views.state))
        assert size < STATE_BYTES_MAX, f"{size} bytes"


def turn_is_bounded(step: Any) -> None:
    """The lists of a turn (queued messages, grants, reminders, refusals, ids that were seen) stay
    within their limits."""
    turn = step.views.turn
    if turn is step.before.turn:
        return
    bounds = (
        (turn.refusals, turn_view.REFUSALS_MAX),
        ((*turn.queue, *turn.owned), turn_view.QUEUE_MAX),
        (turn.cancel_ids, turn_view.SEEN_MAX),
        (turn.command_ids, turn_view.SEEN_MAX),
        (turn.grants, turn_view.GRANTS_MAX),
        (turn.reminders, turn_view.REMINDERS_MAX),
        ([c for c in turn.doubts if c.status == "done"], turn_view.RESOLVED_MAX),
    )
    for rows, most in bounds:
        assert len(rows) <= most, f"{len(rows)} of at most {most}: {rows[:3]}"


def work_delays_no_step(step: Any, rules: Rules, now: int) -> None:
    """S1.H: background work delays only a step whose request would not fit without it (N2w)."""
    views = step.views
    if not views.background.works:
        return
    owed = {o.row for o in wake(views, step.holders, now, rules)}
    quiet = replace(views, background=replace(views.background, works=()))
    alone = {o.row for o in wake(quiet, step.holders, now, rules)}
    assert "N3" not in alone or "N3" in owed, f"{views.turn} waits for {views.background}"
    assert "N2w" not in owed or "N3" not in alone, f"{views.turn} waits in N2w and would fit"
