"""Brokers that live as long as a `with` block, for tests and for building the startup cache."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .broker import Broker
from .cluster import BrokerCluster

TEMPORARY = "foldlog-kafka-"  # followed by the owner's pid, for people who look
_OWNER = "owner"


@contextmanager
def temporary_broker(
    cache_dir: Path,
    *,
    properties: Mapping[str, str] | None = None,
    java_options: tuple[str, ...] = (),
    mirror: str | None = None,
) -> Iterator[Broker]:
    """Run a broker for a test, on free ports and in a temporary directory.

    The broker ends with the block or with this process.
    """
    with temporary_directory() as directory:
        broker = Broker(
            dir=directory,
            cache_dir=cache_dir,
            preferred_port=None,
            properties=properties or {},
            java_options=java_options,
            mirror=mirror,
            tied=True,
        )
        try:
            broker.up()
            yield broker
        finally:
            broker.kill()


@contextmanager
def temporary_cluster(cache_dir: Path, *, size: int = 3) -> Iterator[BrokerCluster]:
    """Like `temporary_broker`, with several brokers."""
    with temporary_directory() as directory:
        cluster = BrokerCluster(
            dir=directory, cache_dir=cache_dir, size=size, preferred_port=None, tied=True
        )
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.kill()


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory for temporary brokers, removed after the block, or by a later run if this process
    is killed."""
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-"))
    try:
        with _owned(directory):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _owned(directory: Path) -> Iterator[None]:
    """Hold a lock that shows that the owner of the directory lives. The system releases it when the
    process ends. A pid would not do: the owner may have another pid namespace."""
    unlocked = directory / f"{_OWNER}.new"
    with open(unlocked, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        unlocked.rename(directory / _OWNER)  # it is locked when others first see it
        yield


def _sweep() -> None:
    """Remove the directories of temporary brokers whose process has ended."""
    for owner in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*-*/{_OWNER}"):
        with suppress(OSError), open(owner, "a") as file:  # locked, or removed by another sweep
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
