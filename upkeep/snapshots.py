"""Snapshots of the stores, for people: lists them, makes them while no worker uses the stores, and
deletes them.
"""

import shutil
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..log.door import Log
from ..log.errors import Refused
from ..log.made import partitions_of
from ..log.settings import Settings
from ..processors.store.snapshots import (
    Candidate,
    Collected,
    Saved,
    Snapshots,
    SnapshotUnusable,
    snapshots_of,
    staging_of,
)
from ..processors.store.state_dir import StateDir, StateDirTaken
from ..processors.store.store import Belongs, fold_version, opened_store
from ..reports.replay import store_directory
from ..schemas.topics import SESSION_EVENTS


class Listed(NamedTuple):
    """A snapshot of this log.

    behind: the number of records in the partition after the snapshot.
    created_at: Unix ms; 0 if the snapshot's manifest is unreadable.
    bytes: the size of its files; 0 if the snapshot's manifest is unreadable.
    why_not: the reason why this version cannot load the snapshot, or ''.
    """

    partition: int
    offset: int
    behind: int
    created_at: int
    bytes: int
    why_not: str


class Made(NamedTuple):
    """A snapshot that was made. bytes_written: the total size of its new files; files that an
    earlier snapshot had stored are not written again.
    """

    partition: int
    offset: int
    bytes: int
    bytes_written: int


def demand_snapshots(settings: Settings) -> Snapshots:
    """The snapshots of an installation. Raises Refused if it makes none."""
    found = snapshots_of(settings)
    if found is None:
        raise Refused(
            "snapshots are turned off: `snapshot_records` (FOLDLOG_SNAPSHOT_RECORDS) is 0. "
            "Nothing was changed."
        )
    return found


def belongs_to(log: Log) -> Belongs:
    """The log, and this version of the folds."""
    return Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())


def listed(log: Log, snapshots: Snapshots) -> Iterator[Listed]:
    """The snapshots of this log, by partition, the newest first."""
    belongs, ends = belongs_to(log), log.end_offsets(SESSION_EVENTS)
    mine = _of_log(snapshots, belongs)
    for found in sorted(mine, key=lambda each: (each.partition, -each.offset)):
        end = ends.get(found.partition, 0)
        behind = max(0, end - found.offset)
        try:
            manifest = snapshots.manifest(found)
        except SnapshotUnusable as error:
            yield Listed(found.partition, found.offset, behind, 0, 0, str(error))
            continue
        why_not = "" if manifest.belongs == belongs else "it is of another version of the folds"
        if manifest.offset > end:
            why_not = "it is beyond the end of the log"
        place = manifest.partition, manifest.offset, behind
        yield Listed(*place, manifest.created_at, manifest.size_bytes, why_not)


def newest_offsets(log: Log, snapshots: Snapshots) -> dict[int, int]:
    """The offset of each partition's newest snapshot that this version can load. Partitions without
    such a snapshot are left out.
    """
    belongs, found = belongs_to(log), {}
    for partition, end in log.end_offsets(SESSION_EVENTS).items():
        candidates = snapshots.newest_first(belongs, partition)
        if fitting := [each.offset for each in candidates if each.offset <= end]:
            found[partition] = fitting[0]
    return found


def make(
    log: Log, settings: Settings, snapshots: Snapshots, partition: int | None = None
) -> Iterator[Made]:
    """Make a snapshot of each store in the state directory, or only of the store of `partition`.

    Raises Refused if a worker runs in the directory.
    """
    belongs = belongs_to(log)
    numbers = range(partitions_of(log)) if partition is None else [partition]
    directories = {n: store_directory(settings, n) for n in numbers}
    directories = {n: path for n, path in directories.items() if path.is_dir()}
    if not directories:
        raise Refused(f"there is no store in {settings.state_dir}: no worker has run there yet")
    try:
        state = StateDir(settings.state_dir)
    except StateDirTaken as taken:
        raise Refused(
            f"a worker runs in {settings.state_dir} and makes snapshots by itself, every "
            f"{settings.snapshot_records} records. Nothing was changed. To make one now, stop it "
            "first."
        ) from taken
    try:
        for number, directory in directories.items():
            store = opened_store(directory, 0, 0)
            staging = staging_of(directory)
            shutil.rmtree(staging, ignore_errors=True)
            try:
                if store.belongs == belongs:
                    store.checkpoint(staging)
                    yield _made(snapshots.save(staging, number, time.time_ns() // 1_000_000))
            finally:
                store.close()
                shutil.rmtree(staging, ignore_errors=True)
    finally:
        state.close()


def _made(saved: Saved) -> Made:
    manifest = saved.manifest
    return Made(manifest.partition, manifest.offset, manifest.size_bytes, saved.bytes_written)


def collect(snapshots: Snapshots) -> Collected:
    """Delete what no worker will load: replaced snapshots, and files that belong to none."""
    return snapshots.collect(time.time())


def delete(log: Log, snapshots: Snapshots, partitions: Collection[int] | None) -> int:
    """Delete the snapshots of this log, or those of some partitions; returns how many."""
    found = [
        each
        for each in _of_log(snapshots, belongs_to(log))
        if partitions is None or each.partition in partitions
    ]
    snapshots.delete(found)
    return len(found)


def _of_log(snapshots: Snapshots, belongs: Belongs) -> list[Candidate]:
    return [each for each in snapshots.everything() if each.is_of(belongs)]

