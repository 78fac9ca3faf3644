"""blobs: verify the blob store, delete what nothing names, copy it.

`upkeep/blobs.py` does the work.
"""

from contextlib import ExitStack

import click

from ...log import open_log
from ...log.blobs import objects_beside, open_blobs, open_place
from ...log.door import Log
from ...log.errors import FoldlogError, SettingsError
from ...upkeep import blobs as care
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line, note
from ..terminal.progress import Bar

MB = 1_000_000
DAY_S = 24 * 3600
SHOWN_MAX = 20  # problems that are printed in full for people


class CopyInterrupted(FoldlogError):
    """Ctrl-C ended a copy. What was copied is kept, and the same command copies the rest."""


@click.group("blobs")
def blobs_command() -> None:
    """Verify, clean and copy the blob store.

    Content over 64 KiB is in the blob store, a directory or an object store (docs/blobs.md).
    """


@blobs_command.command("verify", epilog=example("foldlog blobs verify"))
@json_option
@pass_edge
def verify_command(edge: Edge, as_json: bool) -> int | None:
    """Read every blob that the log names or that is in the store.

    Prints those that are missing or damaged, and where the log names them. Exit code 1 if there are
    any.
    """
    with Bar("verify", "blobs") as bar:
        found = care.verify(edge.log, open_blobs(edge.settings, cached=False), bar)
    _print_problems(found.problems, as_json)
    if as_json:
        emit({"named": found.named, "stored": found.stored, "bytes": found.bytes,
              "problems": len(found.problems)})
    else:
        line(f"{found.named:,} blobs are named by the log, {found.stored:,} are in the store "
             f"({found.bytes / MB:.1f} MB); {len(found.problems)} are missing or damaged")
    return 1 if found.problems else None


@blobs_command.command("gc", epilog=example("foldlog blobs gc", "foldlog blobs gc --delete"))
@click.option("--delete", is_flag=True, help="Delete them. Without it they are only counted.")
@click.option("--grace-days", type=click.FloatRange(min=care.GRACE_S_MIN / DAY_S), default=7.0,
              show_default=True, metavar="DAYS",
              help="Keep blobs that were stored more recently: the message that will name an "
                   "upload may not be sent yet.")
@click.option("--force", is_flag=True,
              help="Continue even if the logs on this cluster name no blob of the store.")
@json_option
@pass_edge
def gc_command(edge: Edge, delete: bool, grace_days: float, force: bool, as_json: bool) -> None:
    """Find blobs that nothing names, and delete them with --delete.

    Searches every topic of every installation on this cluster, the archive, and the blobs
    themselves. Workers and gateways may run. If other clusters use the same store, do not run it:
    their logs are not searched.
    """
    settings = edge.settings
    archive = objects_beside(settings, "archive", settings.archive_dir)
    with Bar("gc", "blobs") as bar, ExitStack() as opened:
        found = care.collect(
            _logs(edge, opened), archive, open_blobs(settings, cached=False),
            grace_days * DAY_S, bar, delete=delete, force=force,
        )
    if as_json:
        emit(found._asdict())
        return
    what = f"{found.garbage:,} of {found.stored:,} blobs are not named by any event"
    line(f"{what}, {found.garbage_bytes / MB:.1f} MB; {found.young:,} are too young to tell")
    if delete:
        line(f"{found.deleted:,} blobs deleted")
    elif found.garbage:
        line("nothing was deleted: --delete deletes them")


def _logs(edge: Edge, opened: ExitStack) -> list[Log]:
    """The log of this installation, and those of the others on its cluster."""
    logs = [edge.log]
    for prefix in edge.log.prefixes():
        if prefix != edge.settings.topic_prefix:
            other = open_log(edge.connected().of_log(
                prefix, edge.settings.partitions, flags=("--topic-prefix", "--partitions")
            ))
            opened.callback(other.close)
            logs.append(other)
    return logs


@blobs_command.command("copy", epilog=example(
    "foldlog blobs copy ~/.local/state/foldlog/blobs s3://bucket/foldlog"
))
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
@pass_edge
def copy_command(edge: Edge, source: str, target: str, as_json: bool) -> int | None:
    """Copy all blobs from one store to another.

    FROM and TO are directories or URLs. Blobs that the target has are skipped, so the command can
    be run again at any time: once while workers run, and once more after they were stopped. Exit
    code 1 if a blob is damaged; it is not copied.
    """
    try:
        places = open_place(source, exists=True), open_place(target)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    try:
        with Bar("copy", "of the shelves") as bar:
            done = care.copy(*places, bar)
    except KeyboardInterrupt as pressed:
        raise CopyInterrupted(
            "interrupted: what was copied is kept, and the same command copies the rest"
        ) from pressed
    _print_problems(done.problems, as_json)
    if as_json:
        emit({"stored": done.stored, "present": done.present, "copied": done.copied,
              "bytes": done.bytes, "problems": len(done.problems)})
    else:
        line(f"{done.copied:,} blobs copied ({done.bytes / MB:.1f} MB), {done.present:,} were "
             f"there, {len(done.problems)} are damaged")
    return 1 if done.problems else None


def _print_problems(problems: tuple[care.Problem, ...], as_json: bool) -> None:
    for problem in problems if as_json else problems[:SHOWN_MAX]:
        if as_json:
            named = problem.named
            emit({**problem._asdict(), "named": None if named is None else named._asdict()})
            continue
        where = "named by no event" if problem.named is None else (
            f"session {problem.named.session_id}, offset {problem.named.offset} of partition "
            f"{problem.named.partition}"
        )
        line(f"{problem.what}: {problem.sha256} ({where})")
    if not as_json and len(problems) > SHOWN_MAX:
        note(f"{len(problems) - SHOWN_MAX} more: --json prints all")
