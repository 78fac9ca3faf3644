"""Brokers that live as long as a `with` block, for tests and for building the startup cache."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import process
from .broker import Broker
from .cluster import BrokerCluster

TEMPORARY = "foldlog-kafka-"  # followed by the owner's pid, so that a later run can clean up


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
    with _directory() as directory:
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
    with _directory() as directory:
        cluster = BrokerCluster(
            dir=directory, cache_dir=cache_dir, size=size, preferred_port=None, tied=True
        )
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.kill()


@contextmanager
def _directory() -> Iterator[Path]:
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Remove the directories of temporary brokers whose process has ended."""
    for directory in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*-*"):
        pid = directory.name.removeprefix(TEMPORARY).partition("-")[0]
        if pid.isdigit() and process.wait_gone(int(pid), 0):
            shutil.rmtree(directory, ignore_errors=True)
