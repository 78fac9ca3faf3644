"""Finds the workers that hold partitions, without a fold of the log.

The newest PARTITION_TAKEN of a role names its holder and the holder's agents. It is usually near
the end of the log, so the log is read backwards, in windows of growing size, and only these records
are decoded.
"""

import math
import time
from collections.abc import Collection
from functools import reduce
from operator import attrgetter

from ..log.door import Log
from ..processors.fold.projections.partition import ANSWERS, INITIAL, PartitionView, apply
from ..schemas.codec import Entry
from ..schemas.ids import PARTITION_KEY
from ..schemas.topics import SESSION_EVENTS
from .follow import Follow

WINDOW, GROWTH = 5_000, 8
"""The records of each partition in the first window, and how much larger each next one is."""


def holders_of(
    log: Log, partitions: Collection[int], within_s: float = math.inf
) -> dict[int, PartitionView]:
    """The holders of each partition for the roles that every answer needs, as a fold finds them.

    A partition whose holders were not found within this time is left out. Raises LogUnreachable,
    TopicMissing, OffsetGone.
    """
    until, size, key = time.monotonic() + within_s, WINDOW, PARTITION_KEY.encode()
    first, ends = log.first_offsets(SESSION_EVENTS), log.end_offsets(SESSION_EVENTS)
    unread = {partition: ends[partition] for partition in partitions}
    entries: list[Entry] = []
    found: dict[int, PartitionView] = {}
    while unread:
        begin = {place: max(first[place], end - size) for place, end in unread.items()}
        with Follow(log, start=begin, partitions=begin) as follow:
            for records in follow.records_to(unread):
                entries += [
                    follow.entry_of(record) for record in records
                    if record.key == key and record.offset < unread[record.partition]
                ]  # fmt: skip
                if time.monotonic() > until:
                    return found
        for place, at in begin.items():
            view = _folded(entries, place)
            if at == first[place] or all(view.holder(role) for role in ANSWERS):
                found[place] = view
        unread = {place: at for place, at in begin.items() if place not in found}
        size *= GROWTH
    return found


def _folded(entries: list[Entry], partition: int) -> PartitionView:
    own = (entry for entry in entries if entry.partition == partition)
    return reduce(apply, sorted(own, key=attrgetter("offset")), INITIAL)
