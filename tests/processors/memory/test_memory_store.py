"""The memory store and its service: atomic changes, rebuilds, and embedders."""

import sqlite3
import threading

import pytest
from hypothesis import HealthCheck, given, settings

from foldlog.log import DUPLICATE, Faults
from foldlog.processors.memory import service as service_module, store as module
from foldlog.processors.memory.fold import text_of
from foldlog.processors.memory.service import FILE, MemoryService
from foldlog.processors.memory.store import MemoryStore, memory_version
from foldlog.processors.search.embed import HashedEmbedder, load_embedder
from foldlog.processors.search.index import embedder_in
from foldlog.processors.search.word_vectors import installed
from foldlog.processors.store.store import Belongs, fold_version
from foldlog.schemas.events import EVENT_TYPES
from foldlog.schemas.topics import MEMORY_EVENTS
from foldlog.tests.processors.memory.memory_log import (
    ANA,
    SHOP,
    folded,
    new_log,
    record,
    retired,
    serving,
    todo,
    writer_of,
    wrote,
)
from foldlog.tests.processors.memory.test_memory_fold import HISTORIES

BELONGS = Belongs("cluster", "topic", memory_version())
ENDS = {0: 10_000}


def open_store(path, belongs=BELONGS, ends=ENDS, say=None):
    return MemoryStore(path, belongs, ends, say or (lambda text: None))


def records(events, scope=ANA, start=0):
    return [record(n, event, scope) for n, event in enumerate(events, start)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HISTORIES)
def test_a_store_reopened_after_every_record_equals_the_fold(tmp_path, events):
    path = tmp_path / "m.sqlite"
    path.unlink(missing_ok=True)
    (tmp_path / "m.sqlite-wal").unlink(missing_ok=True)
    for n, each in enumerate(records(events)):
        store = open_store(path)
        assert store.cursors.get(0, 0) == n
        store.fold([each])
        store.close()
    store = open_store(path)
    view = store.view(ANA)
    documents = store._db.execute("SELECT id FROM search_documents").fetchall()
    store.close()
    want = folded(events)
    assert [(e.entry_id, e.path, e.text) for e in view.entries] == [
        (e.entry_id, e.path, e.text) for e in want.entries
    ]
    assert (view.ids, view.gone, view.seen) == (want.ids, want.gone, want.seen)
    assert view.preferences == want.preferences and view.refused == want.refused
    indexed = {f"{ANA}/{e.entry_id}" for e in want.entries if e.text.strip()}
    assert {id for (id,) in documents} == indexed


def test_law_11_views_index_and_cursor_change_atomically(tmp_path, monkeypatch):
    store = open_store(tmp_path / "m.sqlite")
    store.fold(records([wrote("a", "tea")]))

    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store._index, "upsert", fail)
    with pytest.raises(sqlite3.OperationalError):
        store.fold(records([wrote("b", "coffee"), retired("a")], start=1))
    assert store.cursors == {0: 1} and store.view(ANA).ids == ("a",)
    store.close()
    again = open_store(tmp_path / "m.sqlite")
    assert again.cursors == {0: 1} and again.view(ANA).ids == ("a",)
    assert [hit.id for hit in again.search("tea", [ANA], 5)] == [f"{ANA}/a"]


def test_a_retired_entry_is_not_found_any_more(tmp_path):
    store = open_store(tmp_path / "m.sqlite")
    store.fold(records([wrote("a", "likes tea"), wrote("b", "likes tea too")]))
    assert len(store.search("tea", [ANA], 5)) == 2
    store.fold(records([retired("a")], start=2))
    assert [hit.id for hit in store.search("tea", [ANA], 5)] == [f"{ANA}/b"]
    assert store.search("tea", [SHOP], 5) == []


def test_inserted_lines_keep_their_place_after_a_restart(tmp_path):
    path = tmp_path / "m.sqlite"
    store = open_store(path)
    store.fold(records([wrote("a", "a"), wrote("z", "z")]))
    # Each is inserted right after the first: 60 halvings of one gap exceed a double's precision.
    store.fold(records([wrote(f"e{n}", str(n), after="a") for n in range(60)], start=2))
    want = text_of(store.view(ANA), "core.md")
    assert want.split() == ["a", *map(str, reversed(range(60))), "z"]
    store.close()
    assert text_of(open_store(path).view(ANA), "core.md") == want


