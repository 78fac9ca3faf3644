"""The faults that a simulator injects into the in-memory log, and a clock for the simulator.

Only faults that Kafka can produce belong here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .door import Headers


class Clock:
    """A clock in Unix milliseconds that changes only by `advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, ms
        self.now_ms += ms


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of one append.

    delay_ms: how much later the record reaches the log. The producer's later records for the same
        partition wait for it, as in Kafka. The record is stored even if the producer is killed
        first.
    copies: how often the record is stored (0: never).
    ack: if False, `on_delivery` gets an AppendError.
    """

    delay_ms: int = 0
    copies: int = 1
    ack: bool = True


NORMAL = Fate()
LOST_ACK = Fate(ack=False)
DUPLICATE = Fate(copies=2)
LOST = Fate(copies=0, ack=False)


class Faults:
    """Decides the fate of each append. This class plays a script; after the script, every append
    succeeds.

    A simulator overrides `fate` and `heard`. `fate` is called once for each append, in the order of
    the appends, and may also raise LogBusy.
    """

    def __init__(self, script: Iterable[Fate] = ()) -> None:
        self._script = iter(script)

    def fate(self, producer: str, topic: str, partition: int, headers: Headers) -> Fate:
        return next(self._script, NORMAL)

    def heard(self, instance_id: str) -> bool:
        """Whether a group member that polls now is in contact with its group.

        If not, the member keeps reading the partitions that it believes it owns, and the group
        counts the member as silent. A paused process behaves like this just after it resumes.
        """
        return True
