"""The state directory of a worker: locked, for its lock is what makes an older incarnation dead.

It holds the worker id, the outbox, the stores and the side logs. Law 6 relies on the lock: whoever
holds it knows that no other process of this worker id lives.
"""

import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import Any

from ...log.errors import FoldlogError


class StateDirTaken(FoldlogError):
    """Another process works in this directory. Stop it, or give this worker its own."""


class StateDir:
    """A locked state directory. Raises StateDirTaken, or OSError where it can not be written."""

    def __init__(self, path: Path, worker_id: str | None = None) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds what everybody said
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            named = os.pread(self._lock, 20, 0).decode("ascii", "replace")
            os.close(self._lock)
            raise StateDirTaken(
                f"another worker works in {path}{named and f' (process {named})'}. Nothing was "
                "changed: stop that one, or give this one its own directory with FOLDLOG_STATE_DIR."
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)  # for the message above
        self.worker_id = self._worker_id(worker_id)

    def _worker_id(self, wanted: str | None) -> str:
        place = self.path / "worker_id"
        if wanted is None and place.exists():
            return place.read_text("utf-8").strip()
        chosen = wanted or f"w-{uuid.uuid4().hex[:12]}"
        _replace(place, chosen)
        return chosen

    def store(self, topic: str, partition: int) -> Path:
        """The directory of a partition's store."""
        return self.path / "store" / topic / str(partition)

    def note(self, facts: dict[str, Any]) -> None:
        """Say what runs here, for `status` and `doctor`."""
        _replace(self.path / "worker.json", json.dumps(facts))

    def close(self) -> None:
        """Release the lock."""
        (self.path / "worker.json").unlink(missing_ok=True)
        os.close(self._lock)


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)
