"""The contract of backends and stores: test cases that test_dict.py and test_rocks.py inherit.

Each case gets `open`, a function that opens the same data again, as a restarted worker does.
"""

from collections.abc import Callable
from functools import lru_cache

import pytest

from foldlog.processors.fold.projections.partition import INITIAL, PartitionView
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import Backend, Belongs, Cursor, Store
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas.codec import ChunkSeen
from foldlog.tests.kit.agents import LIMITS
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, Step, opened
from foldlog.tests.laws.law import history_of
from foldlog.tests.laws.random_history import RandomHistory

BELONGS = Belongs("cluster", "topic", "folds")
SEEDS = (1, 2, 3)


class BackendContract:
    """A backend is an ordered map of bytes to bytes, written in batches."""

    @pytest.fixture
    def open(self, tmp_path) -> Callable[[], Backend]:
        raise NotImplementedError

    def test_get_returns_the_value_of_a_key_or_none(self, open):
        backend = open()
        backend.write([(b"a", b"1"), (b"b", b""), (b"\xff\x00", b"\x00")], [])
        assert [backend.get(key) for key in (b"a", b"b", b"\xff\x00", b"c", b"")] == [
            b"1", b"", b"\x00", None, None,
        ]

    def test_a_later_put_wins_and_a_deleted_key_is_none(self, open):
        backend = open()
        backend.write([(b"a", b"1"), (b"b", b"2")], [])
        backend.write([(b"a", b"3")], [b"b", b"never there"])
        assert (backend.get(b"a"), backend.get(b"b")) == (b"3", None)

    def test_a_scan_returns_the_keys_of_a_prefix_in_byte_order(self, open):
        backend = open()
        keys = [b"r\0s\0b", b"r\0s\0a", b"r\0s\0\xff", b"r\0s1\0a", b"r\0r\0a", b"q", b"s", b"\xff"]
        backend.write([(key, key) for key in keys], [])
        assert list(backend.scan(b"r\0s\0")) == [
            (key, key) for key in (b"r\0s\0a", b"r\0s\0b", b"r\0s\0\xff")
        ]
        assert [key for key, _ in backend.scan(b"")] == sorted(keys)
        assert [key for key, _ in backend.scan(b"\xff")] == [b"\xff"]
        assert list(backend.scan(b"x")) == []
        assert [key for key, _ in backend.scan(b"", start=sorted(keys)[2])] == sorted(keys)[2:]
        assert list(backend.scan(b"r\0s\0", start=b"r\0t")) == []

    def test_a_batch_survives_a_reopening(self, open):
        backend = open()
        backend.write([(b"a", b"1")], [])
        backend.close()
        again = open()
        assert again.get(b"a") == b"1"
        again.close()


class Counting:
    """Records what is put into a real backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.batches: list[list[tuple[bytes, bytes]]] = []
        self.get, self.scan, self.close = backend.get, backend.scan, backend.close
        self.get_many = backend.get_many

    def write(self, puts, deletes) -> None:
        self.batches.append(list(puts))
        self._backend.write(self.batches[-1], deletes)

    @property
    def puts(self) -> list[tuple[bytes, bytes]]:
        return [put for batch in self.batches for put in batch]


class Full(Counting):
    """A backend whose disk can be full."""

    full = False

    def write(self, puts, deletes) -> None:
        if self.full:
            raise OSError("the disk is full")
        super().write(puts, deletes)


@lru_cache
def world(seed: int) -> RandomHistory:
    return history_of(seed)


def write_step(store: Store, step: Step, holders: PartitionView = INITIAL) -> None:
    """Write a step's views as a worker does: after a chunk, it writes only the stream position."""
    views = {step.views.session_id: step.views}
    chunk = isinstance(step.entry.event, ChunkSeen) and step.before.turn is step.views.turn
    changed, streamed = ({}, views) if chunk else (views, {})
    store.write(changed, streamed, may_owe, holders, Cursor(step.entry.offset + 1, 7))


