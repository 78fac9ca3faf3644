"""doctor on memory: which embedder made its vectors."""

import pytest

from foldlog.consumers.doctor.memory import vectors
from foldlog.processors.memory.service import FILE
from foldlog.processors.memory.store import MemoryStore
from foldlog.processors.search.embed import HashedEmbedder
from foldlog.processors.store.store import Belongs

HASHING = "foldlog.processors.search.embed:HashedEmbedder"


class Mine(HashedEmbedder):
    name = "mine-1"


def store(directory, embedder):
    MemoryStore(directory / FILE, Belongs("c", "t", "f"), {}, print, None, embedder).close()


def test_doctor_says_which_embedder_made_the_vectors(tmp_path):
    assert list(vectors(tmp_path, HASHING)) == [], "no worker keeps memory here"
    store(tmp_path, HashedEmbedder())
    (found,) = vectors(tmp_path, HASHING)
    assert found.level == "ok" and found.text == "its vectors were made by hashed-1/512"
    assert "foldlog[embeddings]" in found.do
    (found,) = vectors(tmp_path, f"{__name__}:Mine")
    assert "hashed-1/512" in found.text and "embeds it again with mine-1" in found.do
    store(tmp_path, Mine())
    (found,) = vectors(tmp_path, f"{__name__}:Mine")
    assert found.text.endswith("mine-1/512") and found.do == ""


@pytest.mark.parametrize(("setting", "level"), [("nowhere:x", "problem"), (HASHING, "ok")])
def test_doctor_names_an_embedder_that_can_not_be_loaded(tmp_path, setting, level):
    store(tmp_path, HashedEmbedder())
    assert [found.level for found in vectors(tmp_path, setting)] == [level]


def test_a_damaged_memory_file_is_no_reason_for_doctor_to_end(tmp_path):
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    (found,) = vectors(tmp_path, None)
    assert found.level == "note" and "rebuilds it from the log" in found.do
