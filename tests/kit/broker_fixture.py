"""One real Kafka for a run of tests.

A pytest plugin, loaded by tests/conftest.py. Tests that use it carry the marker `broker`. They
share the broker and use separate topics: take `topic_prefix` from `unique_name()`. A test that
kills or fills a broker starts its own with `own_broker`.

A run in one process starts the broker when the first test asks for it. The processes of
pytest-xdist share one too: the process that started them starts it at once, because a broker costs
as much CPU time as many tests.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from foldlog.local.kafka import Broker, BrokerError, temporary_broker
from foldlog.local.kafka.temporary import temporary_directory
from foldlog.tests.kit.downloads import cache_dir
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.kit.waiting import until
from foldlog.tests.limits import alive

_numbers = itertools.count(1)

# An idle broker costs a third of the CPU time with these. A restart of it would take longer, but
# nobody restarts the shared broker.
_QUIET = {
    "broker.heartbeat.interval.ms": "3000",
    "broker.session.timeout.ms": "12000",
    "metadata.max.idle.interval.ms": "0",  # no empty records of the controller, two a second
}

_HEAP = ("-Xmx512m",)  # the topics of all tests of four processes
_DIRECTORY = "directory of the shared broker"  # what the processes of pytest-xdist are told
_FAILURE = "failure"  # the file that says why it did not start
START_S = allowed(60.0)


def unique_name(stem: str = "t") -> str:
    """A name for topic prefixes, groups and sessions that no other test on this machine uses."""
    return f"{stem}{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def broker_cache_dir() -> Path:
    """The product's own directory of downloads, which are kept between runs."""
    return cache_dir()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, broker_cache_dir: Path) -> Iterator[Broker]:
    """The shared broker, at `broker.bootstrap_servers`. Do not kill it: the run would end."""
    directory = getattr(request.config, "workerinput", {}).get(_DIRECTORY)
    with ExitStack() as stack:
        if directory is None:
            running = stack.enter_context(
                temporary_broker(broker_cache_dir, properties=_QUIET, java_options=_HEAP)
            )
        else:
            running = _started_by_another_process(Path(directory), broker_cache_dir)
        pid = running.status().pid
        assert pid is not None
        stack.enter_context(alive(pid, "the shared broker", str(running.log_file)))
        yield running


def _started_by_another_process(directory: Path, cache: Path) -> Broker:
    broker = Broker(dir=directory, cache_dir=cache)
    failure = directory / _FAILURE
    until("the shared broker responds", lambda: broker.state() or failure.exists())
    if failure.exists():
        raise BrokerError(failure.read_text())
    return broker


@pytest.fixture
def own_broker(broker_cache_dir: Path) -> Iterator[Callable[..., Broker]]:
    """A factory of running brokers for one test, which may kill and restart them."""
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(temporary_broker(broker_cache_dir, **more))


class _BrokerOfAllProcesses:
    """The broker of a run with pytest-xdist, in the process that starts the others."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._directory = self._stack.enter_context(temporary_directory())
        self._broker = Broker(
            dir=self._directory,
            cache_dir=cache_dir(),
            preferred_port=None,
            properties=_QUIET,
            java_options=_HEAP,
            tied=True,
        )
        self._starting = threading.Thread(target=self._start, name="start of the shared broker")
        self._starting.start()

    def _start(self) -> None:
        try:
            self._broker.up()
        except BrokerError as error:
            (self._directory / _FAILURE).write_text(str(error))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_DIRECTORY] = str(self._directory)

    def pytest_unconfigure(self) -> None:
        self._starting.join(START_S)
        self._broker.kill()
        self._stack.close()


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    wanted = not options.collectonly and "not broker" not in options.markexpr
    if wanted and getattr(options, "numprocesses", None):
        config.pluginmanager.register(_BrokerOfAllProcesses())
