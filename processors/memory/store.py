"""The memory store: views, search index and cursors of memory-events in one SQLite file.

All three change in one transaction, so after a kill the file is consistent at some offset, and
reading continues from there. The file is a cache: if it is unreadable or does not belong to the
current log (another cluster or topic, other folds, a cursor beyond the log's end), it is deleted
and rebuilt, which is logged. One process writes the file. The threads of this process take turns on
the connection; one thread folds. While that thread waits for an embedder, which may be a server,
the other threads continue.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from ...log.errors import Corrupt
from ...schemas import codec
from ...schemas.codec import Entry, Unreadable, entry_of
from ...schemas.memory import MEMORY_TYPES
from ...schemas.memory_paths import parse_scope
from ...schemas.record import Record
from ...schemas.value import Value, replace
from ..search.embed import Embedder
from ..search.index import Hit, SearchIndex
from ..sqlite_errors import is_damage
from ..store.store import Belongs
from .fold import MemoryEntry, MemoryView, apply, initial

LAYOUT = 3  # increment it when the tables, or the views that the fold stores, change
SCOPES_CACHED = 64  # views kept in memory: the scopes that sessions of this worker use now
KIND = "memory"  # kind of this store's documents in the search index
_TABLES = (
    "CREATE TABLE IF NOT EXISTS belongs (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS cursors (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS heads (scope TEXT PRIMARY KEY, head BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS entries (scope TEXT NOT NULL, entry_id TEXT NOT NULL,"
    " place REAL NOT NULL, row BLOB NOT NULL, PRIMARY KEY (scope, entry_id)) WITHOUT ROWID",
)

V = TypeVar("V", bound=Value)


@cache
def memory_version() -> str:
    """The version of the fold and of the events that it knows. If this version changes, the store
    is refolded."""
    return f"{LAYOUT}-{codec.fingerprints(MEMORY_TYPES)}"


class _CachedView(NamedTuple):
    """A view, and the position of each of its entries in the table."""

    view: MemoryView
    places: dict[str, float]


class MemoryStore:
    """The memory store in one file.

    ends: the end offset of each partition when the store is opened.
    rebuild_reason: why an existing file must be replaced, or None.
    embedder: the embedder of the search index.

    Raises EmbedderFailed, or sqlite3.Error if no file can be created.
    """

    def __init__(
        self,
        path: Path,
        belongs: Belongs,
        ends: Mapping[int, int],
        say: Callable[[str], None],
        rebuild_reason: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._path, self._say, self._embedder = path, say, embedder
        self._lock = threading.RLock()
        self._cached: OrderedDict[str, _CachedView] = OrderedDict()
        self.damage: str | None = None  # set by a reader; the folding thread then rebuilds the file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            why = rebuild_reason or self._open(belongs, ends)
        except sqlite3.DatabaseError as broken:
            if not is_damage(broken):  # such as a lock or a full disk: keep the file
                raise
            why = f"it cannot be read ({type(broken).__name__}: {broken})"
        if why is not None:
            self._say(f"the memory store is rebuilt from the log: {why}")
            self.close()
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
            again = self._open(belongs, ends)
            assert again is None, again

    def _open(self, belongs: Belongs, ends: Mapping[int, int]) -> str | None:
        """Open the file. Returns the reason why it does not belong to this log, or None."""
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")  # a power loss costs only folded offsets
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement in _TABLES:
                self._db.execute(statement)
            had = dict(self._db.execute("SELECT name, value FROM belongs"))
            for name, has in belongs._asdict().items():
                if had.setdefault(name, has) != has:
                    return f"its {name} is {had[name]}, the log's is {has}"
            self._db.executemany("INSERT OR REPLACE INTO belongs VALUES (?, ?)", [*had.items()])
            self._cursors = {
                partition: offset
                for partition, offset in self._db.execute("SELECT partition, next FROM cursors")
            }
            for partition, offset in self._cursors.items():
                if offset > ends.get(partition, 0):
                    end = ends.get(partition, 0)
                    return f"its cursor {partition}/{offset} is beyond the log's end {end}"
            self._index = SearchIndex(self._db, self._embedder, self._say)
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return None

    @property
    def cursors(self) -> dict[int, int]:
        """The next offset of every partition that was read."""
        with self._lock:
            return dict(self._cursors)

    def fold(self, records: Sequence[Record]) -> set[str]:
        """Fold records, and write views, index and cursors in one transaction. Returns the changed
        scopes."""
        with self._lock:
            before: dict[str, _CachedView] = {}
            after: dict[str, MemoryView] = {}
            cursors = dict(self._cursors)
            for record in records:
                cursors[record.partition] = record.offset + 1
                entry = self._entry(record)
                if entry is not None:
                    scope = entry.session_id
                    cached = before.setdefault(scope, self._cached_view(scope))
                    after[scope] = apply(after.get(scope, cached.view), entry)
            changed = {s: view for s, view in after.items() if view is not before[s].view}
        fresh = [
            kept
            for scope, view in changed.items()
            for kept in view.entries
            if kept.entry_id not in before[scope].places and kept.text.strip()
        ]
        made = self._index.vectors_of((kept.path, kept.text) for kept in fresh)
        vectors = dict(zip(fresh, made, strict=True))
        with self._lock:
            self._write(before, changed, cursors, vectors)
            for view in changed.values():
                if view.refused > before[view.scope].view.refused:
                    self._say(f"memory: an event of {view.scope} was refused: {view.why}")
            return set(changed)

    def _entry(self, record: Record) -> Entry | None:
        """The entry of a record, or None if the record belongs to no scope."""
        entry = entry_of(record)
        if isinstance(entry.event, Unreadable):
            place = f"{record.partition}/{record.offset}"
            self._say(f"memory: the record at {place} cannot be decoded and is skipped: "
                      f"{entry.event.why}")
            return None
        return entry if parse_scope(entry.session_id) is not None else None

    def _write(
        self,
        before: dict[str, _CachedView],
        changed: dict[str, MemoryView],
        cursors: dict[int, int],
        vectors: Mapping[MemoryEntry, bytes],
    ) -> None:
        """Write everything in one transaction.
        The state in memory changes only after the commit."""
        places = {scope: _places(before[scope], view) for scope, view in changed.items()}
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for scope, view in changed.items():
                self._write_scope(before[scope], _CachedView(view, places[scope]), vectors)
            self._db.executemany(
                "INSERT OR REPLACE INTO cursors VALUES (?, ?)", sorted(cursors.items())
            )
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._cursors = cursors
        for scope, view in changed.items():
            self._cache(_CachedView(view, places[scope]))

    def _write_scope(
        self, had: _CachedView, has: _CachedView, vectors: Mapping[MemoryEntry, bytes]
    ) -> None:
        scope = has.view.scope
        head = replace(has.view, entries=(), ids=())
        self._db.execute(
            "INSERT OR REPLACE INTO heads VALUES (?, ?)", (scope, _sealed(head))
        )
        for entry_id in had.places.keys() - has.places.keys():
            self._db.execute(
                "DELETE FROM entries WHERE scope = ? AND entry_id = ?", (scope, entry_id)
            )
            self._index.delete(f"{scope}/{entry_id}")
        for kept in has.view.entries:
            place = has.places[kept.entry_id]
            if had.places.get(kept.entry_id) == place:
                continue
            self._db.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
                (scope, kept.entry_id, place, _sealed(kept)),
            )
            if kept in vectors:
                document = (f"{scope}/{kept.entry_id}", scope, KIND, kept.path, kept.text, kept.at)
                self._index.upsert(*document, vectors[kept])

    def _cached_view(self, scope: str) -> _CachedView:
        cached = self._cached.get(scope)
        return cached if cached is not None else self._cache(self._load(scope))

    def _cache(self, loaded: _CachedView) -> _CachedView:
        self._cached[loaded.view.scope] = loaded
        self._cached.move_to_end(loaded.view.scope)
        while len(self._cached) > SCOPES_CACHED:
            self._cached.popitem(last=False)
        return loaded

    def _load(self, scope: str) -> _CachedView:
        try:
            return self._read(scope)
        except msgspec.MsgspecError as broken:
            raise Corrupt(str(broken)) from broken
        except sqlite3.DatabaseError as broken:
            if is_damage(broken):
                raise Corrupt(str(broken)) from broken
            raise

    def _read(self, scope: str) -> _CachedView:
        found = self._db.execute("SELECT head FROM heads WHERE scope = ?", (scope,)).fetchone()
        if found is None:
            return _CachedView(initial(scope), {})
        head = _unsealed(found[0], MemoryView)
        rows = self._db.execute(
            "SELECT place, row FROM entries WHERE scope = ? ORDER BY place", (scope,)
        ).fetchall()
        entries = tuple(_unsealed(row, MemoryEntry) for _, row in rows)
        ids = tuple(kept.entry_id for kept in entries)
        places = {id: place for id, (place, _) in zip(ids, rows, strict=True)}
        return _CachedView(replace(head, entries=entries, ids=ids), places)

    def view(self, scope: str) -> MemoryView:
        """The view of a scope, as far as the log is folded. If the file is damaged, views are empty
        until it has been rebuilt."""
        with self._lock:
            try:
                return self._cached_view(scope).view
            except Corrupt as damage:
                self.damage = str(damage)
            except sqlite3.ProgrammingError:  # closed, because it is being rebuilt
                pass
            return initial(scope)

    def search(
        self, query: str, scopes: Sequence[str], best: int, now: int | None = None
    ) -> list[Hit]:
        """The best entries for a query, by the hybrid score. The ids of hits are SCOPE/ENTRY_ID."""
        vector = self._index.vector_of(query)
        with self._lock:
            return self._index.search(
                query, scopes, kinds=(KIND,), best=best, now=now, vector=vector
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock, suppress(AttributeError):  # no connection: the file could not be opened
            self._db.close()


def _sealed(value: Value) -> bytes:
    """The bytes of a row: a checksum, then the value. SQLite has no checksums, and a damaged value
    must not get into a prompt.
    """
    data = msgspec.msgpack.encode(value)
    return crc32(data).to_bytes(4, "big") + data


def _unsealed(row: bytes, kind: type[V]) -> V:
    if crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise Corrupt(f"a {kind.__name__} of the memory store does not match its checksum")
    return msgspec.msgpack.decode(row[4:], type=kind)


GAP = 1.0
GAP_MIN = 1e-6  # reached after 20 halvings; a double near 20,000 has a resolution of 1e-11


def _places(had: _CachedView, view: MemoryView) -> dict[str, float]:
    """The positions of a view's entries. Old entries keep their positions; a new entry gets a
    position between those of its neighbours.

    So an entry that is inserted into the middle of a file changes one row, not all rows after it.
    """
    places: dict[str, float] = {}
    last = 0.0
    following = _following(had.places, view.ids)
    for entry_id, behind in zip(view.ids, following, strict=True):
        place = had.places.get(entry_id)
        if place is None:
            place = last + GAP if behind is None else (last + behind) / 2
        if place - last < GAP_MIN:  # no gap left: renumber all
            return {id: n * GAP for n, id in enumerate(view.ids, 1)}
        places[entry_id] = last = place
    return places


def _following(known: Mapping[str, float], ids: Iterable[str]) -> list[float | None]:
    """For each id, the position of the next id that already has a position."""
    found: list[float | None] = []
    following: float | None = None
    for entry_id in reversed([*ids]):
        found.append(following)
        following = known.get(entry_id, following)
    return found[::-1]
