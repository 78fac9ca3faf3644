"""The default fixtures `log`, `settings` and `client`, over a log in memory.

They serve the sessions that `tests/kit/played.py` plays. A test file that needs another log
defines its own fixtures.
"""

import pytest

from foldlog.client.log_client import LogClient
from foldlog.tests.kit.played import memory_log, settings_in


@pytest.fixture
def log():
    return memory_log()


@pytest.fixture
def settings(tmp_path):
    return settings_in(tmp_path)


@pytest.fixture
def client(log, settings):
    with LogClient(settings, log) as client:
        yield client
