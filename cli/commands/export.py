"""export: writes sessions to files, for other tools or for a replay on another machine.

The formats are in `reports/exports`; this file prints the result.
"""

from pathlib import Path

import click

from ...log.bundle_file import file_sha256
from ...reports.exports.blocks import Contents
from ...reports.exports.formats import FORMATS, Export
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line, note
from ..terminal.progress import Bar
from .replay_bundle import bundle_option

MISSING_SHOWN = 5


@click.command("export", epilog=example(
    "foldlog export --format parquet -o tables", "foldlog export s1 --format bundle -o s1.foldlog",
    "foldlog export s1 s2 --format rubyllm -o chats.sqlite",
))
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--format", "name", type=click.Choice(list(FORMATS)), required=True,
              help="; ".join(f"{row.name}: {row.description}" for row in FORMATS.values()) + ".")
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True,
              metavar="PATH", help="The file to write; a directory for jsonl and parquet.")
@click.option("--force", is_flag=True, help="Replace an existing export.")
@bundle_option
@json_option
@pass_edge
def export_command(
    edge: Edge, sessions: tuple[str, ...], name: str, path: Path, force: bool, as_json: bool
) -> None:
    """Write sessions to files for other tools.

    Without SESSION all sessions are exported, as of now; the same log gives the same bytes. The
    export is written to a temporary path and renamed, so an interrupted run leaves no partial
    result. Content whose blob is missing is exported as a reference, with a note on stderr.
    """
    session_ids = tuple(dict.fromkeys(sessions))
    if FORMATS[name].one and len(session_ids) != 1:
        raise click.UsageError(
            f"--format {name} takes one SESSION, and {len(session_ids)} were given."
        )
    edge.demand(*FORMATS[name].extras)
    contents = Contents(edge.client().read_blob)
    with Bar("export", "records") as bar:
        counts = FORMATS[name].write(
            Export(edge.log, session_ids, contents, edge.prices, path, force, bar)
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
    note_missing(contents)


def note_missing(contents: Contents) -> None:
    """Print which blobs are missing or damaged, if any."""
    if not contents.missing:
        return
    digests = sorted(contents.missing)
    more = f" and {len(digests) - MISSING_SHOWN} more" if len(digests) > MISSING_SHOWN else ""
    note(
        f"{len(digests)} blob{'s are' * (len(digests) > 1) or ' is'} missing or damaged: "
        f"{', '.join(digests[:MISSING_SHOWN])}{more}. Only their references were exported. Point "
        "FOLDLOG_BLOBS at the store that the writers used, then export again."
    )