@pytest.mark.parametrize(
    ("belongs", "ends", "why"),
    [
        (BELONGS._replace(cluster_id="other"), ENDS, "its cluster_id is cluster"),
        (BELONGS._replace(topic_id="other"), ENDS, "its topic_id is topic"),
        (BELONGS._replace(folds="2-x"), ENDS, "its folds is"),
        (BELONGS, {0: 0}, "its cursor 0/1 is beyond the log's end 0"),
    ],
)
def test_a_store_of_another_log_is_rebuilt_and_reported(tmp_path, belongs, ends, why):
    store = open_store(tmp_path / "m.sqlite")
    store.fold(records([wrote("a", "tea")]))
    store.close()
    output = []
    store = open_store(tmp_path / "m.sqlite", belongs, ends, output.append)
    assert store.cursors == {} and store.view(ANA).ids == ()
    assert len(output) == 1 and why in output[0] and "rebuilt from the log" in output[0]


def test_bad_input_a_file_that_is_not_a_database_is_rebuilt(tmp_path):
    (tmp_path / "m.sqlite").write_bytes(b"not a database at all" * 200)
    output = []
    store = open_store(tmp_path / "m.sqlite", say=output.append)
    assert store.cursors == {} and "cannot be read" in output[0]


def test_a_locked_store_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "m.sqlite"
    store = open_store(path)
    store.fold(records([wrote("a", "tea")]))
    store.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    connect = sqlite3.connect
    monkeypatch.setattr(
        module.sqlite3, "connect", lambda *args, **more: connect(*args, timeout=0, **more)
    )
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        open_store(path)
    other.execute("ROLLBACK")
    other.close()
    assert open_store(path).view(ANA).ids == ("a",)


def test_undecodable_records_and_foreign_keys_are_skipped(tmp_path):
    output = []
    store = open_store(tmp_path / "m.sqlite", say=output.append)
    broken = record(0, wrote("a", "tea"))._replace(value=b"garbage")
    store.fold([broken, record(1, wrote("b", "tea"), scope="nobody"), record(2, wrote("c", "x"))])
    assert store.view(ANA).ids == ("c",) and store.cursors == {0: 3}
    assert len(output) == 1 and "0/0 cannot be decoded" in output[0]


def test_memory_events_do_not_change_the_version_of_the_session_stores():
    assert memory_version() not in fold_version()
    assert not any(row.name.startswith(("MEMORY", "TODO", "PREFERENCE")) for row in EVENT_TYPES)


# -- the service -----------------------------------------------------------------------------------


def test_S1_H_a_service_follows_the_log_and_resumes_at_its_cursor(tmp_path):
    log, output = new_log(), []
    writer = writer_of(log)
    writer.remember(ANA, "core.md", "likes tea")
    with serving(log, tmp_path, output) as memory:
        written = writer.remember(ANA, "core.md", "likes short answers")
        assert memory.await_folded(written)
        assert "likes short answers" in memory.reader.core([ANA, SHOP])
    writer.add_todo("shop", "paint it")
    with serving(log, tmp_path, output) as memory:
        assert "paint it" in memory.reader.todos(SHOP)
        assert "likes tea" in memory.reader.core([ANA])
    assert output == []


def test_law_3_a_duplicate_record_counts_once(tmp_path):
    log = new_log()
    log.faults = _Duplicates()
    writer = writer_of(log)
    writer.remember(ANA, "core.md", "likes tea")
    assert sum(len(log.records(MEMORY_EVENTS, p)) for p in range(2)) == 2
    with serving(log, tmp_path) as memory:
        assert text_of(memory.reader.view(ANA), "core.md") == "likes tea\n"


class _Duplicates(Faults):
    def fate(self, *_):
        return DUPLICATE


