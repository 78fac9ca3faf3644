"""Answers the memory queries of prompts and tools: core, index, a file, a search, todos, facts.

Every returned text is framed (framing.py). A query reads what the store has folded so far, without
waiting; a caller that must see its own write waits first (service.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...schemas.memory_paths import TODO_CHARS_MAX
from ..request.frames import QUOTE, quoted
from ..search.index import Hit
from . import framing
from .fold import MemoryEntry, MemoryView, entries_of, open_todos, todo_of
from .store import MemoryStore

BEST = 5  # results of a search


class ScopeFacts(NamedTuple):
    """What the memory tools ask about one scope, all of the same view."""

    view: MemoryView

    @property
    def why(self) -> str:
        """The reason of the last refusal; '' if no event was refused."""
        return self.view.why

    @property
    def loadable(self) -> str:
        """The files that load_memory can read, as text."""
        return framing.loadable_paths(self.view)

    @property
    def open_todo_ids(self) -> tuple[str, ...]:
        """The ids of the open todos, in the order in which they were added."""
        return tuple(todo.todo_id for todo in open_todos(self.view))

    def author_of(self, entry_id: str) -> str | None:
        """The role that wrote an entry; None if there is no such entry."""
        kept = self._entry(entry_id)
        return None if kept is None else kept.by

    def path_of(self, entry_id: str) -> str | None:
        """The file of an entry; None if there is no such entry."""
        kept = self._entry(entry_id)
        return None if kept is None else kept.path

    def lines(self, path: str) -> str:
        """The number of lines of a file, as text."""
        entries = entries_of(self.view, path)
        return framing.lines_of(sum(kept.text.count("\n") + 1 for kept in entries))

    def preference(self, name: str) -> str | None:
        """The value of a preference, or None."""
        return dict(self.view.preferences).get(name)

    def todo_status(self, todo_id: str) -> str | None:
        """The status of a todo; None if there is no such todo."""
        todo = todo_of(self.view, todo_id)
        return None if todo is None else todo.status

    def _entry(self, entry_id: str) -> MemoryEntry | None:
        view = self.view
        return view.entries[view.ids.index(entry_id)] if entry_id in view.ids else None


class MemoryReader:
    """Reads a memory store. `store` returns it, and is called for every query, because the store
    may be rebuilt."""

    def __init__(self, store: Callable[[], MemoryStore]) -> None:
        self._store = store

    def view(self, scope: str) -> MemoryView:
        """The view of a scope."""
        return self._store().view(scope)

    def scope(self, scope: str) -> ScopeFacts:
        """Facts about a scope, for the memory tools."""
        return ScopeFacts(self.view(scope))

    def core(self, scopes: Sequence[str]) -> str:
        """The HOT tier for the static prefix: at most 100 lines of core.md; '' without lines."""
        return framing.core_text([self.view(scope) for scope in scopes])

    def index(self, scopes: Sequence[str]) -> str:
        """The index for the static prefix: preferences and WARM files, at most 200 lines; '' if
        there are none."""
        return framing.index_text([self.view(scope) for scope in scopes])

    def load(self, scopes: Sequence[str], path: str) -> str | None:
        """The whole file from each scope that has it, framed; None if no scope has it."""
        views = [self.view(scope) for scope in scopes]
        found = [framing.file_text(v, path) for v in views if entries_of(v, path)]
        return "\n\n".join(found) or None

    def search(
        self, query: str, scopes: Sequence[str], best: int = BEST, now: int | None = None
    ) -> list[Hit]:
        """The best entries of all tiers for a query. The ids of hits are SCOPE/ENTRY_ID."""
        return self._store().search(query, scopes, best, now) if scopes else []

    def search_text(self, query: str, scopes: Sequence[str], best: int = BEST) -> str | None:
        """The results of a search as text for a model; None without results.

        The text names the file and the source of each hit.
        """
        parts = []
        for hit in self.search(query, scopes, best):
            view, entry_id = self.view(hit.scope), hit.id.removeprefix(f"{hit.scope}/")
            if entry_id not in view.ids:
                continue  # the entry was retired since it was found
            kept = view.entries[view.ids.index(entry_id)]
            lines = [
                f"[entry {entry_id}, {framing.source_of(kept)}]", *quoted(hit.snippet)
            ]
            parts.append(framing.framed(f"scope={hit.scope} file={hit.title}", lines))
        return "\n\n".join(parts) or None

    def todos(self, scope: str) -> str:
        """A project's open todos, framed; '' if there are none."""
        lines = [
            QUOTE + f"{todo.todo_id}: {framing.flat(todo.text, TODO_CHARS_MAX)}"
            for todo in open_todos(self.view(scope))
        ]
        return framing.framed(f"scope={scope} todos open={len(lines)}", lines) if lines else ""
