"""export: sessions as files that other tools read, or that replay elsewhere.

This file owns what is said about an export. It must not know a format: `consumers/exports` does.
"""

import time
from pathlib import Path

import click

from ..consumers.exports.blocks import Contents
from ..consumers.exports.formats import FORMATS, Export, export, file_sha256, fits
from .edge import Edge, example, json_option, pass_edge
from .printing import emit, line, note
from .replay_bundle import bundle_option

REPORT_S = 2.0  # seconds between two lines of progress
MISSING_SHOWN = 5


class Reporter:
    """Says how far reading has come, where it takes a while."""

    def __init__(self, command: str) -> None:
        self._command, self._told_at = command, time.monotonic()

    def __call__(self, read: int, there: int) -> None:
        now = time.monotonic()
        if now - self._told_at >= REPORT_S:
            self._told_at = now
            note(f"{self._command}: {read:,} of {there:,} records read")


@click.command("export", epilog=example(
    "foldlog export --format parquet -o tables", "foldlog export s1 --format bundle -o s1.foldlog",
    "foldlog export s1 s2 --format rubyllm -o chats.sqlite",
))
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), required=True,
              help="; ".join(f"{row.name}: {row.says}" for row in FORMATS.values()) + ".")
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True,
              metavar="PATH", help="Where to; a directory for jsonl and parquet.")
@click.option("--force", is_flag=True, help="Replace an export that is there.")
@bundle_option
@json_option
@pass_edge
def export_command(
    edge: Edge, sessions: tuple[str, ...], name: str, path: Path, force: bool, as_json: bool
) -> None:
    """Write sessions to files for other tools.

    Without SESSION: all of them. What is exported is the log as of now; the same log gives the same
    bytes. It is written beside its place and renamed, so a run that is stopped leaves nothing half.
    Content whose blob is missing is exported as a reference, and said on stderr.
    """
    named = tuple(dict.fromkeys(sessions))
    if not fits(name, named):
        raise click.UsageError(f"--format {name} is of one SESSION, and {len(named)} were named.")
    contents = Contents(edge.client().read_blob)
    progress = Reporter("export")
    counts = export(
        name, Export(edge.log, named, contents, edge.prices, path, force, progress)
    )
    digest = file_sha256(path) if path.is_file() else None
    if as_json:
        missing = sorted(contents.missing)
        emit({"path": str(path), "format": name, "rows": counts, "sha256": digest,
              "missing": missing})
    else:
        line(f"{path}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
        if digest is not None:
            line(f"sha256 {digest}")
    say_missing(contents)


def say_missing(contents: Contents) -> None:
    """Which blobs could not be had."""
    if not contents.missing:
        return
    named = sorted(contents.missing)
    more = f" and {len(named) - MISSING_SHOWN} more" if len(named) > MISSING_SHOWN else ""
    note(
        f"{len(named)} blob{'s are' * (len(named) > 1) or ' is'} missing or damaged: "
        f"{', '.join(named[:MISSING_SHOWN])}{more}. Only their references were exported. Point "
        "FOLDLOG_BLOBS at the store that the writers used, then export again."
    )
