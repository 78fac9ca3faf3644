"""Memory that outlives sessions: the events of the topic memory-events, keyed by scope.

A scope is `user:ID` or `project:ID`. Memory consists of entries in files (core.md, daily/DATE.md);
the path determines whether an entry is in every prompt. Preferences belong to a user, todos to a
project. Ids are derived from a call, a position in the log or the content, so writing an event
twice is harmless. The event types below are not part of EVENT_TYPES: session folds do not read
them.
"""

from .bounds import Count
from .events import EventType
from .events.parts import event


@event
class MemoryWritten:
    """An entry was written to a file of the scope."""

    entry_id: str
    path: str
    text: str
    after: str | None = None
    source_session: str | None = None
    source_offset: Count | None = None
    by_user: str


@event
class MemoryRetired:
    """An entry is no longer valid."""

    entry_id: str
    why: str
    by_user: str


@event
class PreferenceSet:
    """A user's preference was set, or removed."""

    command_id: str
    name: str
    value: str | None = None
    source_session: str | None = None
    by_user: str


@event
class TodoAdded:
    """A todo was added to a project."""

    todo_id: str
    text: str
    source_session: str | None = None
    by_user: str


@event
class TodoMarked:
    """A todo was marked done, open again, or dropped."""

    command_id: str
    todo_id: str
    status: str
    source_session: str | None = None
    by_user: str


# Memory events are never inputs of a session and never must-understand: an older reader skips event
# types that it does not know, and refolds when it is upgraded.
_PEOPLE, _AGENTS, _WORK = "producer", "tools", "background"
MEMORY_TYPES = (
    EventType("MEMORY_WRITTEN", MemoryWritten, False, False, (_PEOPLE, _AGENTS, _WORK)),
    EventType("MEMORY_RETIRED", MemoryRetired, False, False, (_PEOPLE, _AGENTS)),
    EventType("PREFERENCE_SET", PreferenceSet, False, False, (_PEOPLE, _AGENTS)),
    EventType("TODO_ADDED", TodoAdded, False, False, (_PEOPLE, _AGENTS)),
    EventType("TODO_MARKED", TodoMarked, False, False, (_PEOPLE, _AGENTS)),
)
