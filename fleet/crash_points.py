"""Named crash points of the fleet: places where a test can kill this process.

Each lies between two steps whose order is essential. Only a hidden option of `foldlog fleet` arms
one, as NAME:N, which kills the process when it reaches the point for the Nth time.
"""

import os
import signal

POINTS: dict[str, str] = {
    "fact.read": "a fact was read, nothing is folded",
    "rows.stored": "a fact's rows are in the store, the producer has not sent them",
    "rows.confirmed": "Kafka has the rows, the offsets of their facts are not committed",
    "facts.committed": "the offsets are committed",
    "restore.begun": "partitions were assigned, no changelog is read",
    "restore.read": "a part of a changelog was read, it is not in the store",
    "restore.done": "the stores have all rows, no fact is folded",
}


class CrashPoints:
    """The armed point of one process."""

    def __init__(self, armed: str = "") -> None:
        self._name, _, count = armed.partition(":")
        if armed and self._name not in POINTS:
            raise ValueError(f"{self._name} is no crash point")
        self._left = int(count or 1)

    def reach(self, name: str) -> None:
        """Kill this process if this point is armed and due."""
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
