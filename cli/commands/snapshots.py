"""snapshots: list the snapshots of the stores, make them, delete those that are not needed.

`upkeep/snapshots.py` does the work.
"""

import time

import click

from ...upkeep import snapshots as of_stores
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line, note, table
from .session_list import ago

MB = 1_000_000
PARTITION = click.option("--partition", type=click.IntRange(min=0), metavar="NUMBER",
                         help="Only of this partition.")


@click.group("snapshots")
def snapshots_command() -> None:
    """List, make and delete snapshots of the stores.

    Workers make snapshots by themselves. A worker that has no store of a partition starts from the
    partition's newest snapshot (docs/snapshots.md).
    """


@snapshots_command.command("list", epilog=example("foldlog snapshots list"))
@json_option
@pass_edge
def list_command(edge: Edge, as_json: bool) -> None:
    """List the snapshots of this log.

    `behind` is the number of records that a worker folds after loading the snapshot.
    """
    found = list(of_stores.listed(edge.log, of_stores.demand_snapshots(edge.settings)))
    if as_json:
        for each in found:
            emit(each._asdict())
        return
    now_ms = time.time_ns() // 1_000_000
    table(
        [
            {
                "partition": str(each.partition),
                "offset": str(each.offset),
                "behind": str(each.behind),
                "made": ago(each.created_at, now_ms) if each.created_at else "",
                "MB": f"{each.bytes / MB:.1f}",
                "usable": f"no: {each.why_not}" if each.why_not else "yes",
            }
            for each in found
        ],
        ("partition", "offset", "behind", "made", "MB", "usable"),
    )
    if not found:
        note("no snapshots: a worker makes the first one of a partition after "
             f"{edge.settings.snapshot_records} records or {edge.settings.snapshot_minutes} min")


@snapshots_command.command("make", epilog=example("foldlog snapshots make"))
@PARTITION
@json_option
@pass_edge
def make_command(edge: Edge, partition: int | None, as_json: bool) -> None:
    """Make snapshots of the stores in the state directory now.

    Needs a state directory in which no worker runs: a worker makes its own.
    """
    snapshots = of_stores.demand_snapshots(edge.settings)
    for made in of_stores.make(edge.log, edge.settings, snapshots, partition):
        if as_json:
            emit(made._asdict())
        else:
            line(f"partition {made.partition}: snapshot at offset {made.offset}, "
                 f"{made.bytes / MB:.1f} MB, {made.bytes_written / MB:.1f} MB of them new")


@snapshots_command.command("gc", epilog=example("foldlog snapshots gc"))
@json_option
@pass_edge
def gc_command(edge: Edge, as_json: bool) -> None:
    """Delete the snapshots and files that are not needed.

    Keeps the two newest snapshots of each partition and version of the folds, and every file that a
    snapshot names or that is younger than an hour. A worker does this once an hour.
    """
    collected = of_stores.collect(of_stores.demand_snapshots(edge.settings))
    if as_json:
        emit(collected._asdict())
    else:
        line(f"{collected.manifests} snapshots and {collected.files} files deleted, "
             f"{collected.bytes / MB:.1f} MB")


@snapshots_command.command("delete", epilog=example(
    "foldlog snapshots delete --partition 3", "foldlog snapshots delete --all"
))
@PARTITION
@click.option("--all", "everything", is_flag=True, help="Of every partition.")
@json_option
@pass_edge
def delete_command(edge: Edge, partition: int | None, everything: bool, as_json: bool) -> None:
    """Delete snapshots of this log, so that a worker without a store refolds it.

    Nothing is lost but time. Their files are deleted by `gc` after an hour.
    """
    if everything == (partition is not None):
        raise click.UsageError("give --partition or --all.")
    snapshots = of_stores.demand_snapshots(edge.settings)
    wanted = None if partition is None else {partition}
    deleted = of_stores.delete(edge.log, snapshots, wanted)
    if as_json:
        emit({"deleted": deleted})
    else:
        line(f"{deleted} snapshots deleted")
