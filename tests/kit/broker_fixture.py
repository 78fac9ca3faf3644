"""One real Kafka for a test session, started when the first test asks for it.

A pytest plugin, loaded by tests/conftest.py. Tests that use it carry the marker `broker`. They
share the broker and use separate topics: take `topic_prefix` from `unique_name()`. A test that
kills or fills a broker starts its own with `own_broker`.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from foldlog.local.kafka import Broker, temporary_broker
from foldlog.tests.kit.downloads import cache_dir
from foldlog.tests.limits import alive

_numbers = itertools.count(1)

# An idle broker costs a third of the CPU time with these. A restart of it would take longer, but
# nobody restarts the shared broker.
_QUIET = {
    "broker.heartbeat.interval.ms": "3000",
    "broker.session.timeout.ms": "12000",
    "metadata.max.idle.interval.ms": "0",  # no empty records of the controller, two a second
}


def unique_name(stem: str = "t") -> str:
    """A name for topic prefixes, groups and sessions that no other test on this machine uses."""
    return f"{stem}{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def broker_cache_dir() -> Path:
    """The product's own directory of downloads, which are kept between runs."""
    return cache_dir()


@pytest.fixture(scope="session")
def broker(broker_cache_dir: Path) -> Iterator[Broker]:
    """The shared broker, at `broker.bootstrap_servers`. Do not kill it: the run would end."""
    with temporary_broker(broker_cache_dir, properties=_QUIET) as running:
        pid = running.status().pid
        assert pid is not None
        with alive(pid, "the shared broker", str(running.log_file)):
            yield running


@pytest.fixture
def own_broker(broker_cache_dir: Path) -> Iterator[Callable[..., Broker]]:
    """A factory of running brokers for one test, which may kill and restart them."""
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(temporary_broker(broker_cache_dir, **more))
