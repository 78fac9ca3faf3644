"""A worker stores a new fork in full, not only the stream position that the parent had."""

from foldlog.processors.fold.views import initial
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.store import DictBackend, Store
from foldlog.schemas.value import replace


def dirty_and_streamed(before, views):
    owned = PartitionCache(0, Store(DictBackend()))
    owned.next_offset = 1
    owned.record_change("s1", before, views)
    return set(owned.dirty), set(owned.streamed)


def test_a_fork_that_begins_with_a_stream_is_stored_whole():
    """The defect: after a restart, the worker did not know the fork."""
    blank = initial("s1")
    streamed = replace(blank, stream=replace(blank.stream))
    assert dirty_and_streamed(blank, streamed) == (set(), {"s1"})
    assert dirty_and_streamed(blank, replace(streamed, turn=replace(blank.turn))) == ({"s1"}, set())
