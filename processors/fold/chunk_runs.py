"""Groups the records of a batch: the chunks of one streaming attempt that follow each other.

Chunks are most of a log, and equal ones fold alike: a chunk never changes the ruling on the next
one of its attempt, and the fold reads only their headers. So a reader folds the first one and
counts the others. Records of other sessions between them do not matter, because each session is
folded by itself. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...schemas.codec import CHUNK
from ...schemas.record import Record


class Run(NamedTuple):
    """A record, and in `more` the chunks that follow it if it is a chunk itself."""

    first: Record
    more: list[Record]


def chunk_runs(records: Iterable[Record]) -> list[Run]:
    """The records of one partition as runs. The order within each session stays the same."""
    runs: list[Run] = []
    streaming: dict[bytes | None, Run] = {}  # by session: the run that its next chunk continues
    for record in records:
        key, headers = record.key, record.headers
        run = streaming.get(key)
        if run is not None and headers == run.first.headers:
            run.more.append(record)
            continue
        run = Run(record, [])
        runs.append(run)
        if headers and headers[0] == CHUNK:
            streaming[key] = run
        else:
            streaming.pop(key, None)
    return runs
