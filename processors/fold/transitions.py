"""The phases of a session and all transitions between them.

A trigger that is not in the table is refused and changes nothing. Triggers come from
PHASE_TRIGGERED, from an accepted CANCEL_REQUESTED (`cancel`), and from the `triggers` of a
TOOL_RESULT.
"""

from collections.abc import Iterable
from typing import Any

FIRST_PHASE = "chatting"

TRANSITIONS: dict[str, dict[str, str]] = {
    "chatting": {"open_existing": "chatting", "start_build": "building"},
    "building": {"todo_done_build": "verifying", "cancel": "chatting"},
    "verifying": {"publish": "done", "revert": "building", "cancel": "chatting"},
    "done": {"open_existing": "chatting", "start_build": "building"},
}

WRONG_PHASE = "wrong_phase"  # the code of a tool call that the phase forbids


def phases_of(given: Any, what: str) -> tuple[str, ...]:
    """The phases that a setting names, in the order of the table. Raises TypeError or ValueError if
    one of them does not exist."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a list of phases, not {given!r}")
    named = list(given)
    for phase in named:
        if phase not in list(TRANSITIONS):
            raise ValueError(f"{what}: {phase!r} is not one of {', '.join(TRANSITIONS)}")
    return tuple(phase for phase in TRANSITIONS if phase in named)


class InvalidTransition(ValueError):
    """The table lacks this trigger for the current phase; the phase does not change."""

    def __init__(self, phase: str, trigger: str) -> None:
        super().__init__(f"invalid transition: phase={phase}, event={trigger}")


def transition(phase: str, trigger: str) -> str:
    """The phase after a trigger. Raises InvalidTransition if the phase does not have this
    trigger."""
    after = TRANSITIONS[phase].get(trigger)
    if after is None:
        raise InvalidTransition(phase, trigger)
    return after
