"""The store in RocksDB passes the contract, belongs to one log, and survives what may happen."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.log import Corrupt
from foldlog.processors.store.partition_cache import may_owe
from foldlog.processors.store.store import (
    Belongs,
    Cursor,
    RocksBackend,
    Store,
    fold_version,
    new_store,
    open_readonly,
    open_store,
)
from foldlog.processors.store.views_codec import view_hashes
from foldlog.tests.laws.history import opened
from foldlog.tests.processors.store import writer
from foldlog.tests.processors.store.contract import BELONGS, BackendContract, StoreContract, keep

END = 1_000  # of the log, beyond every cursor of these tests


class InRocks:
    @pytest.fixture
    def open(self, tmp_path):
        return lambda: RocksBackend(tmp_path / "store")


class TestRocksBackend(InRocks, BackendContract):
    pass


class TestRocksStore(InRocks, StoreContract):
    pass


# -- whose log it is -------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path) -> Path:
    """A store at rest, with one session, at a cursor."""
    directory, s = tmp_path / "store-0", opened()
    store = new_store(directory, BELONGS, END)
    keep(store, s.steps[-1])
    store.close()
    return directory


def reopened(directory: Path, belongs: Belongs = BELONGS, end: int = END) -> tuple[Store, list]:
    said: list[str] = []
    return open_store(directory, belongs, end, said.append), said


def test_a_store_of_this_log_is_opened_and_nothing_is_said(kept):
    store, said = reopened(kept)
    assert store.load("s1") is not None and store.cursor.offset == 6 and said == []
    store.close()


@pytest.mark.parametrize(
    ("belongs", "end", "why"),
    [
        (BELONGS._replace(cluster_id="new"), END, "its cluster_id is cluster, the log's is new"),
        (BELONGS._replace(topic_id="other"), END, "its topic_id is topic, the log's is other"),
        (BELONGS._replace(folds="other"), END, "its folds is folds, the log's is other"),
        (BELONGS, 3, "its cursor 6 is beyond the log's end 3"),
    ],
)
def test_bad_input_a_store_of_another_log_is_made_anew_and_said(kept, belongs, end, why):
    store, said = reopened(kept, belongs, end)
    assert said == [f"the store store-0 is rebuilt from the log: {why}"]
    assert store.load("s1") is None and store.cursor == Cursor() and store.belongs == belongs
    store.close()
    again, said = reopened(kept, belongs, end)
    assert said == [] and again.belongs == belongs
    again.close()


@pytest.mark.parametrize(
    ("belongs", "end", "below"),
    [
        (BELONGS, END, 6),
        (BELONGS._replace(folds="other"), END, 6),  # other folds of the same log
        (BELONGS._replace(folds="other"), 3, 0),
        (BELONGS._replace(topic_id="other"), END, 0),
        (BELONGS._replace(cluster_id="other"), END, 0),
    ],
)
def test_dead_letters_of_this_log_are_not_written_again_by_a_refold(kept, belongs, end, below):
    store, _ = reopened(kept, belongs, end)
    assert store.letters_from == below
    store.close()


def test_a_cursor_at_the_very_end_of_the_log_is_right(kept):
    store, said = reopened(kept, end=6)
    assert said == [] and store.cursor.offset == 6
    store.close()


def test_a_directory_that_is_no_store_is_made_anew_and_said(kept):
    (kept / "CURRENT").write_bytes(b"nonsense\n")
    store, said = reopened(kept)
    assert len(said) == 1 and "it is damaged" in said[0]
    assert store.load("s1") is None
    store.close()


def test_a_store_that_holds_what_nobody_can_read_is_made_anew(kept):
    backend = RocksBackend(kept)
    backend.write([(b"\0cursor", b"\xc1 not msgpack")], [])
    backend.close()
    store, said = reopened(kept)
    assert len(said) == 1 and store.cursor == Cursor()
    store.close()


def test_S2_11_a_damaged_block_is_corrupt_and_no_end_of_what_is_kept(tmp_path):
    """A list of busy sessions ended where its file was damaged: the rest was never woken."""
    backend, keys = RocksBackend(tmp_path), [b"b\0%04d" % n for n in range(2_000)]
    backend.write([(key, os.urandom(100)) for key in keys], [])
    backend._db.flush()
    backend.close()
    (table,) = tmp_path.glob("*.sst")
    data = bytearray(table.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 500] = bytes(500)
    table.write_bytes(data)
    backend = RocksBackend(tmp_path)
    with pytest.raises(Corrupt, match="checksum"):
        Store(backend).busy()
    with pytest.raises(Corrupt, match="checksum"):
        for key in keys:
            backend.get(key)
    backend.close()


def test_a_store_that_another_process_has_is_left_alone(kept):
    first, _ = reopened(kept)
    with pytest.raises(Exception, match=r"(?i)lock"):
        reopened(kept)
    assert first.load("s1") is not None, "nothing was deleted"
    first.close()


def test_a_store_is_read_while_its_worker_writes(kept):
    store, _ = reopened(kept)
    reader = open_readonly(kept)
    assert reader.load("s1") == store.load("s1") and reader.cursor == store.cursor
    reader.close()
    store.close()


def test_a_store_whose_making_was_cut_short_is_finished(tmp_path):
    RocksBackend(tmp_path / "store-0").close()
    store, said = reopened(tmp_path / "store-0")
    assert said == [] and store.belongs == BELONGS
    store.close()


def test_the_version_of_the_folds_names_the_shapes_of_the_events():
    layout, rules, shapes = fold_version().split("-")
    assert layout.isdigit() and rules.isdigit() and len(shapes) == 12


# -- killed while it writes ------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("round_", range(4))
def test_S1_G_after_kill_9_cursor_and_views_are_of_one_batch(tmp_path, round_):
    """A child folds a history into a store, batch by batch, until it is killed."""
    directory, seed = tmp_path / "store-0", 40 + round_
    child = subprocess.Popen(
        [sys.executable, "-m", "foldlog.tests.processors.store.writer", str(directory), str(seed)],
        stdout=subprocess.PIPE,
    )
    batches = random.Random(seed).randint(1, 400)
    try:
        for _ in range(batches):  # the child says a line after each batch
            assert child.stdout.readline()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    store, said = reopened(directory, BELONGS, 10**9)
    assert said == [] and store.cursor.offset >= batches
    for session_id in writer.session_ids(seed):
        there = store.load(session_id)
        expected = writer.views_at(seed, session_id, store.cursor.offset)
        assert (there is None) == (expected is None), session_id
        if there is not None:
            assert view_hashes(there) == view_hashes(expected)
            assert (session_id in store.busy()) == may_owe(there)
    store.close()
