"""Defines a measured ratio, and a real installation to measure on."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from foldlog.local.kafka import temporary_broker
from foldlog.log import Settings, open_log
from foldlog.log.door import Headers, Log
from foldlog.log.settings import LOCAL
from foldlog.schemas.topics import topics

PARTITIONS = 2  # two cores
HOPS = 20  # records of `hop_ms`


class Missing(Exception):
    """The peer of a bench is not installed; the message states how to install it."""


class Plot(NamedTuple):
    """A picture of a bench for docs/performance.md: the names of both axes with their units, and
    the points (x, y) of each line by its name. Axes that span a factor of 20 are logarithmic."""

    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]


class Spread(NamedTuple):
    """The lowest and the highest ratio of a run's pairs."""

    low: float
    high: float


def spread_of(ratios: Iterable[float]) -> Spread:
    """The spread of the ratios of all pairs."""
    found = sorted(ratios)
    return Spread(found[0], found[-1])


def p99(values: Iterable[float]) -> float:
    """The 99th percentile; infinity if there is no value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else math.inf


class Ratio(NamedTuple):
    """`ours` divided by `baseline`, both medians of alternating runs. `aim`: the target values, see
    targets.py; they are printed with the result, never enforced.

    `note` states what the numbers include and exclude. `spread`: None if every run gives the same
    figure. `peers`: the figure of each other system, in the same unit.
    """

    name: str
    ours: float
    baseline: float
    unit: str
    ratio: float
    runs: int
    aim: str
    note: str = ""
    plot: Plot | None = None
    spread: Spread | None = None
    peers: Mapping[str, float] | None = None

    @property
    def shown(self) -> str:
        """The ratio with its spread, as text."""
        spread = self.spread and f" ({self.spread.low:.3g}-{self.spread.high:.3g})"
        return f"{self.ratio:.3g}{spread or ''}"


class Installation(NamedTuple):
    """A new broker with topics, and the settings to connect to it."""

    settings: Settings
    log: Log
    home: Path
    broker_dir: Path

    def env(self) -> dict[str, str]:
        """The environment of a process of this installation."""
        return {
            **os.environ,
            "FOLDLOG_DURABILITY": self.settings.durability or LOCAL,
            "FOLDLOG_HOME": str(self.home),
            "FOLDLOG_PARTITIONS": str(self.settings.partitions),
            "FOLDLOG_TOPIC_PREFIX": self.settings.topic_prefix,
            "KAFKA_BOOTSTRAP_SERVERS": self.settings.bootstrap_servers or "",
            "FOLDLOG_USER": "bench",
        }


def separate(here: Installation, prefix: str, durability: str = LOCAL) -> Installation:
    """Another log on the same broker, with topics and a home of its own. The caller closes its log.
    """
    home = here.home / prefix
    home.mkdir()
    settings = replace(
        here.settings, topic_prefix=prefix, home=home, state_dir=home / "worker",
        blobs_dir=home / "blobs", durability=durability,
    )
    log = open_log(settings)
    log.apply_topics(topics(settings.partitions, settings.replication)).demand()
    return Installation(settings, log, home, here.broker_dir)


def hop_ms(here: Installation, topic: str, key: str, value: bytes, headers: Headers = ()) -> float:
    """Milliseconds from producing a record to reading it back, the median of HOPS records. A first
    record warms the clients."""
    producer = here.log.producer()
    reader = here.log.reader(topic, here.log.end_offsets(topic))
    try:
        times_ms = []
        for _ in range(1 + HOPS):
            began = time.perf_counter()
            producer.append(topic, key, value, headers)
            while not reader.poll(1.0):
                pass
            times_ms.append((time.perf_counter() - began) * 1000)
        return statistics.median(times_ms[1:])
    finally:
        producer.close()
        reader.close()


@contextmanager
def installation(**env: str) -> Iterator[Installation]:
    """Start a real broker and make an empty home directory. Both are deleted when the block
    ends."""
    cache_dir = Settings.load(os.environ, None, {}).cache_dir
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as scratch:
        home = Path(scratch)
        with temporary_broker(cache_dir) as broker:
            settings = Settings.load(
                {
                    "FOLDLOG_HOME": str(home),
                    "HOME": str(home),
                    "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                    "FOLDLOG_PARTITIONS": str(PARTITIONS),
                    "FOLDLOG_USER": "bench",
                    **env,
                },
                None,
                {},
            )
            log = open_log(settings)
            try:
                log.apply_topics(topics(PARTITIONS))
                yield Installation(settings, log, home, broker.dir)
            finally:
                log.close()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, all its threads."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock of clock_getcpuclockid(3) on Linux
