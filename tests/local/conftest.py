"""The fixture `broker_of`: brokers for one test, which are killed at its end."""

from contextlib import ExitStack

import pytest

from foldlog.local.kafka import Broker


@pytest.fixture
def broker_of(tmp_path, broker_cache_dir):
    """A factory of brokers in the test's directory. They are not started, and are killed at the
    test's end."""
    with ExitStack() as stack:

        def make(name: str = "kafka", **more) -> Broker:
            settings = {"cache_dir": broker_cache_dir, "preferred_port": None, **more}
            broker = Broker(**{"dir": tmp_path / name, **settings})
            stack.callback(broker.kill)
            return broker

        yield make
