"""The phases of a session and all transitions between them.

A trigger that is not in the table is refused and changes nothing. Triggers come from
PHASE_TRIGGERED, from an accepted CANCEL_REQUESTED (`cancel`), and from the `triggers` of a
TOOL_RESULT.
"""

FIRST_PHASE = "chatting"

TRANSITIONS: dict[str, dict[str, str]] = {
    "chatting": {"open_existing": "chatting", "start_build": "building"},
    "building": {"todo_done_build": "verifying", "cancel": "chatting"},
    "verifying": {"publish": "done", "revert": "building", "cancel": "chatting"},
    "done": {"open_existing": "chatting", "start_build": "building"},
}


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
