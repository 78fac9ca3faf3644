"""One record as read from the log: the type that folds, decoders, stores and viewers receive.

It is independent of how a record is decoded and of the client that read it.
"""

from typing import NamedTuple


class Record(NamedTuple):
    """A record: its position in the log, the time of its append, and its bytes.

    `topic` is the bare name, without the prefix of the installation. `timestamp_ms` is the broker's
    clock (LogAppendTime), Unix milliseconds, shown and never used to order. `key` and `value` are
    None if the writer set none; a None value is a tombstone in a compacted topic.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name, or None."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None
