"""One record as it was read from the log.

This file owns the shape that every reader of the log hands on: folds, decoders, stores, viewers.
It must not know how a record is decoded, nor which client read it.
"""

from typing import NamedTuple


class Record(NamedTuple):
    """A record at rest: where it lies, when the broker took it, and its bytes.

    `topic` is the bare name, without the prefix of the installation. `timestamp_ms` is the broker's
    clock (LogAppendTime), Unix milliseconds, shown and never used to order. `key` and `value` are
    None where the writer gave none; a None value is a tombstone in a compacted topic.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> bytes | None:
        """The last header of that name, None if there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None
