"""Writes sessions to SQLite files, with a framework's tables and a table of every record.

The table of records contains what does not fit the framework's tables. The caller supplies the
framework's schema and rows.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ...log.door import Log
from ...processors.fold.ruling import Ruling
from ...schemas.codec import Entry
from .blocks import Contents, clean, json_bytes
from .reading import Progress, Read, read_log
from .rows import event_row

EVENT_COLUMNS = tuple(
    "session_id partition at_offset logged_at type writer verdict code fields".split()
)


def schema(name: str) -> str:
    """The CREATE statements in the package's file NAME.sql."""
    return resources.files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def json_text(value: Any) -> str:
    """A value as compact JSON."""
    return json_bytes(value).decode()


class Tables:
    """An open SQLite file, to which rows are added."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.counts: dict[str, int] = {}

    def add(self, table: str, row: Mapping[str, Any]) -> int:
        """Add a row and return its rowid."""
        values = tuple(row.values())
        try:
            cursor = self._connection.execute(_insert(table, tuple(row)), values)
        except UnicodeEncodeError:
            cursor = self._connection.execute(_insert(table, tuple(row)), clean(values))
        self.counts[table] = self.counts.get(table, 0) + 1
        return cursor.lastrowid or 0

    def create(self, sql: str) -> None:
        """Run CREATE statements, in the same transaction as the rows."""
        for statement in sql.split(";\n"):
            self._connection.execute(statement)

    def change(self, sql: str, values: tuple[Any, ...]) -> None:
        """Change rows that were added."""
        self._connection.execute(sql, values)

    def event(self, entry: Entry, ruling: Ruling) -> None:
        """Add a record of the log."""
        row = event_row(entry, ruling.verdict, ruling.code)
        row["fields"] = json_text(row["fields"])
        self.add("foldlog_events", {name: row[name] for name in EVENT_COLUMNS})


@cache
def _insert(table: str, columns: tuple[str, ...]) -> str:
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"


def write_sqlite(
    path: Path,
    log: Log,
    sessions: Collection[str] | None,
    contents: Contents,
    fill: Callable[[Read, Tables], None],
    progress: Progress,
) -> dict[str, int]:
    """Write the file. `fill(read, tables)` creates a framework's tables and fills them.

    Returns the row count of each table. Constraints are enforced as rows are added, and checked
    again at the end.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(schema("common"))
        connection.execute("BEGIN")
        tables = Tables(connection)
        read = read_log(log, sessions, contents, tables.event, progress, chunks=True)
        fill(read, tables)
        connection.execute("COMMIT")
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        assert not broken, f"rows with broken references: {broken[:3]}"
        return tables.counts
