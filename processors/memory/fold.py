"""The view of one scope: memory entries in the order of their files, preferences and todos.

`apply(view, entry)` is pure, and the view is bounded. A duplicate event changes nothing. An event
that breaks a rule is refused: it stays in the log and changes nothing but the counter `refused` and
`why`, the reason of the last refusal.
"""

from datetime import UTC, datetime
from itertools import islice

from ...schemas import memory as ev
from ...schemas.codec import Entry
from ...schemas.enums import TodoStatus
from ...schemas.ids import is_logged_id as is_id
from ...schemas.memory_paths import (
    PREFERENCE_CHARS_MAX,
    PROJECT,
    TODAY,
    TODO_CHARS_MAX,
    USER,
    parse_scope,
    tier_of,
    why_not_text,
)
from ...schemas.value import Value, replace

# Limits of one scope. Events beyond these limits are refused with a reason and stay in the log;
# after entries are retired, new ones are accepted again. 20,000 entries are two years of a busy
# assistant; 16 MiB fit in memory.
ENTRIES_MAX = 20_000
BYTES_MAX = 16 * 1024 * 1024
PREFERENCES_MAX = 100
TODOS_OPEN_MAX = 200
TODOS_DONE_KEPT = 100  # older done todos are dropped
GONE_KEPT = 4_096  # ids of removed entries, to recognize duplicates, which come within minutes
SEEN_KEPT = 512  # ids of commands, for the same reason
_TODO = "todo/"  # prefix of a todo's id in `gone`; an entry's id has no slash

WRITERS = {row.cls: frozenset(row.writers) for row in ev.MEMORY_TYPES}


class MemoryEntry(Value):
    """One entry of memory: lines of a file, and their source.

    `by`: the role that wrote the entry: producer (a person or a program), tools (an agent) or
        background (extraction after a turn).
    `offset`, `at`: the entry's offset in memory-events, and its broker time.
    """

    entry_id: str
    path: str
    text: str
    by: str
    by_user: str
    source_session: str | None
    source_offset: int | None
    offset: int
    at: int


class Todo(Value):
    """A todo. `marked_by`: the command that last set the status, or '' if none did."""

    todo_id: str
    text: str
    status: str
    by_user: str
    source_session: str | None
    offset: int
    at: int
    marked_by: str = ""


class MemoryView(Value):
    """The memory of a scope at an offset. `ids`: the ids of `entries`, in the same order.

    The entries of one path are in the order of the file; different paths are mixed. `offset`: the
    offset of the last event that changed the view, or -1.
    """

    scope: str
    entries: tuple[MemoryEntry, ...] = ()
    ids: tuple[str, ...] = ()
    text_bytes: int = 0
    preferences: tuple[tuple[str, str], ...] = ()
    todos: tuple[Todo, ...] = ()
    gone: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    offset: int = -1
    refused: int = 0
    why: str = ""


def initial(scope: str) -> MemoryView:
    """The empty view of a scope."""
    return MemoryView(scope)


def apply(view: MemoryView, entry: Entry) -> MemoryView:
    """The view after an event; the same object if nothing changed."""
    kind = type(entry.event)
    if kind not in WRITERS or entry.offset <= view.offset:
        return view
    if entry.writer not in WRITERS[kind]:
        return _refused(view, entry, f"{entry.writer or 'nobody'} may not write {kind.__name__}")
    session = getattr(entry.event, "source_session", None)
    if not is_id(entry.event.by_user) or not (session is None or is_id(session)):
        return _refused(view, entry, "its user or its session is no id")
    after: MemoryView | str = view
    match entry.event:
        case ev.MemoryWritten():
            after = _written(view, entry, entry.event)
        case ev.MemoryRetired():
            after = _retired(view, entry.event)
        case ev.PreferenceSet():
            after = _preference(view, entry.event)
        case ev.TodoAdded():
            after = _todo_added(view, entry, entry.event)
        case ev.TodoMarked():
            after = _todo_marked(view, entry.event)
    if isinstance(after, str):
        return _refused(view, entry, after)
    return view if after is view else replace(after, offset=entry.offset)


