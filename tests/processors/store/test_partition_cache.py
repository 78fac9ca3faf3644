"""A chunk touches no session, because it creates no obligation. Every other record touches its
session, also one that the fold ignores."""

from itertools import count

import pytest

from foldlog.bench.history import Session
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.store import DictBackend, Store
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS


@pytest.fixture
def cache():
    return PartitionCache(0, Store(DictBackend()))


def feeder(cache):
    """Returns a function that appends an event to the log and feeds it."""
    offsets = count()

    def feed(name, writer, event):
        at = next(offsets)
        headers = tuple(headers_for(event, writer))
        record = Record(SESSION_EVENTS, 0, at, at, name.encode(), encode(event), headers)
        cache.advance(record)
        cache.feed(entry_of(record))

    return feed


def streaming(feed, name):
    """Feed a session up to its first chunk, and return the chunk."""
    session = Session(name, count())
    for writer, event in (*session.opened(), *session.turn()):
        if isinstance(event, ev.GenChunk):
            return event
        if not isinstance(event, ev.PartitionTaken):
            feed(name, writer, event)
    raise AssertionError("the session streams nothing")


def written(cache):
    """Write the changes, and return which sessions were touched."""
    cache.write(lambda views: False)
    touched, cache.touched = cache.touched, set()
    return touched


def test_only_records_other_than_chunks_touch_a_session(cache):
    feed = feeder(cache)
    chunk = streaming(feed, "s")
    feed("s", "models", chunk)
    assert written(cache) == {"s"}, "its other records"
    feed("s", "models", chunk)
    assert written(cache) == set()
    claim = ev.GenStart(
        turn=1, step=1, attempt=1, owner="late/1", epoch=0, deadline=9,
        called=b"8 bytes!", request_sha256="r" * 64, builder="bench",
    )
    feed("s", "models", chunk)
    feed("s", "models", claim)
    assert written(cache) == {"s"}, "its worker must not wait for a claim that was ignored"
    assert cache.views("s").stream.chunks == 3


def test_a_session_that_only_streams_stays_in_the_cache(cache):
    feed = feeder(cache)
    chunk = streaming(feed, "old")
    cache.trim(written(cache))
    streaming(feed, "new")
    cache.trim(written(cache))
    cache._memory.bytes_max = cache._memory.bytes
    feed("old", "models", chunk)
    cache.trim(written(cache))
    streaming(feed, "newer")
    cache.trim(written(cache))
    assert cache.hot("old") is not None and cache.hot("new") is None
