"""The state directory of a worker: locked, for its lock is what makes an older incarnation dead.

It holds the worker's name, the outbox, the stores and the side logs. Law 6 relies on the lock:
whoever holds it knows that no other process of this worker id lives. A lock says that of one
directory, on one machine, since it was booted; so the worker id is the name and a digest of these.
A copy of the directory, on this machine or another, is another worker.
"""

import fcntl
import hashlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from ...log.errors import SettingsError

PROBE_S = 0.1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # of this boot of this kernel (Linux)


class StateDirTaken(SettingsError):
    """Another process works in this directory. Stop it, or give this worker its own.

    A wrong setting to a supervisor: it would be so at the next start, too.
    """


class StateDir:
    """A locked state directory. Raises StateDirTaken, or OSError where it can not be written."""

    def __init__(self, path: Path, worker_id: str | None = None) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds what everybody said
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._locked():
            named = os.pread(self._lock, 20, 0).decode("ascii", "replace")
            os.close(self._lock)
            raise StateDirTaken(
                f"another worker works in {path}{named and f' (process {named})'}. Nothing was "
                "changed: stop that one, or give this one its own directory with FOLDLOG_STATE_DIR."
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)  # for the message above
        self._name(worker_id)
        found = worker_id_of(path)
        assert found is not None, "it was named above"
        self.worker_id = found

    def _locked(self) -> bool:
        """Take the lock. Who only looks whether it is free holds it for an instant: not refused."""
        until = time.monotonic() + PROBE_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
            time.sleep(0.01)

    def _name(self, wanted: str | None) -> None:
        place = self.path / "worker_id"
        if wanted is not None or not place.exists():
            _replace(place, wanted or f"w-{uuid.uuid4().hex[:12]}")

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


def worker_id_of(path: Path, machine: str | None = None) -> str | None:
    """The worker id of a state directory here and now; None if no worker has worked in it.

    machine: of another machine or boot. A reboot makes another worker of the same directory: by
    what a machine knows of itself it cannot be told from a clone of its disk elsewhere.
    """
    try:
        name = (path / "worker_id").read_text("utf-8").strip()
        place = (path / "lock").stat()
    except FileNotFoundError:
        return None
    facts = f"{machine or _machine()} {place.st_dev} {place.st_ino}"
    return f"{name}.{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _machine() -> str:
    """This boot of this machine; without Linux's id of it, only this machine."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"{os.uname().nodename} {uuid.getnode()}"


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)
