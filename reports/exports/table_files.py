"""Writes the tables as files of JSON lines, for export and as the input of SQL and Parquet.

The bytes depend only on the log: events are ordered by partition and offset, sessions by id, and
the columns of a row have a fixed order.
"""

from collections.abc import Collection
from pathlib import Path
from shutil import copyfileobj
from typing import IO

from ...log.door import Log
from ...processors.advice.prices import PriceTable
from ...processors.fold.ruling import Ruling
from ...schemas.codec import ChunkSeen, Entry
from .blocks import Contents, json_bytes
from .reading import Progress, Read, read_log
from .rows import Row, event_row, session_rows
from .tables import BY_NAME, EVENTS


def write_tables(
    log: Log,
    sessions: Collection[str] | None,
    directory: Path,
    contents: Contents,
    prices: PriceTable,
    tables: Collection[str] = tuple(BY_NAME),
    progress: Progress = lambda _read, _there: None,
) -> tuple[Read, dict[str, int]]:
    """Write NAME.jsonl for each of these tables. Returns the facts of the sessions that were read,
    and the row count of each table.
    """
    files = _Files(directory, tables)
    try:
        wants_events = EVENTS.name in tables
        see = files.event if wants_events else None
        read = read_log(log, sessions, contents, see, progress, chunks=wants_events)
        if set(tables) - {EVENTS.name}:
            for facts in read.sessions.values():
                session_rows(facts, contents, prices, files.put)
        return read, files.close()
    finally:
        files.close()


class _Files:
    """The open files, one per table.

    Events have one file per partition; these are joined at the end.
    """

    def __init__(self, directory: Path, tables: Collection[str]) -> None:
        self._directory, self._counts = directory, dict.fromkeys(tables, 0)
        self._open = {name: self._file(name) for name in tables}
        self._events: dict[int, IO[bytes]] = {}

    def _file(self, name: str) -> IO[bytes]:
        return open(self._directory / f"{name}.jsonl", "wb", buffering=1 << 20)

    def put(self, table: str, row: Row) -> None:
        """Write a row, unless its table was not requested."""
        if table in self._open:
            self._counts[table] += 1
            self._open[table].write(json_bytes(row) + b"\n")

    def event(self, entry: Entry, ruling: Ruling) -> None:
        """Write a row of `events`."""
        assert type(entry.event) is not ChunkSeen, "chunks must be decoded"
        file = self._events.get(entry.partition)
        if file is None:
            file = self._events[entry.partition] = self._file(f"events.{entry.partition}")
        self._counts[EVENTS.name] += 1
        file.write(json_bytes(event_row(entry, ruling.verdict, ruling.code)) + b"\n")

    def close(self) -> dict[str, int]:
        """Join the events and close all files. Returns the row count of each table."""
        for _, part in sorted(self._events.items()):
            part.close()
            path = Path(part.name)
            with open(path, "rb") as source:
                copyfileobj(source, self._open[EVENTS.name])
            path.unlink()
        self._events.clear()
        for file in self._open.values():
            file.close()
        return self._counts
