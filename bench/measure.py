"""One measured ratio, and a real installation to measure on."""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from foldlog.local.kafka import temporary_broker
from foldlog.log import Settings, open_log
from foldlog.log.door import Log
from foldlog.schemas.topics import topics

PARTITIONS = 2  # two cores


class Missing(Exception):
    """The peer of a bench is not installed; the message states how to install it."""


class Ratio(NamedTuple):
    """`ours` over `baseline`, medians of alternating runs. `aim` is printed, never enforced.

    `note` states what the numbers include and what they exclude.
    """

    name: str
    ours: float
    baseline: float
    unit: str
    ratio: float
    runs: int
    aim: str
    note: str = ""


def paired(
    name: str,
    ours: Callable[[], float],
    baseline: Callable[[], float],
    *,
    unit: str,
    runs: int,
    aim: str,
    note: str = "",
) -> Ratio:
    """Measure both alternately, baseline first, so that a slow minute affects both."""
    pairs = [(baseline(), ours()) for _ in range(runs)]
    base = statistics.median(pair[0] for pair in pairs)
    mine = statistics.median(pair[1] for pair in pairs)
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    return Ratio(name, mine, base, unit, ratio, runs, aim, note)


class Installation(NamedTuple):
    """A broker of its own with its topics created, and the settings to connect to it."""

    settings: Settings
    log: Log
    home: Path
    broker_dir: Path


@contextmanager
def installation(**env: str) -> Iterator[Installation]:
    """A real broker and an empty home directory, both deleted afterwards."""
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
