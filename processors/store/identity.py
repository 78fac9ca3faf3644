"""Who a worker process is, in the log."""

from typing import NamedTuple


class Identity(NamedTuple):
    """Who this worker is. The owner of its claims is `worker_id/incarnation`."""

    worker_id: str
    incarnation: str

    @property
    def owner(self) -> str:
        """As claims and PARTITION_TAKEN carry it."""
        return f"{self.worker_id}/{self.incarnation}"
