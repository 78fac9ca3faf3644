"""The default fixtures `log`, `settings` and `client`: a log in memory.

For sessions that `tests/consumers/played.py` plays. A test file that needs another log defines its
own.
"""

import pytest

from foldlog.consumers.client import Client
from foldlog.tests.consumers.played import memory_log, settings_in


@pytest.fixture
def log():
    return memory_log()


@pytest.fixture
def settings(tmp_path):
    return settings_in(tmp_path)


@pytest.fixture
def client(log, settings):
    with Client(settings, log) as client:
        yield client
