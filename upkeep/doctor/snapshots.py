"""A check of the snapshots: whether a worker without a store would have much to fold."""

from collections.abc import Iterator

from ...log.door import Log
from ...log.settings import Settings
from ...processors.store.snapshots import snapshots_of
from ...schemas.topics import SESSION_EVENTS
from ..snapshots import newest_offsets
from .checks import Finding

OVERDUE = 3
"""Snapshots are noted as overdue after this many times the records after which they are due."""


def snapshots_made(log: Log, settings: Settings) -> Iterator[Finding]:
    """Find partitions whose newest usable snapshot is far behind the end of the log."""
    snapshots = snapshots_of(settings)
    if snapshots is None:
        yield Finding("ok", "snapshots", "turned off (snapshot_records is 0)")
        return
    try:
        newest = newest_offsets(log, snapshots)
    except OSError as error:
        yield Finding(
            "note", "snapshots", f"their directory cannot be read here: {error.strerror}",
            "workers on empty disks need it: see docs/snapshots.md",
        )
        return
    ends, overdue = log.end_offsets(SESSION_EVENTS), OVERDUE * settings.snapshot_records
    behind = {n: end - newest.get(n, 0) for n, end in ends.items()}
    late = {n: count for n, count in behind.items() if count > overdue}
    for number, count in sorted(late.items()):
        what = f"its newest snapshot is {count} records behind" if number in newest else (
            f"it has no snapshot and {count} records"
        )
        yield Finding(
            "note", "snapshots", f"partition {number}: {what}; a worker without its store folds "
            "them before it serves the partition",
            "look for failed snapshots in the log of the worker that has the partition "
            "(foldlog_snapshots_total)",
        )
    if not late:
        worst = max(behind.values(), default=0)
        yield Finding(
            "ok", "snapshots", f"of {len(newest)} partitions, at most {worst} records to fold"
        )
