"""Which records were copied to the dead letters already, so that a worker that folds them again
copies none of them twice."""

from collections.abc import Callable, Iterator

from ...log.door import Log
from ...log.errors import AccessDenied, LogUnreachable
from ...schemas.record import Record
from ...schemas.topics import DEAD_LETTERS

POLL_S = 1.0
STALLED_POLLS = 30  # so many polls without a record mean that the log does not respond

Place = tuple[bytes, bytes]  # partition and offset, as the headers of a letter name them


class WrittenLetters:
    """The records that have a dead letter. They are read on first use after `forget`."""

    def __init__(self, log: Log, say: Callable[[str], None]) -> None:
        self._log, self._say = log, say
        self._places: frozenset[Place] | None = None

    def forget(self) -> None:
        """Read the letters again: another worker may have written some of them."""
        self._places = None

    def has(self, record: Record) -> bool:
        """Whether a record has a dead letter. Raises LogUnreachable."""
        if self._places is None:
            self._places = self._read()
        return (b"%d" % record.partition, b"%d" % record.offset) in self._places

    def _read(self) -> frozenset[Place]:
        try:
            return frozenset(map(_place_of, self._letters()))
        except AccessDenied as denied:
            self._say(f"dead letters may be written twice, because they cannot be read: {denied}")
            return frozenset()

    def _letters(self) -> Iterator[Record]:
        ends, first = self._log.end_offsets(DEAD_LETTERS), self._log.first_offsets(DEAD_LETTERS)
        reader, stalled = self._log.reader(DEAD_LETTERS, first), 0
        try:
            while any(reader.positions().get(number, first[number]) < end
                      for number, end in ends.items()):
                letters = reader.poll(POLL_S)
                stalled = 0 if letters else stalled + 1
                if stalled == STALLED_POLLS:
                    raise LogUnreachable(
                        "the log stopped responding while the dead letters were read. Nothing was "
                        "written. Check the broker (`foldlog status`)."
                    )
                yield from letters
        finally:
            reader.close()


def _place_of(letter: Record) -> Place:
    found = dict(letter.headers)
    return found.get("__dlq.errors.partition", b""), found.get("__dlq.errors.offset", b"")
