"""The file of the transcript index, a cache: one SQLite database in the home directory.

The file has one document per message or result, the words of each document, and the views of every
session at the cursor, so the next run folds only new events. All of this changes in one
transaction. The file belongs to one topic of one cluster and one version of the folds. If it does
not match or is damaged, it is rebuilt and the rebuild is reported.
"""

import fcntl
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...log.errors import FoldlogError
from ...processors.search.full_text import FullText
from ...processors.store.store import Store

BUSY_S = 30.0  # another process needs far less than a second to write a batch
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
    """The file cannot be used. It is a cache: delete it, and the next search rebuilds it."""


class Document(NamedTuple):
    """One message, answer or result.

    `at`: Unix ms.
    `who`: user id, agent or tool name.
    """

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
    """The backend of one partition's Store: keeps its data in the table `views`.

    The caller begins and commits the transaction.
    """

    def __init__(self, connection: sqlite3.Connection, partition: int) -> None:
        self._connection, self._partition = connection, partition

    def get(self, key: bytes) -> bytes | None:
        row = self._connection.execute(
            "SELECT value FROM views WHERE partition = ? AND key = ?", (self._partition, key)
        ).fetchone()
        return None if row is None else row[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.get, keys))

    def scan(self, *prefixes: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for prefix in prefixes:
            after = prefix[:-1] + bytes([prefix[-1] + 1])  # every prefix ends in a letter or 0
            rows = self._connection.execute(
                "SELECT key, value FROM views WHERE partition = ? AND key >= ? AND key < ?"
                " ORDER BY key",
                (self._partition, max(prefix, start), after),
            )
            yield from rows.fetchall()

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
        """Does nothing: the caller closes the file."""


class IndexFile:
    """The open file. `belongs`: the log and the version that the index must have been built from.
    If the file was built from another log or version, it is rebuilt.

    `report` prints the reason for a rebuild. Raises IndexUnusable if the directory or the file
    cannot be written.
    """

    def __init__(self, path: Path, belongs: dict[str, str], report: Callable[[str], None]) -> None:
        self.path, self._belongs, self._report = path, belongs, report
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it contains messages
            with self.locked():
                self._open()
        except (OSError, sqlite3.OperationalError) as error:
            raise self._unusable(error) from error

    def _open(self) -> None:
        try:
            self._connect()
        except sqlite3.OperationalError:
            raise  # locked, full or not writable: deleting the file would not help
        except sqlite3.DatabaseError as error:
            self._report(f"search: {self.path} is damaged ({error})")
            self.rebuild()
        stored = dict(self.connection.execute("SELECT what, value FROM belongs"))
        differs = [what for what in self._belongs if stored.get(what) != self._belongs[what]]
        if stored and differs:
            self._report(f"search: the index is of another log or version ({', '.join(differs)})")
            self.rebuild()

    def _connect(self) -> None:
        self.path.touch()
        self.path.chmod(0o600)  # before SQLite creates more files with the same permissions
        self.connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            # Readers and a writer do not block each other. A power loss may lose the last batch,
            # which is harmless for a cache, but does not damage the file.
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = NORMAL")
            with self.transaction():
                for statement in _TABLES:
                    self.connection.execute(statement)
                self.words = FullText(self.connection, "words")
        except BaseException:
            self.connection.close()
            raise

    def rebuild(self) -> None:
        """Delete everything and start with an empty file."""
        self._report("search: rebuilding the index from the log")
        self.connection.close()
        for suffix in SUFFIXES:
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self._connect()

    def claim(self) -> None:
        """Record from which log and version the file is built. Called in the transaction of the
        first batch.
        """
        self.connection.executemany(
            "INSERT OR REPLACE INTO belongs VALUES (?, ?)", self._belongs.items()
        )

    def store(self, partition: int) -> Store:
        """The views of a partition's sessions, and its cursor."""
        return Store(SqliteBackend(self.connection, partition))

    def add(self, documents: list[Document]) -> None:
        """Add documents to the index."""
        marks = ",".join("?" * len(Document._fields))
        for document in documents:
            rowid = self.connection.execute(
                f"INSERT INTO documents ({','.join(Document._fields)}) VALUES ({marks})", document
            ).lastrowid
            assert rowid is not None
            self.words.put([(rowid, document.text)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block's changes, or roll all of them back on any exception."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the index, because only one process may update it at a time.

        If another process has the lock, reports this and waits.
        """
        with open(f"{self.path}.lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._report("search: waiting for another search, which is updating the index")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def errors_as_unusable(self) -> Iterator[None]:
        """Turn errors of SQLite or the disk into IndexUnusable."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> IndexUnusable:
        return IndexUnusable(
            f"the search index {self.path} cannot be used: {error}. The log was not touched, and "
            "the index is as before. Free disk space or correct the permissions; if that does not "
            "help, delete the file: the next search rebuilds it."
        )

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
