"""One record as read from the log, the input of decoders and folds.

A record does not depend on its decoding, nor on the Kafka client that read it.
"""

from typing import NamedTuple


class Record(NamedTuple):
    """A record: its position in the log, its time, its key, its value and its headers.

    `topic` is the name without the prefix of the installation. `timestamp_ms` is broker time
    (LogAppendTime), Unix milliseconds; it is displayed and never used for ordering. `key` and
    `value` are None if the writer set none; a None value is a tombstone in a compacted topic.
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
