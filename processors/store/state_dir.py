"""The state directory of a worker. The lock proves that older incarnations of the worker are dead.

The directory contains the worker's name, the outbox, the stores and the side logs. Takeovers rely
on the lock: the process that holds it knows that no other process with this worker id lives. The
lock proves this only for one directory, on one machine, since the machine's boot. So the worker id
consists of the worker's name and a digest of directory, machine and boot. A copy of the directory,
on this machine or another, is therefore another worker.
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
WAYS_OUT = (
    "Nothing was changed. If that worker serves your agents, connect to it and start no other. If "
    "not, stop it, and start one worker with the agents of both. A second worker beside it needs "
    "exactly its agents, and a directory of its own in FOLDLOG_STATE_DIR."
)
"""What to do about a worker that works in a directory. With its own directory, a worker that serves
other agents would be refused as well (same_agents.py)."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # the id of this boot of the kernel (Linux)


class StateDirTaken(SettingsError):
    """Another process uses this directory. Connect to that worker, or stop it.

    A supervisor treats this as a wrong setting, because the next start would fail as well.
    """


class StateDir:
    """A locked state directory. Raises StateDirTaken if another process has locked it, and OSError
    if it cannot be written."""

    def __init__(self, path: Path, worker_id: str | None = None) -> None:
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)  # it will contain users' messages
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._locked():
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace")
            os.close(self._lock)
            raise StateDirTaken(
                f"another worker works in {path}{holder and f' (process {holder})'}. {WAYS_OUT}"
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)  # for the message above
        self._name(worker_id)
        found = worker_id_of(path)
        assert found is not None, "_name wrote the name"
        self.worker_id = found

    def _locked(self) -> bool:
        """Take the lock. Retries briefly, because another process that only checks whether the lock
        is free holds it for an instant."""
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
        """Record facts about the process in this directory, for `status` and `doctor`."""
        _replace(self.path / "worker.json", json.dumps(facts))

    def close(self) -> None:
        """Release the lock."""
        (self.path / "worker.json").unlink(missing_ok=True)
        os.close(self._lock)


def worker_id_of(path: Path, machine: str | None = None) -> str | None:
    """The worker id of a state directory; None if no worker has used the directory.

    machine: the id of another machine or boot; None means this boot of this machine. A reboot makes
    the directory another worker, because a machine cannot distinguish a reboot from a clone of its
    disk elsewhere.
    """
    try:
        name = (path / "worker_id").read_text("utf-8").strip()
        place = (path / "lock").stat()
    except FileNotFoundError:
        return None
    facts = f"{machine or _machine()} {place.st_dev} {place.st_ino}"
    return f"{name}.{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _machine() -> str:
    """The id of this boot of this machine; without Linux's boot id, the id of the machine."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"{os.uname().nodename} {uuid.getnode()}"


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text, "utf-8")
    os.replace(fresh, path)