def _refused(view: MemoryView, entry: Entry, why: str) -> MemoryView:
    return replace(view, refused=view.refused + 1, why=why[:500], offset=entry.offset)


def _written(view: MemoryView, entry: Entry, event: ev.MemoryWritten) -> MemoryView | str:
    if event.entry_id in view.gone:
        return view
    path = day_path(entry.at) if event.path == TODAY else event.path
    if event.entry_id in view.ids:
        had = view.entries[view.ids.index(event.entry_id)]
        same = had.text == event.text and event.path in (TODAY, had.path)
        return view if same else f"entry {event.entry_id} was written before with another text"
    wrong = why_not_text(event.text)
    if not is_id(event.entry_id) or tier_of(path) is None or wrong is not None:
        return f"entry {event.entry_id[:128]!r} of {path[:200]!r}: {wrong or 'no such id or path'}"
    size = len(event.text.encode())
    if len(view.ids) >= ENTRIES_MAX or view.text_bytes + size > BYTES_MAX:
        return (
            f"the memory of {view.scope} is full ({len(view.ids)} entries, {view.text_bytes} "
            f"bytes): entry {event.entry_id} was not taken; retire some and write it again"
        )
    kept = MemoryEntry(
        entry_id=event.entry_id,
        path=path,
        text=event.text,
        by=entry.writer,
        by_user=event.by_user,
        source_session=event.source_session,
        source_offset=event.source_offset,
        offset=entry.offset,
        at=entry.at,
    )
    place = _place(view, path, event.after)
    return replace(
        view,
        entries=(*view.entries[:place], kept, *view.entries[place:]),
        ids=(*view.ids[:place], kept.entry_id, *view.ids[place:]),
        text_bytes=view.text_bytes + size,
    )


def day_path(at: int) -> str:
    """The daily file for the time of a record (UTC); '' for a time outside of the calendar."""
    try:
        return f"daily/{datetime.fromtimestamp(at / 1000, UTC).date().isoformat()}.md"
    except (ValueError, OverflowError, OSError):
        return ""


def _place(view: MemoryView, path: str, after: str | None) -> int:
    """The index for a new entry: after the entry `after`, or at the end of the file if the file
    lacks that entry."""
    if after == "":
        return next((n for n, kept in enumerate(view.entries) if kept.path == path), len(view.ids))
    if after is not None and after in view.ids:
        place = view.ids.index(after)
        if view.entries[place].path == path:
            return place + 1
    return len(view.ids)


def _retired(view: MemoryView, event: ev.MemoryRetired) -> MemoryView | str:
    if event.entry_id in view.gone:
        return view
    if not is_id(event.entry_id):
        return f"{event.entry_id[:128]!r} is the id of no entry"
    if event.entry_id not in view.ids:  # it may be written later, as the order does not matter
        return replace(view, gone=_appended(view.gone, event.entry_id, GONE_KEPT))
    place = view.ids.index(event.entry_id)
    return replace(
        view,
        entries=(*view.entries[:place], *view.entries[place + 1 :]),
        ids=(*view.ids[:place], *view.ids[place + 1 :]),
        text_bytes=view.text_bytes - len(view.entries[place].text.encode()),
        gone=_appended(view.gone, event.entry_id, GONE_KEPT),
    )


def _is(view: MemoryView, kind: str) -> bool:
    found = parse_scope(view.scope)
    return found is not None and found[0] == kind


def _appended(ids: tuple[str, ...], new: str, kept_max: int) -> tuple[str, ...]:
    """The newest `kept_max` ids, with `new` as the last."""
    return (*ids[max(0, len(ids) + 1 - kept_max) :], new)


def _preference(view: MemoryView, event: ev.PreferenceSet) -> MemoryView | str:
    if event.command_id in view.seen:
        return view
    if not _is(view, USER):
        return f"preference {event.name[:128]!r}: {view.scope} is no user"
    preferences = dict(view.preferences)
    if event.value is None:
        preferences.pop(event.name, None)
    else:
        wrong = why_not_text(event.value)
        if not is_id(event.name) or len(event.value) > PREFERENCE_CHARS_MAX or wrong:
            return f"preference {event.name[:128]!r}: {wrong or 'its name or value is too long'}"
        preferences[event.name] = event.value
    if len(preferences) > PREFERENCES_MAX:
        return f"{PREFERENCES_MAX} preferences are kept: {event.name} was not taken, remove one"
    return replace(
        view,
        preferences=tuple(sorted(preferences.items())),
        seen=_appended(view.seen, event.command_id[:200], SEEN_KEPT),
    )


