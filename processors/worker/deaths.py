"""Finds owners that are proven dead, so that no worker must wait for the deadlines of their claims.

Two facts prove the death of an owner. A worker that ends cleanly writes OWNER_GONE to the log
itself. On the same machine, a free lock of a worker's state directory proves that the worker's
process died; then this worker writes OWNER_GONE. So every fold knows that the owner is dead. A
paused process still holds its lock, and this machine cannot prove the death of an owner on another
machine. In these two cases the owner's claims expire at their deadlines.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ...schemas.events import OwnerGone
from ...schemas.ids import PARTITION_KEY
from ..fold.projections.partition import PartitionView, worker_id
from ..store.identity import Identity
from ..store.partition_cache import PartitionCache
from ..store.state_dir import worker_id_of
from .actions import Actions

CHECK_MS = 500  # between two checks of a lock

IsDead = Callable[[str], bool | None]
"""A function that returns whether an owner is dead; None if this machine can never know."""


def unknown(owner: str) -> None:
    """An IsDead for a process that can know of no death."""


class Deaths:
    """Watches the owners that held a worker's partitions before the worker."""

    def __init__(
        self, identity: Identity, actions: Actions, role: str, is_dead: IsDead = unknown
    ) -> None:
        self._is_dead = is_dead
        self._identity, self._actions, self._role = identity, actions, role
        self._before: dict[int, set[str]] = {}
        self._checked_at = -CHECK_MS

    def watch(self, owned: PartitionCache, before: PartitionView) -> None:
        """Watch the owners that held a partition before this worker. `before`: the partition's view
        before this worker took the partition. Older incarnations of this worker need no OWNER_GONE,
        because this process holds the lock of their state directory, and the lock proves that they
        are dead."""
        own = self._identity.worker_id
        owners = {holder.owner for holder in before.holders if worker_id(holder.owner) != own}
        self._before.setdefault(owned.number, set()).update(owners)

    def check(self, owned: dict[int, PartitionCache], now_ms: int) -> None:
        """Write OWNER_GONE for every watched owner that is proven dead."""
        if not self._before or now_ms - self._checked_at < CHECK_MS:
            return
        self._checked_at = now_ms
        is_dead = cache(self._is_dead)
        for number, owners in list(self._before.items()):
            for owner in sorted(owners) if number in owned else ():
                dead = is_dead(owner)
                if dead:
                    self.write(number, owner)
                if dead is not False:
                    owners.discard(owner)
            if not owners or number not in owned:
                del self._before[number]

    def write(self, number: int, owner: str) -> None:
        """Write OWNER_GONE for an owner."""
        self._actions.write(number, PARTITION_KEY, OwnerGone(owner=owner), self._role)


class Registry:
    """The state directories of this machine's workers, by worker id."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def register(self, name: str, state_dir: Path) -> None:
        """Record a worker's state directory. If the directory cannot be recorded, the worker's
        death cannot be proven, and its claims expire at their deadlines.
        """
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._directory / name).write_text(str(state_dir), "utf-8")

    def is_dead(self, owner: str) -> bool | None:
        """Whether the lock of an owner's directory is free; None if the lock cannot be checked, or
        belongs to another machine or boot.
        """
        name = worker_id(owner)
        try:
            path = Path((self._directory / name).read_text("utf-8"))
            if worker_id_of(path) != name:
                return None  # the directory belongs to another machine or boot, or is a copy
            lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True
