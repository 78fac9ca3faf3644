"""The identity of a worker process in the log."""

from typing import NamedTuple


class Identity(NamedTuple):
    """A worker's identity. `worker_id/incarnation` is the owner in the worker's claims."""

    worker_id: str
    incarnation: str

    @property
    def owner(self) -> str:
        """The owner, as in claims and PARTITION_TAKEN."""
        return f"{self.worker_id}/{self.incarnation}"
