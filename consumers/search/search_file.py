"""The file of the transcript index: one SQLite database below the home directory, a cache.

Holds one document per thing said, the words of each, and the views of every session at the cursor,
so that the next run folds only what is new. All of it changes in one transaction. It belongs to one
topic of one cluster and to one version of the folds; where it does not, or is damaged, it is made
anew, and that is said. This file must not know what becomes a document.
"""

import fcntl
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...log.errors import FoldlogError
from ...processors.search.full_text import FullText
from ...processors.store.store import Store

BUSY_S = 30.0  # another process writes a batch in well under a second
SUFFIXES = ("", "-wal", "-shm")

_TABLES = (
    "CREATE TABLE IF NOT EXISTS belongs (what TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS documents (rowid INTEGER PRIMARY KEY, session_id TEXT NOT NULL,"
    " user_id TEXT NOT NULL, partition INTEGER NOT NULL, at_offset INTEGER NOT NULL,"
    " at INTEGER NOT NULL, turn INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL,"
    " who TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS of_session ON documents (session_id)",
    "CREATE INDEX IF NOT EXISTS of_user ON documents (user_id)",
    "CREATE TABLE IF NOT EXISTS views (partition INTEGER, key BLOB, value BLOB NOT NULL,"
    " PRIMARY KEY (partition, key))",
)


class IndexUnusable(FoldlogError):
    """The file can not be used. It is a cache: delete it, and the next search makes it anew."""


class Document(NamedTuple):
    """One thing said. `at`: Unix ms; `who`: user id, agent or tool name."""

    session_id: str
    user_id: str
    partition: int
    at_offset: int
    at: int
    turn: int
    step: int
    kind: str
    who: str
    text: str


class SqliteBackend:
    """What a Store of one partition keeps, in the table `views`, in the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection, partition: int) -> None:
        self._connection, self._partition = connection, partition

    def get(self, key: bytes) -> bytes | None:
        row = self._connection.execute(
            "SELECT value FROM views WHERE partition = ? AND key = ?", (self._partition, key)
        ).fetchone()
        return None if row is None else row[0]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        after = prefix[:-1] + bytes([prefix[-1] + 1])  # prefixes end in a letter or in 0
        rows = self._connection.execute(
            "SELECT key, value FROM views WHERE partition = ? AND key >= ? AND key < ?"
            " ORDER BY key",
            (self._partition, prefix, after),
        )
        return iter(rows.fetchall())

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO views VALUES (?, ?, ?)",
            ((self._partition, key, value) for key, value in puts),
        )
        self._connection.executemany(
            "DELETE FROM views WHERE partition = ? AND key = ?",
            ((self._partition, key) for key in deletes),
        )

    def close(self) -> None:
        """Nothing: the file is closed by who opened it."""


class IndexFile:
    """The open file. `belongs`: what it must be made from; another file is made anew.

    `say` is told why. Raises IndexUnusable where the directory or the file can not be written.
    """

    def __init__(self, path: Path, belongs: dict[str, str], say: Callable[[str], None]) -> None:
        self.path, self._belongs, self._say = path, belongs, say
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds what people said
            with self.alone():
                self._open()
        except (OSError, sqlite3.OperationalError) as error:
            raise self._unusable(error) from error

    def _open(self) -> None:
        try:
            self._connect()
        except sqlite3.OperationalError:
            raise  # locked, full, not writable: deleting it would help nothing
        except sqlite3.DatabaseError as error:
            self._say(f"search: {self.path} is damaged ({error})")
            self.make_anew()
        held = dict(self.connection.execute("SELECT what, value FROM belongs"))
        differs = [what for what in self._belongs if held.get(what) != self._belongs[what]]
        if held and differs:
            self._say(f"search: the index is not of this log or version ({', '.join(differs)})")
            self.make_anew()

    def _connect(self) -> None:
        self.path.touch()
        self.path.chmod(0o600)  # before SQLite makes files beside it, with the same rights
        self.connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            # Readers and a writer do not wait for one another; losing the last batch of a cache
            # in a power loss is harmless, a damaged file is not.
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = NORMAL")
            with self.transaction():
                for statement in _TABLES:
                    self.connection.execute(statement)
                self.words = FullText(self.connection, "words")
        except BaseException:
            self.connection.close()
            raise

    def make_anew(self) -> None:
        """Throw everything away and begin with an empty file."""
        self._say("search: it is made anew from the log")
        self.connection.close()
        for suffix in SUFFIXES:
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self._connect()

    def claim(self) -> None:
        """Note what the file is made from, with its first batch."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO belongs VALUES (?, ?)", self._belongs.items()
        )

    def store(self, partition: int) -> Store:
        """The views of the sessions of a partition, and its cursor."""
        return Store(SqliteBackend(self.connection, partition))

    def add(self, documents: list[Document]) -> None:
        """Put documents into the index."""
        marks = ",".join("?" * len(Document._fields))
        for document in documents:
            rowid = self.connection.execute(
                f"INSERT INTO documents ({','.join(Document._fields)}) VALUES ({marks})", document
            ).lastrowid
            assert rowid is not None
            self.words.put([(rowid, document.text)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, whatever ends it."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process brings the index up to date; a second one waits, and says so."""
        with open(f"{self.path}.lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("search: another search brings the index up to date, waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def told(self) -> Iterator[None]:
        """What SQLite or the disk says becomes an IndexUnusable."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> IndexUnusable:
        return IndexUnusable(
            f"the search index {self.path} can not be used: {error}. The log is not touched, and "
            "what was indexed before stays. Free space or rights; if that is not it, delete the "
            "file: the next search makes it anew."
        )

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
