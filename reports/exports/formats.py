"""The formats of `foldlog export` as a table, with the function that writes each format.

Every format reads the log up to its present end, and nothing else.
"""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...log.door import Log
from ...processors.advice.prices import PriceTable
from . import rubyllm, vercel
from .audit import audit_page
from .blocks import Contents
from .bundle import export_bundle
from .files import new_directory, new_file
from .reading import Progress, Read, read_log
from .sqlite_file import Tables, write_sqlite
from .table_files import write_tables
from .tables import TABLES


class Export(NamedTuple):
    """A request for an export: the sessions (empty for all), and the target path."""

    log: Log
    sessions: tuple[str, ...]
    contents: Contents
    prices: PriceTable
    path: Path
    force: bool
    progress: Progress

    @property
    def wanted(self) -> Collection[str] | None:
        """The sessions as `read_log` expects them."""
        return self.sessions or None


Counts = dict[str, int]


class Format(NamedTuple):
    """A format: whether it exports exactly one session, its description, its writer, and the extras
    of the package that it needs.

    `write` returns the counts of rows or records. Raises CanNotWrite, UnknownSession.
    """

    name: str
    one: bool
    description: str
    write: Callable[[Export], Counts]
    extras: tuple[str, ...] = ()


def _jsonl(job: Export) -> Counts:
    names = [f"{table.name}.jsonl" for table in TABLES]
    with new_directory(job.path, names, force=job.force) as directory:
        _, counts = write_tables(
            job.log, job.wanted, directory, job.contents, job.prices,
            progress=job.progress,
        )
    return counts


def _parquet(job: Export) -> Counts:
    from .duck import write_parquet

    names = [table.name for table in TABLES]
    files = [f"{name}.parquet" for name in names]
    with new_directory(job.path, files, force=job.force) as directory:
        lines = directory.with_name("lines")
        lines.mkdir()
        _, counts = write_tables(
            job.log, job.wanted, lines, job.contents, job.prices, progress=job.progress
        )
        write_parquet(lines, directory, names)
    return counts


def _rubyllm(job: Export) -> Counts:
    return _sqlite(job, partial(rubyllm.fill, contents=job.contents, prices=job.prices))


def _vercel(job: Export) -> Counts:
    return _sqlite(job, partial(vercel.fill, contents=job.contents))


def _sqlite(job: Export, fill: Callable[[Read, Tables], None]) -> Counts:
    with new_file(job.path, force=job.force) as path:
        return write_sqlite(path, job.log, job.wanted, job.contents, fill, job.progress)


def _bundle(job: Export) -> Counts:
    with new_file(job.path, force=job.force) as path:
        manifest = export_bundle(path, job.log, job.sessions[0], job.contents, job.progress)
    blobs = sum(blob.held for blob in manifest.blobs)
    return {"records": manifest.records, "blobs": blobs, "requests": len(manifest.requests)}


def _audit(job: Export) -> Counts:
    with new_file(job.path, force=job.force) as path:
        read = read_log(job.log, job.sessions, job.contents, None, job.progress)
        facts = read.sessions[job.sessions[0]]
        page = audit_page(facts, job.contents, job.prices)
        path.write_bytes(page.encode("utf-8", "replace"))
    return {"events": sum(facts.rulings.values())}


FORMATS = {
    row.name: row
    for row in (
        Format("jsonl", False, "a directory of JSON lines, a file per table", _jsonl),
        Format("parquet", False, "a directory of Parquet files, one per table", _parquet,
               ("sql",)),
        Format("rubyllm", False, "SQLite: chats, messages, tool_calls, models", _rubyllm),
        Format("vercel", False, "SQLite: chats, messages, parts", _vercel),
        Format("bundle", True, "one session with its blobs; replays offline", _bundle),
        Format("audit", True, "one session as an HTML report for people", _audit),
    )
}
