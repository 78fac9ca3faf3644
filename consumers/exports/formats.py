"""The formats of `foldlog export`, as data, and how each is written.

Every format reads the log by itself, up to its end as of now, and nothing else. This file must not
know how anything is said to the user.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...log.door import Log
from ...processors.advice.prices import PriceTable
from . import rubyllm, vercel
from .audit import audit_page
from .blocks import Contents
from .bundle import export_bundle
from .bundle_file import file_sha256
from .duck import write_parquet
from .files import new_directory, new_file
from .reading import Progress, read_log
from .sqlite_file import write_sqlite
from .table_files import write_tables
from .tables import TABLES


class Export(NamedTuple):
    """What is to be exported: the sessions (none named: all), and where to."""

    log: Log
    sessions: tuple[str, ...]
    contents: Contents
    prices: PriceTable
    path: Path
    force: bool
    progress: Progress

    @property
    def wanted(self) -> Collection[str] | None:
        """As `read_log` has it."""
        return self.sessions or None


Counts = dict[str, int]


class Format(NamedTuple):
    """A format: whether it is of one session only, what it is, and how it is written."""

    name: str
    one: bool
    says: str
    write: Callable[[Export], Counts]


def _jsonl(asked: Export) -> Counts:
    names = [f"{table.name}.jsonl" for table in TABLES]
    with new_directory(asked.path, names, force=asked.force) as directory:
        _, counts = write_tables(
            asked.log, asked.wanted, directory, asked.contents, asked.prices,
            progress=asked.progress,
        )
    return counts


def _parquet(asked: Export) -> Counts:
    names = [table.name for table in TABLES]
    files = [f"{name}.parquet" for name in names]
    with new_directory(asked.path, files, force=asked.force) as directory:
        lines = directory.with_name("lines")
        lines.mkdir()
        _, counts = write_tables(
            asked.log, asked.wanted, lines, asked.contents, asked.prices, progress=asked.progress
        )
        write_parquet(lines, directory, names)
    return counts


def _rubyllm(asked: Export) -> Counts:
    with new_file(asked.path, force=asked.force) as path:
        return write_sqlite(
            path, asked.log, asked.wanted, asked.contents,
            partial(rubyllm.fill, contents=asked.contents, prices=asked.prices), asked.progress,
        )


def _vercel(asked: Export) -> Counts:
    with new_file(asked.path, force=asked.force) as path:
        return write_sqlite(
            path, asked.log, asked.wanted, asked.contents,
            partial(vercel.fill, contents=asked.contents), asked.progress,
        )


def _bundle(asked: Export) -> Counts:
    with new_file(asked.path, force=asked.force) as path:
        made = export_bundle(path, asked.log, asked.sessions[0], asked.contents, asked.progress)
    held = sum(blob.held for blob in made.blobs)
    return {"records": made.records, "blobs": held, "requests": len(made.requests)}


def _audit(asked: Export) -> Counts:
    with new_file(asked.path, force=asked.force) as path:
        read = read_log(asked.log, asked.sessions, asked.contents, None, asked.progress)
        facts = read.sessions[asked.sessions[0]]
        page = audit_page(facts, asked.contents, asked.prices)
        path.write_bytes(page.encode("utf-8", "replace"))
    return {"events": sum(facts.rulings.values())}


FORMATS = {
    row.name: row
    for row in (
        Format("jsonl", False, "a directory of JSON lines, a file per table", _jsonl),
        Format("parquet", False, "a directory of Parquet files, one per table", _parquet),
        Format("rubyllm", False, "SQLite: chats, messages, tool_calls, models", _rubyllm),
        Format("vercel", False, "SQLite: chats, messages, parts", _vercel),
        Format("bundle", True, "one session with its blobs; replays offline", _bundle),
        Format("audit", True, "one session as an HTML report for people", _audit),
    )
}


def export(name: str, asked: Export) -> Counts:
    """Write an export; how many rows or records it has. Raises CanNotWrite, UnknownSession."""
    return FORMATS[name].write(asked)


def fits(name: str, sessions: Sequence[str]) -> bool:
    """Whether a format can hold so many sessions."""
    return not FORMATS[name].one or len(sessions) == 1


__all__ = ["FORMATS", "Export", "export", "file_sha256", "fits"]
