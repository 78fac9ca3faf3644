"""Fixtures of the crash tests: a stage with one worker that is killed again and again."""

import pytest

from foldlog.tests.crash.rig import Rig, stage_on


@pytest.fixture(scope="module")
def rig(broker, tmp_path_factory):
    """A stage with one worker, shared by the tests of a module."""
    made = Rig(broker.bootstrap_servers, lambda: tmp_path_factory.mktemp("crash"))
    yield made
    made.close()


@pytest.fixture
def stage(broker, tmp_path):
    """A stage for one test, on the shared broker."""
    with stage_on(broker.bootstrap_servers, tmp_path) as made:
        yield made
