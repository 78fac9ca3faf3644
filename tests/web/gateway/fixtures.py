"""Fixtures for tests of a gateway: a log, a gateway over the log that requires tokens, clients of
users.

The tests of a file share one gateway. A conftest.py imports these fixtures.
"""

import pytest

from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.tests.web.inspector.sessions import Place


@pytest.fixture(scope="module")
def log():
    return memory_log(threaded=True)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return settings_in(tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="module")
def place(log, settings):
    return Place(log, settings)


@pytest.fixture(scope="module")
def gateway(log, settings):
    with served(log, settings, settings.home / "gateway", secret=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def ana(gateway):
    with gateway.http("ana") as http:
        yield http


@pytest.fixture(scope="module")
def bob(gateway):
    with gateway.http("bob") as http:
        yield http
