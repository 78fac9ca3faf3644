"""memory: prints the memory of a user or a project, or synchronizes it with files.

`upkeep/memory_files.py` turns edits into events; this file prints.
"""

from pathlib import Path

import click

from ...log.errors import Refused
from ...log.made import demand_as_made
from ...processors.memory.fold import MemoryView, paths_of, text_of
from ...processors.memory.framing import core_left_out
from ...producers.checks import an_id
from ...producers.memory import MemoryWriter
from ...schemas.memory_paths import PROJECT, USER, parse_scope, scope_of
from ...schemas.value import fields_of
from ...upkeep.memory import read_memory
from ...upkeep.memory_files import MemoryFiles, Report, report_json
from ..edge import Edge, example, json_option, pass_edge, user_name
from ..terminal.clean_text import clean
from ..terminal.printing import emit, line, note


@click.command("memory", epilog=example(
    "foldlog memory", "foldlog memory --project shop --dir notes", "foldlog memory --sync"
))
@click.option("--user", metavar="USER", callback=user_name,
              help="The memory of this user (default: the login name).")
@click.option("--project", metavar="PROJECT", help="The memory of this project.")
@click.option("--dir", "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="Write the memory to files there (default with --sync: below the home "
                   "directory).")
@click.option("--sync", is_flag=True, help="Also write edits of the files to the log.")
@json_option
@pass_edge
def memory_command(
    edge: Edge,
    user: str | None,
    project: str | None,
    directory: Path | None,
    sync: bool,
    as_json: bool,
) -> None:
    """Show or edit the memory of a user or a project.

    Without --dir and --sync the memory is printed. --dir writes core.md, decisions.md, daily/ and
    archive/ as files; --sync first reads your edits of these files into the memory. If the same
    text was edited here and elsewhere, both edits are kept and the conflict is reported.
    """
    if user is not None and project is not None:
        raise click.UsageError("give --user or --project, not both.")
    acting = an_id("user", user or edge.settings.user)
    scope = scope_of(USER, acting) if project is None else scope_of(
        PROJECT, an_id("project", project)
    )
    if directory is None and not sync:
        _show(read_memory(edge.log, scope).now, as_json)
        return
    place = directory or edge.settings.home / "memory" / "-".join(parse_scope(scope) or ())
    files = MemoryFiles(edge.log, scope, place, acting)
    if sync:
        demand_as_made(edge.log)
    writer = MemoryWriter(edge.log.producer(brief=True), acting) if sync else None
    report = files.synchronize(writer)
    if as_json:
        emit(report_json(report))
    else:
        _print_report(report)
    if report.refused:
        raise Refused("; ".join(report.refused))


def _print_report(report: Report) -> None:
    for path, events in report.took.items():
        line(f"took edits from {path}: {events} events")
    for path in report.wrote:
        line(f"wrote {path}")
    for path in report.removed:
        line(f"removed {path}, which had become empty")
    if not (report.took or report.wrote or report.removed or report.refused):
        line("nothing changed")
    for conflict in report.conflicts:
        note(f"conflict: {conflict}")
    if report.ignored:
        names = ", ".join(report.ignored[:5]) + (" ..." if len(report.ignored) > 5 else "")
        note(f"ignored, not a memory file: {names}")
    _note_left_out(report.left_out)
    line(f"the memory of {report.scope} is in {report.directory}")


def _note_left_out(left_out: str) -> None:
    if left_out:
        note(left_out)


def _show(view: MemoryView, as_json: bool) -> None:
    if as_json:
        emit(_json(view))
        return
    for path in paths_of(view):
        line(f"== {path}")
        click.echo(clean(text_of(view, path)), nl=False)
    for name, value in view.preferences:
        line(f"preference {name} = {value}")
    for todo in view.todos:
        line(f"[{'x' if todo.status == 'done' else ' '}] {todo.todo_id} {todo.text}")
    _note_left_out(core_left_out(view))
    if view.refused:
        note(f"{view.refused} events were refused, the last one because: {view.why}")
    if not (view.entries or view.preferences or view.todos):
        note(f"{view.scope} has no memory yet; `foldlog memory --sync` creates a directory to "
             "write it in")


def _json(view: MemoryView) -> dict:
    return {
        "scope": view.scope,
        "files": {path: text_of(view, path) for path in paths_of(view)},
        "entries": [fields_of(entry) for entry in view.entries],
        "preferences": dict(view.preferences),
        "todos": [fields_of(todo) for todo in view.todos],
        "left_out": core_left_out(view),
        "refused": view.refused,
        "why": view.why,
    }
