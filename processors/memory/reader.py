"""Answers the memory queries of prompts and tools: core, index, a file, a search, todos.

Every returned text is framed (framing.py). A query reads what the store has folded so far, without
waiting; a caller that must see its own write waits first (service.py).
"""

from collections.abc import Callable, Sequence

from ...schemas.memory_paths import TODO_CHARS_MAX
from ..search.index import Hit
from . import framing
from .fold import MemoryView, entries_of, open_todos
from .store import MemoryStore

BEST = 5  # results of a search


class MemoryReader:
    """Reads a memory store. `store` returns it, and is called for every query, because the store
    may be rebuilt."""

    def __init__(self, store: Callable[[], MemoryStore]) -> None:
        self._store = store

    def view(self, scope: str) -> MemoryView:
        """The view of a scope."""
        return self._store().view(scope)

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
                f"[entry {entry_id}, {framing.source_of(kept)}]", *framing.quoted(hit.snippet)
            ]
            parts.append(framing.framed(f"scope={hit.scope} file={hit.title}", lines))
        return "\n\n".join(parts) or None

    def todos(self, scope: str) -> str:
        """A project's open todos, framed; '' if there are none."""
        lines = [
            framing.QUOTE + f"{todo.todo_id}: {framing.flat(todo.text, TODO_CHARS_MAX)}"
            for todo in open_todos(self.view(scope))
        ]
        return framing.framed(f"scope={scope} todos open={len(lines)}", lines) if lines else ""
