"""The faults that a simulator injects into the in-memory log: time, and the fate of each append.

Only faults that Kafka can produce belong here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .door import Headers


class Clock:
    """A clock that stands still until it is moved: Unix milliseconds."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, ms
        self.now_ms += ms


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one appended record.

    delay_ms: it reaches the log that much later, and what its producer writes after it to the same
    partition waits behind it, as in Kafka. It lands even if the producer was killed meanwhile.
    copies: how often it is stored (0: never). ack False: `on_delivery` gets an AppendError.
    """

    delay_ms: int = 0
    copies: int = 1
    ack: bool = True


NORMAL = Fate()
LOST_ACK = Fate(ack=False)
DUPLICATE = Fate(copies=2)
LOST = Fate(copies=0, ack=False)


class Faults:
    """Says what becomes of each append. This one plays a script and then lets all go well.

    A simulator overrides `fate`, called once per append, in order, and `heard`. `fate` may also
    raise LogBusy.
    """

    def __init__(self, script: Iterable[Fate] = ()) -> None:
        self._script = iter(script)

    def fate(self, producer: str, topic: str, partition: int, headers: Headers) -> Fate:
        return next(self._script, NORMAL)

    def heard(self, instance_id: str) -> bool:
        """Whether this poll of a group member is in contact with its group.

        If not, it reads on from the partitions it believes to have, and the group counts it as
        silent: so does a process that was stopped, in its first moments afterwards.
        """
        return True
