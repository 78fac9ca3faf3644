"""The store of one partition: views and cursor, changed together in one batch.

A store is a cache of the log. It may be deleted at any time, and is deleted if it does not belong
to the current log. Two backends share one contract test: RocksDB (rocks.py), and a dict for the
simulator.
"""

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from ...log.errors import Corrupt, LogCut
from ...schemas import codec
from ...schemas.enums import Role
from ...schemas.events import EVENT_TYPES
from ...schemas.value import replace
from .. import crash_points
from ..fold.projections.partition import PartitionView
from ..fold.projections.turn_view import Stream
from ..fold.rulings.producers import RULES
from ..fold.views import Frozen, SessionViews, initial
from . import views_codec
from .rocks import DiskFailed, RocksBackend

LAYOUT = 21  # increment it when the keys, or the views that the folds store, change
FOLDS = "90c8ed8acb7570ec"


@cache
def fold_version() -> str:
    """The version of the folds and of the events that they know.
    If it changes, stores are refolded."""
    return f"{LAYOUT}-{RULES}-{codec.fingerprints(EVENT_TYPES)}"


def version_for(roles: Iterable[str]) -> str:
    """The version of the stores of a worker with these roles. Only the role `sessions` stores
    facts, so it must not continue from a store that was folded without them."""
    return fold_version() if Role.SESSIONS in roles else f"{fold_version()}-without-facts"


class Belongs(NamedTuple):
    """The log from which a store was folded, and the version of the folds."""

    cluster_id: str
    topic_id: str
    folds: str


class Cursor(NamedTuple):
    """The next offset, and the checksum of the record before it (partition_cache.checksum_of)."""

    offset: int = 0
    checksum: int = 0


FactRow = tuple[int, bytes]
"""A fact that may not be in `session-facts` yet: the offset of its event, and the packed fact
(schemas/facts.py)."""


