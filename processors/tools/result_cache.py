"""Caches results of pure tools: a repeated call does not run again within its TTL.

The cache is a SQLite file in the worker's state directory, bounded in entries and bytes. If it is
lost or damaged, tools simply run. No session's state depends on the cache: if it answers a call,
the TOOL_RESULT is an event like any other, marked as cached.

The key of a result covers everything on which a pure tool may depend: the user and the project (no
user gets the result of another user's call), the agent, the tool with its schema, the arguments as
canonical JSON, the working directory and how results are cut. The code of the tool is not part of
the key: a changed tool may return old results for one TTL.

The age of an entry is measured by the wall clock, because a monotonic clock does not survive a
restart of the machine. If the clock is set back, an entry has a negative age, which counts as
expired; if it is set forward, the entry expires early. In both cases the tool runs.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from ...schemas.canonical import compact_ascii_sorted
from ...schemas.events.parts import BlobRef, Body
from ..sqlite_errors import is_damage
from .results import Shaped

ENTRIES_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024  # of results kept inline: each is 64 KiB at most, most are far smaller
PRUNE_EVERY = 200  # writes between two prunings; so many entries may exceed the bounds
BUSY_MS = 1_000  # how long a write waits for another process that uses the file
LAYOUT = 2  # the version of the file's layout; a file with another version is emptied
_TABLE = """
CREATE TABLE IF NOT EXISTS results (
    key BLOB PRIMARY KEY, at INTEGER NOT NULL, until INTEGER NOT NULL,
    inline BLOB, ref TEXT, bytes INTEGER NOT NULL, tokens INTEGER NOT NULL,
    left_out INTEGER NOT NULL, checksum INTEGER NOT NULL
)
"""


class CachedResult(NamedTuple):
    """A cached result. at: when the run that produced it began, Unix ms."""

    shaped: Shaped
    at: int


def wall_ms() -> int:
    """The wall clock in Unix ms."""
    return time.time_ns() // 1_000_000


def key_of(scope: tuple[str | int | None, ...], args: bytes) -> bytes:
    """The cache key for the result of a call. `scope`: everything on which the result depends
    except the arguments `args` (raw JSON)."""
    canonical = json.loads(args)
    whole = compact_ascii_sorted([scope, canonical])
    return sha256(whole.encode()).digest()


def _checksum(*values: object) -> int:
    """The checksum of a row. It detects damaged rows, because SQLite has no checksums of its own
    and a model trusts a cached result."""
    return crc32(repr(values).encode("utf-8", "backslashreplace"))


class ResultCache:
    """The cache of one worker. It is safe to use from several threads, and never raises."""

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None],
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.path, self._say, self._now_ms = path, say, now_ms
        self._lock = threading.Lock()
        self._writes = 0
        self._db: sqlite3.Connection | None = None
        self._is_reported = False  # that a statement failed, without damage to the file
        try:
            self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            is_damaged = isinstance(error, sqlite3.Error) and is_damage(error)
            self._lost(error, "emptied" if is_damaged else "opened again")
            try:
                for suffix in ("", "-wal", "-shm") if is_damaged else ():
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
                self._db = self._open()
            except (sqlite3.Error, OSError) as second:
                self._lost(second, "not used until the next start")

    def find(self, key: bytes, ttl_ms: int) -> CachedResult | None:
        """The result for a key if it is not older than the TTL, else None."""
        row = self._do(
            "SELECT at, inline, ref, bytes, tokens, left_out, checksum FROM results WHERE key = ?",
            (key,),
        )
        if not row or not 0 <= self._now_ms() - row[0][0] < ttl_ms:
            return None
        at, inline, ref, size, tokens, left_out, checksum = row[0]
        if checksum != _checksum(key, *row[0][:-1]):
            return None  # a damaged row: its tool runs
        try:
            body = Body(inline=inline, ref=BlobRef(**json.loads(ref)) if ref else None)
        except (TypeError, ValueError):  # written by another version
            return None
        return CachedResult(Shaped(body, size, tokens, left_out), at)

    def keep(self, key: bytes, shaped: Shaped, at: int, ttl_ms: int) -> None:
        """Cache a result for its TTL, replacing an older result. `at`: when the run began."""
        body = shaped.content
        ref = json.dumps(asdict(body.ref)) if body.ref is not None else None
        checksum = _checksum(key, at, body.inline, ref, *shaped[1:])
        values = (key, at, at + ttl_ms, body.inline, ref, *shaped[1:], checksum)
        self._do("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        with self._lock:
            self._writes += 1
            due = self._writes % PRUNE_EVERY == 0
        if due:
            self.prune()

    def prune(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Delete expired results, then the oldest results until both bounds hold."""
        now = self._now_ms()
        self._do("DELETE FROM results WHERE until <= ? OR at > ?", (now, now))
        self._do(
            "DELETE FROM results WHERE key IN (SELECT key FROM (SELECT key,"
            " row_number() OVER newest AS place, sum(length(inline)) OVER newest AS size"
            " FROM results WINDOW newest AS (ORDER BY at DESC, key)"
            ") WHERE place > ? OR size > ?)",
            (entries_max, bytes_max),
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_MS / 1000, check_same_thread=False,
                             isolation_level=None)
        try:
            self.path.chmod(0o600)  # results may contain any user's data
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")  # kill -9 loses nothing, a power loss little
            (layout,) = db.execute("PRAGMA user_version").fetchone()
            if layout not in (0, LAYOUT):
                db.execute("DROP TABLE IF EXISTS results")
            db.execute(_TABLE)
            db.execute(f"PRAGMA user_version = {LAYOUT}")
        except BaseException:
            db.close()
            raise
        return db

    def _do(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Run a statement. An error of the system, such as a full disk, skips the cache once. If
        the file is damaged, it is no longer used."""
        with self._lock:
            if self._db is None:
                return []
            try:
                found = self._db.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                self._failed(error)
                return []
            self._is_reported = False
            return found

    def _failed(self, error: sqlite3.Error) -> None:
        assert self._db is not None
        if is_damage(error):
            self._db.close()
            self._db = None
            self._lost(error, "not used until the next start")
        elif not self._is_reported and "locked" not in str(error):  # not: by another process
            self._is_reported = True
            self._lost(error, "skipped until it can be used again")

    def _lost(self, error: Exception, what: str) -> None:
        self._say(f"the cache of tool results {self.path} cannot be used ({error}): {what}. "
                  "Tools run instead.")
