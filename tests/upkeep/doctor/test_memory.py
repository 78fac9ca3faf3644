"""`doctor` on memory: it reports which embedder made the vectors."""

import pytest

from foldlog.processors.memory.service import FILE
from foldlog.processors.memory.store import MemoryStore
from foldlog.processors.search.embed import HashedEmbedder
from foldlog.processors.store.store import Belongs
from foldlog.upkeep.doctor.memory import vectors

HASHING = "foldlog.processors.search.embed:HashedEmbedder"


class Mine(HashedEmbedder):
    name = "mine-1"


def store(directory, embedder):
    MemoryStore(directory / FILE, Belongs("c", "t", "f"), {}, print, None, embedder).close()


def test_doctor_names_the_embedder_that_made_the_vectors(tmp_path):
    assert list(vectors(tmp_path, HASHING)) == [], "no worker keeps memory here"
    store(tmp_path, HashedEmbedder())
    (finding,) = vectors(tmp_path, HASHING)
    assert finding.level == "ok" and finding.text == "the vectors were made by hashed-1/512"
    assert "foldlog[embeddings]" in finding.do
    (finding,) = vectors(tmp_path, f"{__name__}:Mine")
    assert "hashed-1/512" in finding.text and "embeds all memory again with mine-1" in finding.do
    store(tmp_path, Mine())
    (finding,) = vectors(tmp_path, f"{__name__}:Mine")
    assert finding.text.endswith("mine-1/512") and finding.do == ""


@pytest.mark.parametrize(("setting", "level"), [("nowhere:x", "problem"), (HASHING, "ok")])
def test_an_embedder_that_cannot_be_loaded_is_a_problem(tmp_path, setting, level):
    store(tmp_path, HashedEmbedder())
    assert [finding.level for finding in vectors(tmp_path, setting)] == [level]


def test_a_damaged_memory_file_is_a_note_and_not_an_error(tmp_path):
    (tmp_path / FILE).write_bytes(b"not a database" * 100)
    (finding,) = vectors(tmp_path, None)
    assert finding.level == "note" and "rebuilds it from the log" in finding.do
