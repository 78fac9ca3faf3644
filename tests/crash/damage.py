"""Damages a store as a crash, another log or another version would. The worker must be dead."""

import shutil
from pathlib import Path

import msgspec

from foldlog.processors.store import views_codec
from foldlog.processors.store.store import Belongs, Cursor, RocksBackend
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash.stage import Stage
from foldlog.upkeep.snapshots import demand_snapshots, make

MORE_THAN_A_POLL = 6_000  # records: the reader returns 5,000 at most
LOADED = ("snapshot.fetched", "snapshot.loaded")  # points of a start that loads a snapshot


def store_of(stage: Stage, worker: str, partition: int) -> Path:
    """The store of a worker's partition."""
    topic = stage.settings.topic(SESSION_EVENTS)
    return stage.settings_of(worker).state_dir / "store" / topic / str(partition)


def _rewrite(directory: Path, key: bytes, change) -> None:
    backend = RocksBackend(directory)
    try:
        value = backend.get(key)
        backend.write([(key, views_codec.encode_row(change(value)))], [])
    finally:
        backend.close()


def of_other_folds(directory: Path) -> None:
    """Mark the store as written by an older version of the folds."""

    def older(value: bytes | None) -> Belongs:
        assert value is not None
        return msgspec.msgpack.decode(value, type=Belongs)._replace(folds="older")

    _rewrite(directory, b"\0belongs", older)


def of_another_history(directory: Path) -> None:
    """Change the checksum that the store has of the last record before its cursor."""

    def other(value: bytes | None) -> Cursor:
        cursor = msgspec.msgpack.decode(value or b"", type=Cursor)
        return cursor._replace(checksum=cursor.checksum ^ 1)

    _rewrite(directory, b"\0cursor", other)


def beyond_the_end(directory: Path) -> None:
    """Move the cursor beyond the end of the log."""

    def further(value: bytes | None) -> Cursor:
        cursor = msgspec.msgpack.decode(value or b"", type=Cursor)
        return cursor._replace(offset=cursor.offset + 1_000_000)

    _rewrite(directory, b"\0cursor", further)


def unreadable(directory: Path) -> None:
    """Flip bits in the store's files that list its contents."""
    for path in (*directory.glob("MANIFEST-*"), *directory.glob("CURRENT")):
        path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))


def undecodable(directory: Path) -> None:
    """Replace the heads of sessions by values that RocksDB accepts but the codec cannot decode."""
    backend = RocksBackend(directory)
    try:
        heads = [b"h" + key[1:] for key, _ in backend.scan(b"b\0")]
        backend.write([(key, b"\xc1 not msgpack") for key in heads], [])
    finally:
        backend.close()


def deleted(directory: Path) -> None:
    """Delete the store."""
    shutil.rmtree(directory)


def lose_snapshots(stage: Stage) -> None:
    """Delete every snapshot."""
    shutil.rmtree(stage.settings.blobs_dir / "snapshots", ignore_errors=True)


def so_that(point: str, stage: Stage, worker: str) -> None:
    """Damage the stores so that the worker's next start reaches this point; most points need no
    damage."""
    if point in LOADED:
        snapshots = demand_snapshots(stage.settings_of(worker))
        assert list(make(stage.log, stage.settings_of(worker), snapshots))
    else:
        lose_snapshots(stage)
    if point == "refold.written":
        stage.fill(MORE_THAN_A_POLL)
    for partition in range(stage.settings.partitions):
        directory = store_of(stage, worker, partition)
        match point:
            case "refold.begun":
                of_another_history(directory)
            case "store.removed" | "refold.written":
                of_other_folds(directory)
            case _ if point in LOADED:
                deleted(directory)
