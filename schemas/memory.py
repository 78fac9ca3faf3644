"""What outlives sessions, as events of the topic memory-events, keyed by scope.

A scope is `user:ID` or `project:ID`. Memory is kept as entries of files (core.md, daily/DATE.md):
the path says how near an entry stands to a prompt. Preferences belong to a user, todos to a
project. Ids follow from meaning (a call, a place in the log, the content), so that writing an event
twice is harmless. The rows below stand beside EVENT_TYPES, not in it: no session's fold reads them.
"""

from .bounds import Count
from .events import EventType
from .events.parts import event


@event
class MemoryWritten:
    """Something to remember was written into a file of the scope."""

    entry_id: str
    path: str
    text: str
    after: str | None = None
    source_session: str | None = None
    source_offset: Count | None = None
    by_user: str


@event
class MemoryRetired:
    """An entry no longer holds."""

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
    """A project has one more thing to do."""

    todo_id: str
    text: str
    source_session: str | None = None
    by_user: str


@event
class TodoMarked:
    """A todo was done, opened again, or dropped."""

    command_id: str
    todo_id: str
    status: str
    source_session: str | None = None
    by_user: str


# Never inputs of a session, and never must-understand: an older reader passes what it does not
# know, and refolds when it is upgraded.
_PEOPLE, _AGENTS, _WORK = "producer", "tools", "background"
MEMORY_TYPES = (
    EventType("MEMORY_WRITTEN", MemoryWritten, False, False, (_PEOPLE, _AGENTS, _WORK)),
    EventType("MEMORY_RETIRED", MemoryRetired, False, False, (_PEOPLE, _AGENTS)),
    EventType("PREFERENCE_SET", PreferenceSet, False, False, (_PEOPLE, _AGENTS)),
    EventType("TODO_ADDED", TodoAdded, False, False, (_PEOPLE, _AGENTS)),
    EventType("TODO_MARKED", TodoMarked, False, False, (_PEOPLE, _AGENTS)),
)
