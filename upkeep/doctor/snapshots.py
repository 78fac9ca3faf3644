"""A check of the snapshots: whether a worker without a store would have much to fold."""

from collections.abc import Iterator

from ...log.door import Log
from ...log.settings import Settings
from ...processors.store.snapshots import snapshots_of
from ...schemas.topics import SESSION_EVENTS
from ..snapshots import newest_offsets
from .findings import Code, Finding, found

OVERDUE = 3
"""Snapshots are noted as overdue after this many times the records after which they are due."""


def snapshots_made(log: Log, settings: Settings) -> Iterator[Finding]:
    """Find partitions whose newest usable snapshot is far behind the end of the log."""
    snapshots = snapshots_of(settings)
    if snapshots is None:
        yield found(Code.SNAPSHOTS_OFF)
        return
    try:
        newest = newest_offsets(log, snapshots)
    except OSError as error:
        yield found(Code.SNAPSHOTS_UNREADABLE, error=error.strerror)
        return
    ends, overdue = log.end_offsets(SESSION_EVENTS), OVERDUE * settings.snapshot_records
    behind = {n: end - newest.get(n, 0) for n, end in ends.items()}
    late = {n: count for n, count in behind.items() if count > overdue}
    for number, count in sorted(late.items()):
        code = Code.SNAPSHOTS_BEHIND if number in newest else Code.SNAPSHOTS_NONE
        yield found(code, partition=number, count=count)
    if not late:
        worst = max(behind.values(), default=0)
        yield found(Code.SNAPSHOTS_OK, count=len(newest), records=worst)
