"""Logs for the tests of exports: recorded and random sessions in one partition."""

from collections.abc import Iterable, Iterator

from foldlog.log import Clock, MemoryLog
from foldlog.log.blobs import BlobMissing
from foldlog.schemas.events.parts import BlobRef
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.golden import golden
from foldlog.tests.laws.law import history_of

WORLDS = range(12)
"""Seeds of random sessions, which together have most of what can happen."""


class Recorded:
    """A log of one partition, and the blobs that its records refer to."""

    def __init__(self, records: Iterable[Record], blobs: dict[str, bytes], session_id: str) -> None:
        clock = Clock()
        self.log = MemoryLog(topics(1), clock_ms=clock)
        self.blobs, self.session_id = dict(blobs), session_id
        self.records = list(records)
        for record in self.records:
            clock.advance(record.timestamp_ms - clock())
            while self.log.end_offsets(SESSION_EVENTS)[0] < record.offset:  # a hole in the log
                self.log.store(SESSION_EVENTS, 0, None, None, ())
            stored = self.log.store(SESSION_EVENTS, 0, record.key, record.value, record.headers)
            assert stored.offset == record.offset

    def read(self, ref: BlobRef) -> bytes:
        if ref.sha256 not in self.blobs:
            raise BlobMissing(f"blob {ref.sha256} is not there")
        return self.blobs[ref.sha256]


def golden_log(name: str) -> Recorded:
    blobs = golden.blobs_of(golden.expected(name))
    return Recorded(golden.records(name), blobs, golden.SESSION_ID)


def random_log(seed: int, *, forged: bool = False) -> Recorded:
    world = history_of(seed, forged)
    return Recorded(world.records, world.blobs.held, world.session_id)


def all_logs() -> Iterator[Recorded]:
    """Every golden log, and two random logs for each seed."""
    yield from (golden_log(name) for name in golden.names())
    for seed in WORLDS:
        yield random_log(seed)
        yield random_log(seed, forged=True)