class StoreContract:
    """A store writes views and cursor together."""

    @pytest.fixture
    def open(self, tmp_path) -> Callable[[], Backend]:
        raise NotImplementedError

    @pytest.mark.parametrize("seed", SEEDS)
    def test_views_are_loaded_as_written_with_their_cursor(self, open, seed):
        """The views are written in batches of several events, with restarts between some of the
        batches."""
        store, steps = Store(open()), world(seed).steps
        store.claim(BELONGS)
        for number, step in enumerate(steps):
            if number % 3 == 0 or number == len(steps) - 1:
                views, cursor = step.views, Cursor(step.entry.offset + 1)
                store.write({"s1": views}, {}, may_owe, step.holders, cursor)
            if number % 20 == 19:
                store.close()
                store = Store(open())
                assert view_hashes(store.load("s1")) == view_hashes(views)
        store.close()
        store = Store(open())
        assert store.load("s1") == steps[-1].views
        assert store.cursor == Cursor(steps[-1].entry.offset + 1)
        assert store.partition == steps[-1].holders and store.belongs == BELONGS
        store.close()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_folding_continues_from_a_store_as_from_memory(self, open, seed):
        store, steps = Store(open()), world(seed).steps
        cut = len(steps) // 2
        for step in steps[:cut]:
            write_step(store, step)
        store.close()
        store = Store(open())
        views = store.load("s1") or initial("s1")
        for step in steps[cut:]:
            views, _ = fold(views, step.entry)
            store.write({"s1": views}, {}, may_owe, INITIAL, Cursor(step.entry.offset + 1))
        assert view_hashes(store.load("s1")) == view_hashes(world(seed).views)
        store.close()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_beyond_2_rows_are_written_once_and_never_rewritten(self, open, seed):
        backend = Counting(open())
        store = Store(backend)
        for number, step in enumerate(world(seed).steps):
            write_step(store, step)
            if number == 30:  # a session that was evicted from the cache and is loaded again
                store.forget("s1")
                store.load("s1")
        rows = [key for key, _ in backend.puts if key.startswith(b"r\0")]
        assert rows and len(rows) == len(set(rows)), "a row was written twice"
        store.close()

    def test_beyond_2_a_turn_of_a_long_session_writes_no_more_bytes(self, open):
        backend = Counting(open())
        store, s = Store(backend), opened()
        weights = []
        for turn in range(1, 41):
            before, start = sum(len(k) + len(v) for k, v in backend.puts), len(s.steps)
            s.say("words", f"m{turn}")
            s.answer("some answer")
            for step in s.steps[start:]:
                write_step(store, step)
            weights.append(sum(len(k) + len(v) for k, v in backend.puts) - before)
        assert weights[39] <= 1.2 * weights[9], weights
        store.close()

    def test_law_10_a_chunk_writes_only_the_stream_position_and_the_cursor(self, open):
        backend = Counting(open())
        store, s = Store(backend), opened()
        s.say()
        s.work()
        write_step(store, s.steps[-1])
        s.chunk()
        write_step(store, s.steps[-1])
        assert [key[:1] for key, _ in backend.batches[-1]] == [b"c", b"\0"]
        assert store.load("s1") == s.views
        store.close()

    def test_law_10_a_stream_position_is_written_only_when_it_changed(self, open):
        backend = Counting(open())
        store, s = Store(backend), opened()
        written_by = []
        for act in (s.say, s.work, s.chunk, s.chunk, s.answer, s.say):
            before = len(s.steps)
            act()
            for step in s.steps[before:]:
                write_step(store, step)
                if any(key.startswith(b"c\0") for key, _ in backend.batches[-1]):
                    written_by.append(type(step.entry.event).__name__)
                assert store.load("s1") == step.views
        assert written_by == ["MessageReceived", "ChunkSeen", "ChunkSeen"], "then chunks"
        store.close()

    def test_S1_G_a_failed_batch_changes_neither_views_nor_cursor(self, open):
        backend = Full(open())
        store, s = Store(backend), opened()
        write_step(store, s.steps[-1])
        s.say()
        backend.full = True
        with pytest.raises(OSError, match="full"):
            write_step(store, s.steps[-1])
        assert store.cursor.offset == s.steps[0].entry.offset + 1
        store.close()
        store = Store(open())
        assert store.load("s1") == s.steps[0].views
        assert store.cursor.offset == s.steps[0].entry.offset + 1
        store.close()

    def test_busy_sessions_are_listed_without_loading_any(self, open):
        store = Store(open())
        busy, idle, doubt = History("busy"), History("idle"), unreported_doubt()
        for s in (busy, idle):
            s.take().open()
            s.say()
        idle.answer("done")
        for s in (busy, idle, doubt):
            write_step(store, s.steps[-1])
        assert sorted(store.busy()) == ["busy", "doubt"]
        assert sorted(store.sessions()) == ["busy", "doubt", "idle"]
        busy.answer("done")
        write_step(store, busy.steps[-1])
        assert store.busy() == ["doubt"]
        store.close()

    def test_sessions_whose_ids_share_a_prefix_do_not_mix(self, open):
        store = Store(open())
        names = ["s", "s1", "s10", "s:1", "s@", "ü", "x" * 256]
        for name in names:
            s = History(name)
            s.take().say(name, "m1")
            s.open()
            s.say(name, "m1")
            write_step(store, s.steps[-1])
        store.close()
        store = Store(open())
        for name in names:
            views = store.load(name)
            assert isinstance(views, SessionViews) and views.session_id == name
            assert [row.content.inline for row in views.messages.received] in (
                [f'[{{"type":"text","text":"{name}"}}]'.encode()], [None], [],
            )
        assert sorted(store.sessions()) == sorted(names)
        store.close()

    def test_facts_are_stored_with_their_batch_in_order_until_they_are_deleted(self, open):
        store = Store(open())
        facts = [(offset, b"fact %d" % offset) for offset in (3, 255, 256, 70_000)]
        store.write({}, {}, may_owe, INITIAL, Cursor(300, 1), facts=facts[:2])
        store.write({}, {}, may_owe, INITIAL, Cursor(70_001, 1), facts=facts[2:])
        store.close()
        again = Store(open())
        assert again.facts(9) == facts and again.facts(2) == facts[:2]
        assert list(again.sessions()) == again.busy() == []
        again.delete_facts([3, 256])
        assert again.facts(9) == [facts[1], facts[3]] and again.count_facts() == 2
        again.close()

    def test_facts_of_a_failed_batch_are_not_stored(self, open):
        full = Full(open())
        store = Store(full)
        full.full = True
        with pytest.raises(OSError):
            store.write({}, {}, may_owe, INITIAL, Cursor(300, 1), facts=[(3, b"fact")])
        assert store.facts(9) == [] and store.cursor == Cursor()
        store.close()

    def test_an_unknown_session_is_none(self, open):
        store = Store(open())
        assert store.load("s1") is None and store.cursor == Cursor() and store.belongs is None
        store.close()


def unreported_doubt() -> History:
    """A session whose turn is over, with a doubt that no person has been notified of yet."""
    s = opened("doubt")
    s.say()
    s.answer(Use("post", "{}", "p"))
    s.cancel()
    s.later(LIMITS.grace_ms).discharge("C2")
    assert s.rows() == ["T7"]
    return s
