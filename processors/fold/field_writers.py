"""The events that may change each field of session_state, as data.

`demand_writer` enforces the table: it raises if a fold changed a field for an event that the table
does not list for the field. The session then freezes at that offset instead of getting a wrong
state.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter

PROJECT_TOOL = "build_and_deploy"
"""The only tool that may lock a session to a project. A user can do so too (PROJECT_LOCKED)."""

WRITERS: dict[str, tuple[str, ...]] = {
    "session_id": ("SESSION_OPENED",),
    "user_id": ("SESSION_OPENED",),
    "project_id": ("PROJECT_LOCKED", "TOOL_RESULT"),
    "phase": ("SESSION_OPENED", "PHASE_TRIGGERED", "CANCEL_REQUESTED", "TOOL_RESULT"),
    "pending_tool": (
        "TOOL_STARTED",
        "TOOL_RESULT",
        "TOOL_FAILED_UNCERTAIN",
        "HUMAN_RESOLVED",
        "TURN_ENDED",
    ),
    "cancel_token": ("CANCEL_REQUESTED", "TURN_ENDED"),
    "last_message_id": ("MESSAGE_RECEIVED",),
    "updated_at": (
        "SESSION_OPENED",
        "MESSAGE_RECEIVED",
        "PROJECT_LOCKED",
        "PHASE_TRIGGERED",
        "CANCEL_REQUESTED",
        "TOOL_STARTED",
        "TOOL_RESULT",
        "TOOL_FAILED_UNCERTAIN",
        "HUMAN_RESOLVED",
        "TURN_ENDED",
    ),
}

MEANING: dict[str, tuple[str, str]] = {
    "session_id": ("string", "when the session is opened"),
    "user_id": ("string", "when the session is opened"),
    "project_id": (
        "string or null",
        f"once, by the open-existing route or by the tool {PROJECT_TOOL}; then locked",
    ),
    "phase": ("chatting, building, verifying, done", "by a transition of TRANSITIONS"),
    "pending_tool": (
        "{call, name, attempt, open} or null",
        "when a tool is claimed; cleared by its outcome",
    ),
    "cancel_token": (
        "string or null",
        "by an explicit cancel; cleared by the TURN_ENDED that honours it",
    ),
    "last_message_id": ("string or null", "when a message is accepted"),
    "updated_at": ("Unix ms", "when another field changes"),
}


class MistakenWriter(AssertionError):
    """A fold changed a field for a type of event that WRITERS does not list for the field."""


def demand_writer(before: object, after: object, event_type: str) -> None:
    """Check which fields an event changed. Raises MistakenWriter."""
    if before is after:
        return
    fields, values_of = _locked(event_type)
    if values_of(before) != values_of(after):
        field = next(name for name in fields if getattr(before, name) != getattr(after, name))
        writers = ", ".join(WRITERS[field])
        raise MistakenWriter(f"{event_type} may not change {field}: {writers} may")


@cache
def _locked(event_type: str) -> tuple[list[str], Callable[[object], object]]:
    """The fields that events of this type must not change, and a function that reads them."""
    fields = [field for field, writers in WRITERS.items() if event_type not in writers]
    return fields, attrgetter(*fields)
