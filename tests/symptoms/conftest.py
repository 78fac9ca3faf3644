"""The server that plays the cheap model."""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.tests.symptoms.by_background import cheap_model


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(cheap_model) as server:
        yield server
