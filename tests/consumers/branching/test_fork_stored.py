"""A worker's store holds all of a fork, not the place in its parent's stream alone."""

from types import SimpleNamespace

from foldlog.processors.fold.views import initial
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.schemas.value import replace


def noted(before, views):
    owned = SimpleNamespace(_hot={}, dirty={}, streamed={}, since={}, next_offset=1)
    PartitionCache.changed(owned, "s1", before, views)
    return set(owned.dirty), set(owned.streamed)


def test_a_fork_that_begins_with_a_stream_place_is_written_whole():
    """After a restart the worker took the fork for a session of which nothing is known."""
    blank = initial("s1")
    streamed = replace(blank, stream=replace(blank.stream))
    assert noted(blank, streamed) == (set(), {"s1"})
    assert noted(blank, replace(streamed, turn=replace(blank.turn))) == ({"s1"}, set())
