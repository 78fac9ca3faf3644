"""Makes snapshots of the stores that a worker writes, in a background thread.

The poll thread only decides when a snapshot is due. The background thread makes it, for one
partition at a time: RocksDB links the store's files into a checkpoint, even while the poll thread
writes the store, and then the files of the checkpoint are stored. A failure never ends the worker:
it is logged, and a later round tries again. Further failures in a row are not logged.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .. import crash_points
from ..store.clocks import Clock
from ..store.partition_cache import PartitionCache
from ..store.snapshots import Snapshots, staging_of
from .worker import Worker

CHECK_MS = 1_000  # between two checks of what is due
RETRY_MS = 60_000  # after a failure
COLLECT_MS = 3_600_000  # between two collections of garbage
NICENESS = 10  # of the thread: sessions come first
JOIN_S = 5.0  # at the end of the worker


class _Newest(NamedTuple):
    """A partition's newest snapshot: its offset, and when it was made or found (monotonic ms)."""

    offset: int
    at: int


class SnapshotMaker:
    """Makes a worker's snapshots; see the module docstring.

    directory_of: returns the directory of a partition's store. A partition's next snapshot is due
        after `records` records, or after `interval_ms` if there are new records.
    count: called in the background thread, with `made` or `failed`.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        directory_of: Callable[[int], Path],
        records: int,
        interval_ms: int,
        clock: Clock,
        say: Callable[[str], None],
        count: Callable[[str], None],
    ) -> None:
        self._snapshots, self._directory_of = snapshots, directory_of
        self._records, self._interval_ms = records, interval_ms
        self._clock, self._say, self._count = clock, say, count
        self._newest: dict[int, _Newest] = {}
        self._thread: threading.Thread | None = None
        self._check_at = self._collect_at = self._retry_at = 0
        self._has_failed = False

    def opened(self, partition: int, newest: int) -> None:
        """Record that the store of a partition was opened. `newest`: the offset of the partition's
        newest snapshot."""
        if not self.is_busy:  # else it may be in use, and its thread deletes it
            shutil.rmtree(self._staging(partition), ignore_errors=True)
        self._newest[partition] = _Newest(newest, self._clock.monotonic_ms())

    def check(self, worker: Worker) -> None:
        """If no snapshot is being made, begin one of the partition whose snapshot is most overdue.
        Called in each round."""
        now = self._clock.monotonic_ms()
        if now < max(self._check_at, self._retry_at) or self.is_busy:
            return
        self._check_at = now + CHECK_MS
        # Not while it is catching up: what it reads is in the log, and its end comes soon.
        due = [
            owned
            for number, owned in worker.owned.items()
            if worker.holds(number) and self._is_due(owned, now)
        ]
        if due:
            self.begin(max(due, key=lambda each: each.next_offset - self._newest_of(each).offset))

    def begin(self, owned: PartitionCache) -> None:
        """Make a snapshot of a partition in the background."""
        self._thread = threading.Thread(
            target=self._make, args=(owned,), name="snapshot", daemon=True
        )
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being made."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Wait briefly for a snapshot that is being made. If it is not finished by then, the next
        snapshot uses the files that it has stored."""
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _newest_of(self, owned: PartitionCache) -> _Newest:
        return self._newest.get(owned.number, _Newest(0, 0))

    def _is_due(self, owned: PartitionCache, now: int) -> bool:
        newest = self._newest_of(owned)
        records = owned.next_offset - newest.offset
        return records >= self._records or (records > 0 and now - newest.at >= self._interval_ms)

    def _staging(self, partition: int) -> Path:
        return staging_of(self._directory_of(partition))

    def _make(self, owned: PartitionCache) -> None:
        with suppress(OSError):  # refused in some containers
            if sys.platform == "linux":  # elsewhere this is not the id of a thread
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        staging = self._staging(owned.number)
        try:
            shutil.rmtree(staging, ignore_errors=True)
            if not owned.store.checkpoint(staging):
                return  # the partition was revoked
            crash_points.reach("snapshot.checkpoint")
            saved = self._snapshots.save(staging, owned.number, time.time_ns() // 1_000_000)
            self._newest[owned.number] = _Newest(
                saved.manifest.offset, self._clock.monotonic_ms()
            )
            self._snapshots.prune(saved.manifest)
            self._collect()
        except Exception as error:  # rocksdict raises plain Exception; a snapshot is never needed
            self._failed(owned.number, error)
        else:
            self._has_failed = False
            self._count("made")
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _collect(self) -> None:
        now = self._clock.monotonic_ms()
        if now >= self._collect_at:
            self._collect_at = now + COLLECT_MS
            self._snapshots.collect(time.time())

    def _failed(self, partition: int, error: Exception) -> None:
        self._count("failed")
        self._retry_at = self._clock.monotonic_ms() + RETRY_MS
        if not self._has_failed:
            self._has_failed = True
            self._say(
                f"the snapshot of partition {partition} failed ({error or type(error).__name__}); "
                "the worker continues, and tries again every minute. Until then, a worker without "
                "a store folds what came after the last snapshot."
            )