def _todo_added(view: MemoryView, entry: Entry, event: ev.TodoAdded) -> MemoryView | str:
    had = todo_of(view, event.todo_id)
    if had is not None:
        same = had.text == event.text
        return view if same else f"todo {event.todo_id} was added before with another text"
    if _TODO + event.todo_id in view.gone:
        return view
    wrong = why_not_text(event.text) or (not event.text.strip() and "it is empty") or None
    if not is_id(event.todo_id) or len(event.text) > TODO_CHARS_MAX or wrong:
        return f"todo {event.todo_id[:128]!r}: {wrong or 'its id or its text is too long'}"
    if not _is(view, PROJECT):
        return f"todo {event.todo_id}: {view.scope} is no project"
    if len(open_todos(view)) >= TODOS_OPEN_MAX:
        return f"{TODOS_OPEN_MAX} todos are open: {event.todo_id} was not taken, finish some first"
    todo = Todo(
        todo_id=event.todo_id,
        text=event.text,
        status=TodoStatus.OPEN.value,
        by_user=event.by_user,
        source_session=event.source_session,
        offset=entry.offset,
        at=entry.at,
    )
    return replace(view, todos=(*view.todos, todo))


def _todo_marked(view: MemoryView, event: ev.TodoMarked) -> MemoryView | str:
    had = todo_of(view, event.todo_id)
    if event.command_id in view.seen or _TODO + event.todo_id in view.gone:
        return view
    if had is None:
        return f"there is no todo {event.todo_id[:128]!r}"
    seen = _appended(view.seen, event.command_id[:200], SEEN_KEPT)
    if event.status == had.status:
        return replace(view, seen=seen)
    if event.status == TodoStatus.OPEN and len(open_todos(view)) >= TODOS_OPEN_MAX:
        return f"{TODOS_OPEN_MAX} todos are open: {event.todo_id} was not opened again"
    others = tuple(todo for todo in view.todos if todo is not had)
    if event.status == TodoStatus.DROPPED:
        gone = _appended(view.gone, _TODO + event.todo_id, GONE_KEPT)
        return replace(view, todos=others, gone=gone, seen=seen)
    marked = replace(had, status=event.status, marked_by=event.command_id)
    todos = tuple(marked if todo is had else todo for todo in view.todos)
    done = [todo for todo in todos if todo.status == TodoStatus.DONE]
    forgotten = frozenset(t.todo_id for t in islice(done, max(0, len(done) - TODOS_DONE_KEPT)))
    gone = view.gone
    for todo_id in sorted(forgotten):
        gone = _appended(gone, _TODO + todo_id, GONE_KEPT)
    kept = tuple(todo for todo in todos if todo.todo_id not in forgotten)
    return replace(view, todos=kept, gone=gone, seen=seen)


# -- reading a view --------------------------------------------------------------------------------


def todo_of(view: MemoryView, todo_id: str) -> Todo | None:
    """The todo with this id, or None."""
    return next((todo for todo in view.todos if todo.todo_id == todo_id), None)


def open_todos(view: MemoryView) -> tuple[Todo, ...]:
    """The open todos, in the order in which they were added."""
    return tuple(todo for todo in view.todos if todo.status == TodoStatus.OPEN)


def paths_of(view: MemoryView) -> list[str]:
    """The files that contain entries, by name."""
    return sorted({kept.path for kept in view.entries})


def entries_of(view: MemoryView, path: str) -> tuple[MemoryEntry, ...]:
    """The entries of a file, in the order of the file."""
    return tuple(kept for kept in view.entries if kept.path == path)


def text_of(view: MemoryView, path: str) -> str:
    """The text of a file as people edit it: its entries, each followed by a line end;
    '' without entries."""
    return "".join(f"{kept.text}\n" for kept in entries_of(view, path))
