"""The identity of a worker process in the log."""

from typing import NamedTuple


class Identity(NamedTuple):
    """A worker's identity. The owner of its claims is `worker_id/incarnation`."""

    worker_id: str
    incarnation: str

    @property
    def owner(self) -> str:
        """The owner as claims and PARTITION_TAKEN contain it."""
        return f"{self.worker_id}/{self.incarnation}"
