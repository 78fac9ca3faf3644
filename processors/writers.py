"""Who may change each field of session_state (mission row S0.2), as data.

An event of a type that is not listed for a field can not change that field: a test folds random
histories and compares every change with this table.
"""

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
    "project_id": ("string or null", "once, by the open-existing route or by a tool; then locked"),
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
