"""The formats of `foldlog export` as a table, and the function that writes each.

Every format reads the log up to its current end, and nothing else.
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
    """A request for an export: the sessions (none named: all), and the target path."""

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
    """A format: whether it exports exactly one session, its description, its writer."""

    name: str
    one: bool
    says: str
    write: Callable[[Export], Counts]


def _jsonl(order: Export) -> Counts:
    names = [f"{table.name}.jsonl" for table in TABLES]
    with new_directory(order.path, names, force=order.force) as directory:
        _, counts = write_tables(
            order.log, order.wanted, directory, order.contents, order.prices,
            progress=order.progress,
        )
    return counts


def _parquet(order: Export) -> Counts:
    names = [table.name for table in TABLES]
    files = [f"{name}.parquet" for name in names]
    with new_directory(order.path, files, force=order.force) as directory:
        lines = directory.with_name("lines")
        lines.mkdir()
        _, counts = write_tables(
            order.log, order.wanted, lines, order.contents, order.prices, progress=order.progress
        )
        write_parquet(lines, directory, names)
    return counts


def _rubyllm(order: Export) -> Counts:
    with new_file(order.path, force=order.force) as path:
        return write_sqlite(
            path, order.log, order.wanted, order.contents,
            partial(rubyllm.fill, contents=order.contents, prices=order.prices), order.progress,
        )


def _vercel(order: Export) -> Counts:
    with new_file(order.path, force=order.force) as path:
        return write_sqlite(
            path, order.log, order.wanted, order.contents,
            partial(vercel.fill, contents=order.contents), order.progress,
        )


def _bundle(order: Export) -> Counts:
    with new_file(order.path, force=order.force) as path:
        manifest = export_bundle(path, order.log, order.sessions[0], order.contents, order.progress)
    blobs = sum(blob.held for blob in manifest.blobs)
    return {"records": manifest.records, "blobs": blobs, "requests": len(manifest.requests)}


def _audit(order: Export) -> Counts:
    with new_file(order.path, force=order.force) as path:
        read = read_log(order.log, order.sessions, order.contents, None, order.progress)
        facts = read.sessions[order.sessions[0]]
        page = audit_page(facts, order.contents, order.prices)
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


def export(name: str, order: Export) -> Counts:
    """Write an export and return its row or record counts. Raises CanNotWrite, UnknownSession."""
    return FORMATS[name].write(order)


def fits(name: str, sessions: Sequence[str]) -> bool:
    """Whether a format can export these sessions."""
    return not FORMATS[name].one or len(sessions) == 1


__all__ = ["FORMATS", "Export", "export", "file_sha256", "fits"]
