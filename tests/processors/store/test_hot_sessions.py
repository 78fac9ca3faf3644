"""The sessions in memory are bounded by their bytes, and the bound changes nothing but the cost."""

import gc
import random
import sys
import tracemalloc
from itertools import chain, count
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from foldlog.bench.history import Session
from foldlog.processors.store import partition_cache
from foldlog.processors.store.hot_sessions import HotSessions
from foldlog.processors.store.partition_cache import PartitionCache, may_owe
from foldlog.processors.store.store import Cursor, DictBackend, Store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.manual_worker import ManualWorker
from foldlog.tests.kit.programs import run

UNBOUNDED = 10**12
GROUP = 2  # sessions loaded at once
NAMES = [f"s{n}" for n in range(6)]


def events_of(name, offsets):
    session = Session(name, offsets)
    return chain(session.opened(), session.short_turn(), session.turn(), session.short_turn())


def write_interleaved(rig, seed, events):
    """Write the events of several sessions, in a random order of the sessions."""
    chance, offsets = random.Random(seed), count()
    running = {name: events_of(name, offsets) for name in NAMES}
    for _ in range(events):
        name = chance.choice(sorted(running))
        found = next(running[name], None)
        if found is None:
            del running[name]
            continue
        writer, event = found
        headers = tuple(headers_for(event, writer))
        rig.log.store(SESSION_EVENTS, 0, name.encode(), encode(event), headers)


class Seen:
    """Stands for LostEffects: the sessions whose views were checked for effects to stop, after each
    write. `memory`: returns the worker's sessions in memory."""

    def __init__(self, memory):
        self._memory, self.events, self.most = memory, set(), 0

    def partition_regained(self, partition):
        pass

    def check(self, sessions, next_offset):
        self.most = max(self.most, self._memory().bytes)
        known = [views for views in sessions if views is not None]
        self.events |= {(views.session_id, views.turn.number, views.turn.open) for views in known}


def folded(seed, events, batch, bytes_max):
    """A worker that has folded the sessions and written what was pending, in batches; also the
    most bytes that its sessions took after a batch."""
    rig = ManualWorker(AGENT, lost_effects=Seen(lambda: rig.worker.hot_sessions))
    write_interleaved(rig, seed, events)
    rig.worker.hot_sessions.bytes_max = bytes_max
    rig.assign()
    most = 0
    end = -1
    with mock.patch.object(partition_cache, "PREFETCHED", GROUP):
        while end != (end := rig.log.end_offsets(SESSION_EVENTS)[0]):
            while rig.reader.positions()[0] < end:
                rig.read(batch)
                most = max(most, rig.worker.hot_sessions.bytes)
    return rig, most


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    events=st.integers(1, 200),
    batch=st.sampled_from((1, 7, 50, 1000)),
    bytes_max=st.sampled_from((1, 6_000, 20_000, 60_000)),
)
def test_a_bounded_worker_equals_an_unbounded_one(seed, events, batch, bytes_max):
    free, _ = folded(seed, events, batch, UNBOUNDED)
    bounded, most = folded(seed, events, batch, bytes_max)
    written = [
        [(each.key, each.value) for each in rig.log.records(SESSION_EVENTS, 0)]
        for rig in (free, bounded)
    ]
    assert written[0] == written[1], "the same decisions"
    store, same = bounded.worker.owned[0].store, free.worker.owned[0].store
    largest = 0
    for name in store.sessions():
        assert view_hashes(store.load(name)) == view_hashes(same.load(name))
        largest = max(largest, store.memory_of(name))
        assert view_hashes(bounded.worker.owned[0].views(name)) == view_hashes(store.load(name))
    assert sorted(store.sessions()) == sorted(same.sessions())
    assert store.busy() == same.busy()
    seen, largest = bounded.worker._lost_effects, largest + 2_000  # while its turn was open
    assert seen.events >= free.worker._lost_effects.events, "also those evicted within the round"
    assert most <= max(bytes_max, largest)
    assert seen.most <= bytes_max + (GROUP + 1) * largest, "within a batch, too"


def test_sessions_that_are_not_stored_yet_stay():
    cache = PartitionCache(0, Store(DictBackend()), HotSessions(1))
    rig = ManualWorker(AGENT, lost_effects=Seen(lambda: rig.worker.hot_sessions))
    write_interleaved(rig, 1, 40)
    records = rig.log.records(SESSION_EVENTS, 0)
    names = {record.key.decode() for record in records}
    for record in records:
        cache.feed(entry_of(record))
        cache.advance(record)
        cache.trim(cache.touched)
    assert all(map(cache.hot, names))
    cache.write(may_owe)
    cache.trim(cache.touched)
    assert len(list(filter(None, map(cache.hot, names)))) == 1, "the one used last"


def test_the_least_recently_used_of_all_partitions_leave_first():
    memory = HotSessions(UNBOUNDED)
    caches = [PartitionCache(number, Store(DictBackend()), memory) for number in (0, 1)]
    for cache in caches:
        offsets = count()
        for name in NAMES:
            views = Session(name, offsets)
            list(views.opened())
            cache.store.write({name: views.views}, {}, may_owe, cache.partition, Cursor(1))
            cache.store.forget(name)
    for name in NAMES:
        for cache in caches:
            cache.views(name)
    assert memory.loaded == len(memory) == 12
    caches[0].trim({"s0"})
    memory.bytes_max = memory.bytes * 3 // 12
    caches[1].trim({"s1"})
    left = [(cache.number, name) for name in NAMES for cache in caches if cache.hot(name)]
    assert left == [(0, "s0"), (1, "s1"), (1, "s5")]
    caches[1].release()
    assert memory.bytes == caches[0].store.memory_of("s0")


def measured(turns):
    """The estimate for a session as it was stored, the same as it was loaded, and the bytes that
    each of many copies really takes."""
    store, session, copies = Store(DictBackend()), Session("s", count()), 50
    list(session.opened())
    for _ in range(turns):
        list(session.turn())
        store.write({"s": session.views}, {}, may_owe, store.partition, Cursor(1))
    store.write({"s": session.views}, {}, may_owe, store.partition, Cursor(1))
    estimate = store.memory_of("s")
    store.load("s")
    gc.collect()
    tracemalloc.start()
    kept = [store.load("s") for _ in range(copies)]
    return estimate, store.memory_of("s"), tracemalloc.get_traced_memory()[0] / len(kept)


@pytest.mark.parametrize("turns", [0, 1, 30])
def test_the_estimate_is_near_the_memory_that_a_session_takes(turns):
    # In a process of its own: tracemalloc crashes Python 3.11 if a thread of a library starts.
    measure = f"from {measured.__module__} import measured; print(*measured({turns}))"
    ran = run([sys.executable, "-c", measure], check=True)
    stored, loaded, taken = map(float, ran.stdout.split())
    assert stored == loaded
    assert taken / 2 < stored < 2 * taken, (stored, taken)
