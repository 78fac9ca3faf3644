"""The fixtures of the inspector's tests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from foldlog.producers import Sessions
from foldlog.tests.web.gateway.fixtures import ana, bob, gateway, log, place, settings
from foldlog.tests.web.gateway.served import served
from foldlog.tests.web.inspector.sessions import Place, Timed
from foldlog.web.inspector.timeline import Timeline

__all__ = ["ana", "bob", "gateway", "log", "place", "settings"]

PRICE = {"input": 2, "output": 10, "cache_write_5m": 3, "cache_write_1h": 4, "cache_read": 1}


@contextmanager
def page_of(installation: Place | Timed) -> Iterator[str]:
    """Serve the inspector of one installation, and yield its URL. The installation has a price for
    the model of the tests."""
    table = {"version": "test", "prices": [{"model": "claude-test", **PRICE}]}
    prices = installation.settings.home / "prices.json"
    prices.write_text(json.dumps(table), "utf-8")
    settings = replace(installation.settings, prices=prices)
    with served(installation.log, settings, settings.home / "gateway") as running:
        yield running.url


@pytest.fixture(scope="module")
def url(place):
    with page_of(place) as url:
        yield url


@pytest.fixture
def producer(place):
    producer = Sessions(place.log, place.settings)
    yield producer
    producer.close()


@pytest.fixture(scope="module")
def timed_url(timed):
    """The inspector's URL of the session that the fixture `timed` provides; each test file defines
    its own `timed`."""
    with page_of(timed) as url:
        yield f"{url}/#/s/s1"


@pytest.fixture(scope="module")
def moments(timed):
    return Timeline(timed.log, "s1").extend().moments
