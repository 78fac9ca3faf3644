"""Owners that are dead for certain, so that nobody waits for the deadlines of their claims (law 6).

Two facts prove a death: a clean leave, which the leaving worker writes, and, on one machine, a free
lock of the state directory, which dies with its process. Either becomes an OWNER_GONE in the log,
so that every fold knows it. A paused process holds its lock; what is unknown here stays unknown.
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
from ..store.partition_cache import Owned
from ..store.state_dir import worker_id_of
from .actions import Actions

LOOK_MS = 500  # between two looks at a lock

IsDead = Callable[[str], bool | None]
"""Whether an owner is dead; None where that can never be known here."""


class Deaths:
    """Looks after those from whom a worker took its partitions."""

    def __init__(self, identity: Identity, actions: Actions, role: str) -> None:
        self.is_dead: IsDead = lambda _owner: None
        self._identity, self._actions, self._role = identity, actions, role
        self._before: dict[int, set[str]] = {}
        self._looked_at = -LOOK_MS

    def took(self, owned: Owned, before: PartitionView) -> None:
        """A partition is held now; `before`: as it was before that. Of this worker's own older
        incarnations nobody needs to be told: who holds the lock knows."""
        own = self._identity.worker_id
        owners = {holder.owner for holder in before.holders if worker_id(holder.owner) != own}
        self._before.setdefault(owned.number, set()).update(owners)

    def look(self, owned: dict[int, Owned], now_ms: int) -> None:
        """Write down who is dead."""
        if not self._before or now_ms - self._looked_at < LOOK_MS:
            return
        self._looked_at = now_ms
        is_dead = cache(self.is_dead)
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
        """Write that an owner is gone."""
        self._actions.write(number, PARTITION_KEY, OwnerGone(owner=owner), self._role)


class Registry:
    """Where the state directories of this machine's workers are, by worker id."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def register(self, name: str, state_dir: Path) -> None:
        """Note where a worker works. Where that fails, its death is known by its deadlines only."""
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._directory / name).write_text(str(state_dir), "utf-8")

    def is_dead(self, owner: str) -> bool | None:
        """Whether nobody holds the lock of an owner's directory, here and since this boot."""
        name = worker_id(owner)
        try:
            path = Path((self._directory / name).read_text("utf-8"))
            if worker_id_of(path) != name:
                return None  # a directory of another machine, of another boot, or a copy
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
