"""The memory of a scope, folded from the log as a worker folds it.

Commands and memory files use it without a worker or a store: a scope (a user or a project) is one
key in one partition of memory-events.
"""

from collections.abc import Collection
from typing import NamedTuple

from ..client.follow import read_before
from ..log.door import Log
from ..log.made import partitions_of
from ..log.partition import partition_for
from ..processors.memory.fold import MemoryView, apply, initial
from ..schemas.codec import entry_of
from ..schemas.topics import MEMORY_EVENTS


class MemoryAt(NamedTuple):
    """The view of a scope now, and after the events at the requested offsets."""

    now: MemoryView
    then: dict[int, MemoryView]


def read_memory(
    log: Log, scope: str, *, at: Collection[int] = (), upto: int | None = None
) -> MemoryAt:
    """Fold a scope up to the present end of the log, or up to offset `upto` inclusive.

    `at`: offsets at which to return the view as well; an offset beyond the end is left out. Raises
    LogUnreachable, TopicMissing, OffsetGone.
    """
    partition = partition_for(scope, partitions_of(log))
    end = log.end_offsets(MEMORY_EVENTS)[partition] if upto is None else upto + 1
    view, then = initial(scope), dict.fromkeys((n for n in at if n == -1), initial(scope))
    pending = sorted(n for n in at if 0 <= n < end)
    for record in read_before(log, MEMORY_EVENTS, partition, end):
        while pending and pending[0] < record.offset:
            then[pending.pop(0)] = view
        if record.key == scope.encode():
            view = apply(view, entry_of(record))
    then.update((n, view) for n in pending)
    return MemoryAt(view, then)
