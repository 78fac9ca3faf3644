"""Writes memory: each method writes one event to memory-events and returns the event's position.

A returned position means that the log has the event, not that the fold accepted it: the scope may
be full, or the entry may be retired already. Only the scope's view shows the outcome. Memory that
is written again with the same id takes effect once. Invalid input is refused here, before anything
is produced.
"""

from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

from ..log.door import Producer
from ..log.errors import LogUnreachable
from ..schemas import memory as ev
from ..schemas.codec import BY_CLASS, headers_for
from ..schemas.enums import TodoStatus
from ..schemas.ids import is_id
from ..schemas.memory_paths import (
    LEGAL_PATHS,
    PREFERENCE_CHARS_MAX,
    TODAY,
    TODO_CHARS_MAX,
    WHY_CHARS_MAX,
    parse_scope,
    scope_of,
    tier_of,
    why_not_text,
)
from ..schemas.topics import MEMORY_EVENTS
from . import acknowledgement, checks
from .acknowledgement import ACK_S
from .checks import Invalid

PEOPLE = "producer"


class Written(NamedTuple):
    """The position of an event. `id`: the id of the entry, the todo or the command in the event."""

    scope: str
    partition: int
    offset: int
    id: str


class NotWritten(LogUnreachable):
    """The broker did not acknowledge the event, which may be in the log. Write it again: it takes
    effect once."""


def id_from(*parts: str | int | None) -> str:
    """An id that is derived only from these parts, so equal parts give equal ids."""
    return sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:20]


class MemoryWriter:
    """Writes memory, preferences and todos. May be used from several threads.

    `user`: the acting user, unless a call names another.
    `writer`: the role that writes: producer (a person or a program), tools (an agent), or
        background (extraction).

    Each method raises Invalid before producing, NotWritten when no broker answers within `ack_s`
    seconds, TopicMissing, or LogBusy.
    """

    def __init__(
        self, producer: Producer, user: str, *, writer: str = PEOPLE, ack_s: float = ACK_S
    ) -> None:
        self._producer, self._writer, self._ack_s = producer, writer, ack_s
        self._user = checks.an_id("user", user)

    def remember(
        self,
        scope: str,
        path: str,
        text: str,
        *,
        entry_id: str | None = None,
        after: str | None = None,
        source: tuple[str, int | None] | None = None,
        user: str | None = None,
    ) -> Written:
        """Write an entry. `path`: core.md, decisions.md, daily (today), daily/DATE.md or
        archive/NAME.

        entry_id: by default derived from path and text, so a retired entry does not come back.
        after: the id of the entry before the new entry, '' to put it first, None to put it last.
        source: the session that the entry came from, and the offset in it.
        """
        if path != TODAY and tier_of(path) is None:
            raise Invalid("invalid_path", f"memory lies in {LEGAL_PATHS}, not in {path[:200]!r}")
        _text("the text", text)
        session, offset = source or (None, None)
        entry_id = id_from("text", path, text) if entry_id is None else entry_id
        event = ev.MemoryWritten(
            entry_id=checks.an_id("entry_id", entry_id),
            path=path,
            text=text,
            after=after if not after else checks.an_id("after", after),
            source_session=_session(session),
            source_offset=offset,
            by_user=self._by(user),
        )
        return self.write(scope, event, entry_id)

    def retire(
        self, scope: str, entry_id: str, why: str = "", *, user: str | None = None
    ) -> Written:
        """Retire an entry that is no longer valid. The log keeps the entry."""
        _text("the reason", why, WHY_CHARS_MAX)
        event = ev.MemoryRetired(
            entry_id=checks.an_id("entry_id", entry_id), why=why, by_user=self._by(user)
        )
        return self.write(scope, event, entry_id)

    def set_preference(
        self,
        user_id: str,
        name: str,
        value: str | None,
        *,
        command_id: str | None = None,
        session: str | None = None,
    ) -> Written:
        """Set a preference of a user, or remove it if `value` is None."""
        if value is not None:
            _text("the value", value, PREFERENCE_CHARS_MAX)
        command_id = self._command(command_id)
        event = ev.PreferenceSet(
            command_id=command_id,
            name=checks.an_id("the name of a preference", name),
            value=value,
            source_session=_session(session),
            by_user=self._by(user_id),
        )
        return self.write(scope_of("user", checks.an_id("user", user_id)), event, command_id)

    def add_todo(
        self,
        project_id: str,
        text: str,
        *,
        todo_id: str | None = None,
        session: str | None = None,
        user: str | None = None,
    ) -> Written:
        """Add a todo to a project. Without an id, equal texts are the same todo."""
        _text("the todo", text, TODO_CHARS_MAX)
        if not text.strip():
            raise Invalid("empty_todo", "an empty todo: say what is to be done")
        todo_id = id_from("todo", text)[:10] if todo_id is None else todo_id
        event = ev.TodoAdded(
            todo_id=checks.an_id("todo_id", todo_id),
            text=text,
            source_session=_session(session),
            by_user=self._by(user),
        )
        return self.write(_project(project_id), event, todo_id)

    def mark_todo(
        self,
        project_id: str,
        todo_id: str,
        status: str,
        *,
        command_id: str | None = None,
        session: str | None = None,
        user: str | None = None,
    ) -> Written:
        """Mark a todo: done, open (again), or dropped."""
        command_id = self._command(command_id)
        event = ev.TodoMarked(
            command_id=command_id,
            todo_id=checks.an_id("todo_id", todo_id),
            status=checks.a_word("status", status, TodoStatus).value,
            source_session=_session(session),
            by_user=self._by(user),
        )
        return self.write(_project(project_id), event, command_id)

    def done_todo(self, project_id: str, todo_id: str, **more: Any) -> Written:
        """As mark_todo(..., "done")."""
        return self.mark_todo(project_id, todo_id, TodoStatus.DONE, **more)

    def write(self, scope: str, event: Any, id: str = "") -> Written:
        """Append an event and wait for its acknowledgement."""
        found = parse_scope(scope)
        if found is None or not is_id(found[1]):
            raise Invalid("invalid_scope", f"a scope is user:ID or project:ID, not {scope[:140]!r}")
        headers = headers_for(event, self._writer)
        answer = acknowledgement.append(
            self._producer, MEMORY_EVENTS, scope, event, headers, self._ack_s
        )
        if isinstance(answer, str):
            raise NotWritten(
                f"{BY_CLASS[type(event)].name} for {scope} was not acknowledged: {answer}. It may "
                "or may not be in the log. Repeat the command: the event counts once."
            )
        return Written(scope, answer.partition, answer.offset, id)

    def _by(self, user: str | None) -> str:
        return self._user if user is None else checks.an_id("user", user)

    @staticmethod
    def _command(given: str | None) -> str:
        return uuid4().hex if given is None else checks.an_id("command_id", given)


def _text(what: str, text: str, chars_max: int | None = None) -> None:
    if chars_max is not None and len(text) > chars_max:
        raise Invalid(
            "too_large", f"{what} has {len(text)} characters, at most {chars_max} are kept"
        )
    wrong = why_not_text(text)
    if wrong is not None:
        raise Invalid("invalid_text", f"{what}: {wrong}")


def _session(session: str | None) -> str | None:
    return None if session is None else checks.an_id("source session", session)


def _project(project_id: str) -> str:
    return scope_of("project", checks.an_id("project_id", project_id))
