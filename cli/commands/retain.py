"""retain: archives old sessions, and deletes their records from the log.

`upkeep/retention.py` does the work.
"""

import click

from ...log.archive import archive_of
from ...log.archived import ArchivedLog
from ...upkeep.retention import Plan, Retained, Retention
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line
from ..terminal.progress import Bar
from .session_list import TimeParam

MB = 1_000_000


@click.command("retain", epilog=example(
    "foldlog retain --older-than 90d --dry-run", "foldlog retain --older-than 90d",
))
@click.option("--older-than", "before_ms", type=TimeParam(), required=True, metavar="AGE",
              help="Archive sessions without a record since then: 90d, 12w, or a date.")
@click.option("--partition", type=click.IntRange(min=0), metavar="NUMBER",
              help="Only of this partition.")
@click.option("--dry-run", is_flag=True, help="Only report what would be deleted.")
@json_option
@pass_edge
def retain_command(
    edge: Edge, before_ms: int, partition: int | None, dry_run: bool, as_json: bool
) -> None:
    """Archive old sessions, and delete their records from the log.

    Kafka deletes only from the beginning of a partition. So records are deleted up to the first one
    that is younger, or that belongs to a session with pending work. An archived session stays
    readable, and continues when it gets a message (docs/retention.md). The command can be run again
    at any time, also after it was interrupted.
    """
    log = edge.log
    if not isinstance(log, ArchivedLog):
        log = ArchivedLog(log, archive_of(edge.settings))
    with Bar("retain", "records") as bar:
        retention = Retention(log, before_ms, edge.client().read_blob, bar)
        if partition is not None and partition not in retention.partitions():
            raise click.UsageError(f"this log has no partition {partition}.")
        for number in retention.partitions() if partition is None else [partition]:
            plan = retention.plan(number) if dry_run else None
            done = retention.run(number) if plan is None else Retained(plan, 0)
            bar.erase()
            _emit(done, dry_run) if as_json else _print(done, dry_run)
        if not dry_run:
            retention.collect()


def _emit(done: Retained, dry_run: bool) -> None:
    plan = done.plan
    emit({
        "partition": plan.partition,
        "first_offset": plan.first,
        "end_offset": plan.end,
        "trim_to": plan.trim_to,
        "deleted": not dry_run and plan.trim_to > plan.first,
        "sessions": len(plan.sessions),
        "bundle_bytes": done.bytes,
        "held_by": None if plan.held_by is None else plan.held_by._asdict(),
    })


def _print(done: Retained, dry_run: bool) -> None:
    plan, count = done.plan, done.plan.trim_to - done.plan.first
    if not count:
        what = "nothing to delete"
    elif dry_run:
        what = f"{count:,} records of {len(plan.sessions):,} sessions would be deleted"
    else:
        what = (f"{count:,} records deleted, of {len(plan.sessions):,} sessions, whose bundles "
                f"need {done.bytes / MB:.1f} MB")
    line(f"partition {plan.partition}: {what}{_next(plan)}")


def _next(plan: Plan) -> str:
    """What stays in the log, and why."""
    if plan.held_by is None:
        return ""
    offset, session_id, why = plan.held_by
    of = f"session {session_id}" if session_id else "the partition"
    return f"; {of} stays from offset {offset}: {why}"
