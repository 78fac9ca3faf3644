"""Groups the records of a batch: consecutive chunks of one streaming attempt form a run.

Most records of a log are chunks. The fold reads only a chunk's headers, which are the same for all
chunks of an attempt, and a chunk never changes the ruling on the next chunk of its attempt. So a
reader folds the first chunk of a run and only counts the others. A run may be interrupted by
records of other sessions, because each session is folded by itself. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...schemas.codec import CHUNK
from ...schemas.record import Record


class Run(NamedTuple):
    """One record. If it is a chunk, `more` has the chunks of the same attempt that follow it;
    otherwise `more` is empty."""

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
