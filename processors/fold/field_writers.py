"""The events that may change each field of session_state, as data.

`demand_writer` enforces the table: it raises if a fold changed a field for an event that the table
does not list for the field. The session then freezes at that offset instead of getting a wrong
state. RECORD_SKIPPED folds the session again without one record, so it may change every field; each
event of that history is checked again. A SESSION_OPENED that opens a fork sets what it inherits.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter

PROJECT_TOOL = "build_and_deploy"
"""The only tool that may lock a session to a project. A user can do so too (PROJECT_LOCKED)."""
CONFIRMS = "confirm_new_project"
"""The argument of PROJECT_TOOL that must be true in a call that locks a session."""

WRITERS: dict[str, tuple[str, ...]] = {
    "session_id": ("SESSION_OPENED", "RECORD_SKIPPED"),
    "user_id": ("SESSION_OPENED", "RECORD_SKIPPED"),
    "project_id": ("SESSION_OPENED", "PROJECT_LOCKED", "TOOL_RESULT", "RECORD_SKIPPED"),
    "phase": (
        "SESSION_OPENED",
        "PHASE_TRIGGERED",
        "CANCEL_REQUESTED",
        "TOOL_RESULT",
        "RECORD_SKIPPED",
    ),
    "pending_tool": (
        "TOOL_STARTED",
        "TOOL_RESULT",
        "TOOL_FAILED_UNCERTAIN",
        "HUMAN_RESOLVED",
        "TURN_ENDED",
        "RECORD_SKIPPED",
    ),
    "cancel_token": ("CANCEL_REQUESTED", "TURN_ENDED", "RECORD_SKIPPED"),
    "last_message_id": ("SESSION_OPENED", "MESSAGE_RECEIVED", "RECORD_SKIPPED"),
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
        "RECORD_SKIPPED",
    ),
}

MEANING: dict[str, tuple[str, str]] = {
    "session_id": ("string", "when the session is opened"),
    "user_id": ("string", "when the session is opened"),
    "project_id": (
        "string or null",
        f"once, by the open-existing route or by the tool {PROJECT_TOOL} with {CONFIRMS}; then "
        "locked; a fork inherits it",
    ),
    "phase": (
        "chatting, building, verifying, done",
        "by a transition of TRANSITIONS; a fork inherits it",
    ),
    "pending_tool": (
        "{call, name, attempt, open} or null",
        "when a tool is claimed; cleared by its outcome",
    ),
    "cancel_token": (
        "string or null",
        "by an explicit cancel; cleared by the TURN_ENDED that honours it",
    ),
    "last_message_id": ("string or null", "when a message is accepted; a fork inherits it"),
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
    return fields, attrgetter(*fields) if fields else lambda _: None
