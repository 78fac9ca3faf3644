"""One record as it was read from a topic. Knows no event and no broker."""

from typing import NamedTuple


class Record(NamedTuple):
    """A record in its place. `timestamp_ms` is the broker's clock (LogAppendTime), in Unix ms."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
