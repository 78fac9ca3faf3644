"""What prompts and tools ask of memory: the HOT core, the index, a file, a search, todos.

Every text it gives is framed (framing.py). It reads what the store has folded so far and waits for
nothing; whoever must see his own write waits first (service.py).
"""

from collections.abc import Callable, Sequence

from ...schemas.memory_paths import TODO_CHARS_MAX
from ..search.index import Hit
from . import framing
from .fold import MemoryView, entries_of, open_todos
from .store import MemoryStore

BEST = 5  # mission row S3.3


class MemoryReader:
    """Reads a store. `store` is asked for at every question, for it may be made anew meanwhile."""

    def __init__(self, store: Callable[[], MemoryStore]) -> None:
        self._store = store

    def view(self, scope: str) -> MemoryView:
        """Everything a scope holds."""
        return self._store().view(scope)

    def core(self, scopes: Sequence[str]) -> str:
        """The HOT tier for the static prefix: at most 100 lines of core.md; '' where none is."""
        return framing.core_text([self.view(scope) for scope in scopes])

    def index(self, scopes: Sequence[str]) -> str:
        """Preferences and WARM files for the static prefix: at most 200 lines; '' for none."""
        return framing.index_text([self.view(scope) for scope in scopes])

    def load(self, scopes: Sequence[str], path: str) -> str | None:
        """A whole file of each scope that has it, framed; None where none has."""
        views = [self.view(scope) for scope in scopes]
        found = [framing.file_text(v, path) for v in views if entries_of(v, path)]
        return "\n\n".join(found) or None

    def search(
        self, query: str, scopes: Sequence[str], best: int = BEST, now: int | None = None
    ) -> list[Hit]:
        """The best entries for a query over all tiers; ids are SCOPE/ENTRY_ID."""
        return self._store().search(query, scopes, best, now) if scopes else []

    def search_text(self, query: str, scopes: Sequence[str], best: int = BEST) -> str | None:
        """What a search found, as a model is shown it; None where nothing was.

        Each hit with its file and where it came from.
        """
        parts = []
        for hit in self.search(query, scopes, best):
            view, entry_id = self.view(hit.scope), hit.id.removeprefix(f"{hit.scope}/")
            if entry_id not in view.ids:
                continue  # retired since it was found
            kept = view.entries[view.ids.index(entry_id)]
            lines = [
                f"[entry {entry_id}, {framing.source_of(kept)}]", *framing.quoted(hit.snippet)
            ]
            parts.append(framing.framed(f"scope={hit.scope} file={hit.title}", lines))
        return "\n\n".join(parts) or None

    def todos(self, scope: str) -> str:
        """What a project has still to do, framed; '' where nothing is."""
        lines = [
            framing.QUOTE + f"{todo.todo_id}: {framing.flat(todo.text, TODO_CHARS_MAX)}"
            for todo in open_todos(self.view(scope))
        ]
        return framing.framed(f"scope={scope} todos open={len(lines)}", lines) if lines else ""