class Backend(Protocol):
    """An ordered map of bytes to bytes, with atomic batches."""

    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def scan(self, *prefixes: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None: ...
    def close(self) -> None: ...


OPENS_MAX = 20  # of a store for reading, each after its files changed during the try before
PAGE_SUFFIX = 9  # bytes of a page's key after the session id: 0, then the rows before the page
# Measured: how many times its stored bytes a session takes in memory, and how many bytes
# more per row.
SESSION_BYTES, ROW_BYTES = 4_000, 400

_BELONGS, _CURSOR, _PARTITION = b"\0belongs", b"\0cursor", b"\0partition"
_FACT = b"f\0"  # prefix of the key of a fact, before its offset


class _Batch:
    """The changes of one atomic write."""

    def __init__(self) -> None:
        self.puts: list[tuple[bytes, bytes]] = []
        self.deletes: list[bytes] = []


class _Stored:
    """What was stored last of a cached session. `busy`: None if it is not known."""

    __slots__ = ("busy", "head_bytes", "lengths", "rewrites", "row_bytes", "stream")

    def __init__(self) -> None:
        self.lengths = views_codec.NO_ROWS
        self.head_bytes = self.row_bytes = 0
        self.stream: Stream | None = None
        self.rewrites: tuple[int | str, ...] = ()
        self.busy: bool | None = None


class Store:
    """The views of every session of a partition, all at one cursor."""

    def __init__(
        self,
        backend: Backend,
        letters_from: int | None = None,
        *,
        log_end: int = 0,
        log_first: int = 0,
        is_loaded: bool = False,
    ) -> None:
        self._backend = backend
        self.log_end = log_end  # the log's end when this store was opened: where catching up ends
        self.log_first = log_first  # the log's first offset then; 0 unless records were deleted
        self._stored: dict[str, _Stored] = {}  # by cached session
        self.belongs: Belongs | None = self._read(_BELONGS, Belongs)
        self.cursor: Cursor = self._read(_CURSOR, Cursor) or Cursor()
        self.partition: PartitionView = self._read(_PARTITION, PartitionView) or PartitionView()
        # Dead letters for records below this offset were written while the previous store was in
        # use.
        self.letters_from = self.cursor.offset if letters_from is None else letters_from
        # Another worker has served the partition up to `log_end`; is_loaded: from a snapshot.
        self.is_new, self.is_loaded = is_loaded or letters_from is not None, is_loaded
        # Records below this offset were counted and reported on while another store was in use.
        is_partial = self.is_new or self.cursor.offset == 0
        self.history_end = self.log_end if is_partial else self.cursor.offset

    def _read(self, key: bytes, kind: type) -> Any:
        value = self._backend.get(key)
        return None if value is None else msgspec.msgpack.decode(value, type=kind)

    def claim(self, belongs: Belongs) -> None:
        """Record the log from which this store is folded. For new stores only."""
        assert self.belongs in (None, belongs)
        self._backend.write([(_BELONGS, views_codec.encode_row(belongs))], [])
        self.belongs = belongs

    def load(self, session_id: str) -> SessionViews | None:
        """The views of a session, or None if the session is unknown. Raises Corrupt if the stored
        views cannot be decoded."""
        return self.load_many([session_id]).get(session_id)

    def load_many(self, session_ids: Iterable[str]) -> dict[str, SessionViews]:
        """The views of these sessions, without those that are unknown. Raises Corrupt as
        `load` does."""
        names = sorted(session_id.encode() for session_id in session_ids)
        heads = zip(names, self._backend.get_many([b"h\0" + name for name in names]), strict=True)
        known = {name: head for name, head in heads if head is not None}
        streams = self._backend.get_many([b"c\0" + name for name in known])
        pages: dict[bytes, list[bytes]] = {name: [] for name in known}
        for key, page in self._backend.scan(*[b"r\0" + name + b"\0" for name in known]):
            pages.setdefault(key[2:-PAGE_SUFFIX], []).append(page)
        found = {}
        for (name, head), stream in zip(known.items(), streams, strict=True):
            session_id = name.decode()
            found[session_id] = self._decoded(session_id, head, stream, pages[name])
        return found

    def _decoded(
        self, session_id: str, head: bytes, stream: bytes | None, pages: list[bytes]
    ) -> SessionViews:
        try:
            views = views_codec.views_from(head, stream, pages)
        except Exception as error:  # a decoder may raise anything for corrupt bytes
            raise Corrupt(f"session {session_id}: {type(error).__name__}: {error}") from error
        stored = self._stored.setdefault(session_id, _Stored())
        stored.lengths, stored.rewrites = views_codec.lengths_of(views), views.rewrites
        if stored.stream is None and stream is not None:
            stored.stream = views.stream
        stored.head_bytes, stored.row_bytes = len(head), sum(map(len, pages))
        return views

    def memory_of(self, session_id: str) -> int:
        """About how many bytes of memory the views of a cached session take, as they were loaded or
        stored last."""
        stored = self._stored.get(session_id)
        if stored is None:
            return SESSION_BYTES
        rows = sum(stored.lengths)
        return SESSION_BYTES + stored.head_bytes + stored.row_bytes + ROW_BYTES * rows

    def write(
        self,
        changed: Mapping[str, SessionViews],
        streamed: Mapping[str, SessionViews],
        busy: Callable[[SessionViews], bool],
        partition: PartitionView,
        cursor: Cursor,
        since: Mapping[str, int] | None = None,
        facts: Sequence[FactRow] = (),
    ) -> dict[str, SessionViews]:
        """Write one batch: changed sessions, sessions that only streamed, the partition, the
        cursor, and the facts that must still be sent.

        Some views cannot be encoded. For such a session the previous views are stored instead,
        marked as frozen at the session's offset in `since`; the method returns these sessions with
        these views. Bounds (schemas/bounds.py) should prevent this, but such a session must not
        harm the others.
        """
        batch, frozen = _Batch(), {}
        for session_id, views in changed.items():
            try:
                self._put(batch, session_id, views, busy)
            except Corrupt:
                raise
            except Exception as error:
                stored = self.load(session_id) or initial(session_id)
                why = f"its views cannot be stored: {type(error).__name__}"
                at = (since or {}).get(session_id, self.cursor.offset)
                frozen[session_id] = replace(stored, frozen=stored.frozen or Frozen(at, why))
                self._put(batch, session_id, frozen[session_id], busy)
        for session_id, views in streamed.items():
            self._stored.setdefault(session_id, _Stored()).stream = views.stream
            batch.puts.append((b"c\0" + session_id.encode(), views_codec.stream_of(views)))
        batch.puts += [(_fact_key(offset), packed) for offset, packed in facts]
        if partition is not self.partition:
            batch.puts.append((_PARTITION, views_codec.encode_row(partition)))
        batch.puts.append((_CURSOR, views_codec.encode_row(cursor)))
        self._backend.write(batch.puts, batch.deletes)
        self.partition, self.cursor = partition, cursor
        return frozen

    def _put(
        self,
        batch: "_Batch",
        session_id: str,
        views: SessionViews,
        busy: Callable[[SessionViews], bool],
    ) -> None:
        """Add a session to a batch. If this raises, the batch and the store are unchanged."""
        name = session_id.encode()
        stored = self._stored.get(session_id) or _Stored()
        known, row_bytes = stored.lengths, stored.row_bytes
        old_pages: list[bytes] = []
        if views.rewrites != stored.rewrites:  # earlier rows may have changed
            old_pages = [key for key, _ in self._backend.scan(b"r\0" + name + b"\0")]
            known, row_bytes = views_codec.NO_ROWS, 0
        lengths, is_busy = views_codec.lengths_of(views), _is_busy(views, busy)
        head = views_codec.head_of(views)
        puts = [(b"h\0" + name, head)]
        if views.stream is not stored.stream:
            puts.append((b"c\0" + name, views_codec.stream_of(views)))
        if lengths != known:
            key, page = _page_key(name, sum(known)), views_codec.page_of(views, known)
            puts.append((key, page))
            row_bytes += len(page)
        stored.stream, stored.lengths, stored.rewrites = views.stream, lengths, views.rewrites
        stored.head_bytes, stored.row_bytes = len(head), row_bytes
        self._stored[session_id] = stored
        batch.puts += puts
        batch.deletes += [key for key in old_pages if key != puts[-1][0]]
        if stored.busy is not is_busy:
            stored.busy = is_busy
            if is_busy:
                batch.puts.append((b"b\0" + name, b""))
            else:
                batch.deletes.append(b"b\0" + name)

    def facts(self, count: int, above: int = -1) -> list[FactRow]:
        """The first facts above an offset that must still be sent, at most `count` of them. A
        caller that has deleted all below an offset passes it: until the next compaction, RocksDB
        goes through deleted keys one by one."""
        rows = islice(self._backend.scan(_FACT, start=_fact_key(above + 1)), count)
        return [(int.from_bytes(key[len(_FACT) :], "big"), packed) for key, packed in rows]

    def count_facts(self) -> int:
        """How many facts must still be sent."""
        return sum(1 for _ in self._backend.scan(_FACT))

    def delete_facts(self, offsets: Iterable[int]) -> None:
        """Delete facts that are in `session-facts`."""
        self._backend.write([], map(_fact_key, offsets))

    def forget(self, session_id: str) -> None:
        """Forget what was last stored of a session, because it left the cache."""
        self._stored.pop(session_id, None)

    def busy(self) -> list[str]:
        """The sessions that may have an obligation."""
        return [key[2:].decode() for key, _ in self._backend.scan(b"b\0")]

    def mark_idle(self, session_id: str) -> None:
        """Mark a session as idle, so that it is not checked on the next assignment."""
        if session_id in self._stored:
            self._stored[session_id].busy = False
        self._backend.write([], [b"b\0" + session_id.encode()])

    def sessions(self) -> Iterator[str]:
        """Every session of the partition."""
        return (key[2:].decode() for key, _ in self._backend.scan(b"h\0"))

    def checkpoint(self, directory: Path) -> bool:
        """Make hard links to the store's files in a new directory. The directory is then a store as
        it was after some batch. Any thread may call this, also while the store is written. Returns
        False if the store is closed or not on disk. Raises Corrupt if the store is damaged, and
        OSError if the system refuses the links."""
        backend = self._backend
        return isinstance(backend, RocksBackend) and backend.checkpoint(directory)

    def close(self) -> None:
        """Close the backend."""
        self._backend.close()

    def abandon(self) -> None:
        """Close a damaged store, which will be rebuilt, and ignore errors."""
        with suppress(Corrupt, OSError):
            self._backend.close()


def _page_key(name: bytes, rows: int) -> bytes:
    """The key of the page that begins after so many rows."""
    return b"r\0" + name + b"\0" + rows.to_bytes(PAGE_SUFFIX - 1, "big")


def _fact_key(offset: int) -> bytes:
    return _FACT + offset.to_bytes(8, "big")


def _is_busy(views: SessionViews, busy: Callable[[SessionViews], bool]) -> bool:
    """Whether a session may have an obligation; true if that cannot be determined."""
    try:
        return busy(views)
    except Exception:
        return True


class DictBackend:
    """The in-memory backend: a dict, whose keys are sorted when it is scanned."""

    def __init__(self, data: dict[bytes, bytes] | None = None) -> None:
        self.data = {} if data is None else data

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.data.get, keys))

    def scan(self, *prefixes: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for prefix in prefixes:
            found = (item for item in self.data.items() if item[0].startswith(prefix))
            yield from sorted(item for item in found if item[0] >= start)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self.data.update(puts)
        for key in deletes:
            self.data.pop(key, None)

    def close(self) -> None:
        pass


class Loader(Protocol):
    """Replaces the store in a directory with a snapshot; see snapshot_loader.py."""

    def has(self, least: int) -> bool:
        """Whether there is a snapshot with a cursor of `least` or more."""

    def load(self, least: int, letters_from: int = 0) -> Store | None:
        """Replace the store with the newest usable snapshot with a cursor of `least` or more, and
        return the new store. If there is no such snapshot, change nothing and return None.

        letters_from: every dead letter for records below this offset was written already. The
        caller must have closed the present store.
        """


class _NoSnapshots:
    def has(self, least: int) -> bool:
        return False

    def load(self, least: int, letters_from: int = 0) -> Store | None:
        return None


NO_SNAPSHOTS: Loader = _NoSnapshots()


def open_store(
    directory: Path,
    belongs: Belongs,
    end_offset: int,
    say: Callable[[str], None],
    first_offset: int = 0,
    *,
    loader: Loader = NO_SNAPSHOTS,
    behind_max: int = 0,
) -> Store:
    """The store in a directory. If it is missing, unusable or more than `behind_max` records behind
    a snapshot, a snapshot replaces it; if no snapshot is usable, an empty store does. `say` gets
    the reason for a replacement.

    Raises LogCut if the log no longer has the records to fold. Raises OSError, and keeps the store,
    if another process has it open or the system refuses to open it. An I/O error of the disk is
    damage.
    """
    why, letters_from = "there was none here", 0
    if not directory.is_dir() and (loaded := loader.load(first_offset)) is not None:
        say(_loaded(directory, loaded, why))
        return loaded
    try:
        store = opened_store(directory, end_offset, first_offset)
    except (Corrupt, DiskFailed, msgspec.MsgspecError) as broken:
        why = f"it is damaged ({broken})"
    else:
        had = store.belongs
        mismatch = None if had is None else _mismatch(store, belongs, end_offset)
        if mismatch is None:
            return _newer(store, directory, belongs, say, loader, behind_max)
        why = mismatch
        if had is not None and had[:2] == belongs[:2] and store.cursor.offset <= end_offset:
            letters_from = store.cursor.offset  # another version of the folds, but the same log
        store.close()
    if (loaded := loader.load(first_offset, letters_from)) is not None:
        say(_loaded(directory, loaded, why))
        return loaded
    if first_offset == 0:
        say(f"the store {directory.name} is rebuilt from the log: {why}")
    return new_store(directory, belongs, end_offset, letters_from, first_offset)


def _newer(
    store: Store,
    directory: Path,
    belongs: Belongs,
    say: Callable[[str], None],
    loader: Loader,
    behind_max: int,
) -> Store:
    """The given store, which is usable. A snapshot replaces it if the snapshot is more than
    `behind_max` records ahead, or if the log no longer has the record at the store's cursor. Raises
    LogCut in the second case if there is no usable snapshot."""
    cursor, first, end = store.cursor.offset, store.log_first, store.log_end
    is_cut = cursor < first
    least = first if is_cut else cursor + behind_max + 1
    if loader.has(least):
        store.close()
        if (loaded := loader.load(least, letters_from=cursor)) is not None:
            behind = loaded.cursor.offset - cursor
            say(_loaded(directory, loaded, f"it was {behind} records behind"))
            return loaded
        store = opened_store(directory, end, first)
    if is_cut:
        store.close()
        raise LogCut(directory.name, cursor, first)
    if store.belongs is None:
        store.claim(belongs)
    return store


def _loaded(directory: Path, store: Store, why: str) -> str:
    at = store.cursor.offset
    return f"the store {directory.name} was loaded from the snapshot at offset {at}: {why}"


def opened_store(
    directory: Path, end_offset: int, first_offset: int, *, is_loaded: bool = False
) -> Store:
    """Open the store in a directory, and never replace it. Raises Corrupt, MsgspecError,
    OSError."""
    backend = RocksBackend(directory)
    try:
        return Store(backend, log_end=end_offset, log_first=first_offset, is_loaded=is_loaded)
    except BaseException:
        with suppress(Corrupt, OSError):
            backend.close()
        raise


def new_store(
    directory: Path,
    belongs: Belongs,
    end_offset: int,
    letters_from: int = 0,
    first_offset: int = 0,
) -> Store:
    """An empty store, which replaces the content of the directory.

    letters_from: every dead letter for records below this offset was written already. A duplicate
    dead letter is harmless. Raises LogCut, and keeps the old store, if the log no longer begins at
    0.
    """
    if first_offset > 0:
        raise LogCut(directory.name, 0, first_offset)
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
    crash_points.reach("store.removed")
    store = Store(RocksBackend(directory), letters_from=letters_from, log_end=end_offset)
    store.claim(belongs)
    return store


def _mismatch(store: Store, belongs: Belongs, end_offset: int) -> str | None:
    assert store.belongs is not None
    for name, had, has in zip(Belongs._fields, store.belongs, belongs, strict=True):
        if had != has:
            return f"its {name} is {had}, the log's is {has}"
    if store.cursor.offset > end_offset:
        return f"its cursor {store.cursor.offset} is beyond the log's end {end_offset}"
    return None


def open_readonly(directory: Path) -> Store:
    """Open a store for reading, also one in which a worker writes. Raises Corrupt if it is damaged,
    and OSError if its files change all the time.

    RocksDB reads the list of files, then opens them and the logs of what is in no file yet. If a
    compaction or a flush deletes some of them in between, files are missing, or, without an error,
    everything that was in a deleted log. Then the list has changed, and the next try reads it
    again.
    """
    for _ in range(OPENS_MAX):
        before = _list_of_files(directory)
        try:
            store = Store(RocksBackend(directory, read_only=True))
        except Corrupt:
            if _list_of_files(directory) == before:
                raise
            continue
        if _list_of_files(directory) == before:
            return store
        store.close()
    raise OSError(errno.EAGAIN, "the files of the store change too fast to be read", str(directory))


def _list_of_files(directory: Path) -> set[tuple[str, int]]:
    """The name and the size of RocksDB's lists of files, which only grow."""
    found = set()
    for path in directory.glob("MANIFEST-*"):
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_size))
    return found


def as_json(belongs: Belongs) -> str:
    """The log and the version of the folds of a store as JSON, for people."""
    return json.dumps(belongs._asdict())