def test_a_trimmed_log_is_folded_again_and_reported(tmp_path):
    log, output = new_log(), []
    writer = writer_of(log)
    first = writer.remember(ANA, "core.md", "old")
    with serving(log, tmp_path, output):
        pass
    second = writer.remember(ANA, "core.md", "new")
    writer.remember(ANA, "core.md", "newest")
    assert first.partition == second.partition
    log.trim(MEMORY_EVENTS, second.partition, second.offset + 1)
    with serving(log, tmp_path, output) as memory:
        assert text_of(memory.reader.view(ANA), "core.md") == "newest\n"
    assert any("rebuilt" in line and "were deleted" in line for line in output)


def test_a_service_that_was_not_started_can_be_closed(tmp_path):
    log = new_log()
    MemoryService(log, log.producer(), tmp_path, print).close()
    assert not (tmp_path / FILE).exists()


class FailingEmbedder:
    """An embedder whose server is unavailable at first."""

    name, dimensions = "failing-1", 2

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def embed(self, texts):
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("its server is down")
        return [[1.0, 0.0]] * len(texts)


def test_a_failing_embedder_is_retried(tmp_path, monkeypatch):
    monkeypatch.setattr(service_module, "RETRY_S", 0.01)
    log, output = new_log(), []
    writer_of(log).remember(ANA, "core.md", "likes tea")
    with serving(log, tmp_path, output, FailingEmbedder(failures=2)) as memory:
        (hit,) = memory.reader.search("coffee", [ANA])
        assert hit.parts.vector == 1, "it returns the same vector for every text"
    assert [line for line in output if "failing-1 failed (OSError: its server is down)" in line]


@pytest.mark.skipif(not installed(), reason="the extra `embeddings` is not installed")
def test_S3_3_a_store_embedded_again_with_word_vectors_finds_a_paraphrase(tmp_path):
    """A worker embeds an existing store again after the extra for word vectors was installed."""
    output: list[str] = []

    def search_with(embedder):
        store = MemoryStore(tmp_path / "m.sqlite", BELONGS, ENDS, output.append, embedder=embedder)
        store.fold(records([wrote("a", "The physician sent an invoice of 300 euro")]))
        hits = [hit.id for hit in store.search("doctor bill", [ANA], 5)]
        has = embedder_in(store._db)
        store.close()
        return hits, has

    assert search_with(HashedEmbedder()) == ([], "hashed-1/512") and output == []
    hits, has = search_with(load_embedder(None))
    assert hits == ["user:ana/a"] and has.startswith("wordllama-")
    assert len(output) == 1 and "it was hashed-1/512: 1 documents are embedded again" in output[0]


def test_a_slow_embedder_blocks_no_prompt(tmp_path):
    """The poll thread reads memory for all sessions, and an embedder may be a remote server."""

    class Slow:
        name, dimensions, read = "slow-1", 2, []

        def embed(self, texts):
            views = []
            reader = threading.Thread(target=lambda: views.append(store.view(ANA)), daemon=True)
            reader.start()
            reader.join(5)
            self.read.append(bool(views))
            return [[1.0, 0.0]] * len(texts)

    store = MemoryStore(tmp_path / "m.sqlite", BELONGS, ENDS, print, embedder=Slow())
    store.fold(records([wrote("e1", "likes tea"), wrote("e2", "likes cake")]))
    assert len(store.search("coffee", [ANA], 5)) == 2
    assert Slow.read == [True, True], "once for the entries, once for the query"


def test_a_failed_fold_is_retried(tmp_path, monkeypatch):
    monkeypatch.setattr(service_module, "RETRY_S", 0.01)
    log, output, fold = new_log(), [], MemoryStore.fold
    failures = iter([RuntimeError("a bug")])

    def fail_once(self, records):
        for failure in failures:
            raise failure
        return fold(self, records)

    monkeypatch.setattr(MemoryStore, "fold", fail_once)
    writer_of(log).remember(ANA, "core.md", "likes tea")
    with serving(log, tmp_path, output) as memory:
        assert text_of(memory.reader.view(ANA), "core.md") == "likes tea\n"
    assert output == ["memory is not updated; retrying: RuntimeError: a bug"]


def test_S0_8_todos_are_shared_by_every_session_of_a_project(tmp_path):
    store = open_store(tmp_path / "m.sqlite")
    store.fold(records([todo("t1")], SHOP))
    assert [t.todo_id for t in store.view(SHOP).todos] == ["t1"]
    assert store.view("project:other").todos == ()
