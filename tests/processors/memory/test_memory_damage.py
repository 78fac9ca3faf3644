"""A damaged memory store is rebuilt from the log; one that cannot be used right now is kept."""

import sqlite3
import time

import pytest

from foldlog.processors.memory.service import FILE
from foldlog.processors.memory.store import MemoryStore, memory_version
from foldlog.processors.store.sqlite_errors import is_damage
from foldlog.processors.store.store import Belongs
from foldlog.tests.processors.memory.desk import (
    ANA,
    new_log,
    record,
    serving,
    writer_of,
    wrote,
)

PATIENCE_S = 20
BELONGS = Belongs("cluster", "topic", memory_version())


@pytest.fixture
def kept(tmp_path):
    """A store at rest, with an entry."""
    path = tmp_path / "m.sqlite"
    store = MemoryStore(path, BELONGS, {0: 9}, pytest.fail)
    store.fold([record(0, wrote("tea", "likes green tea"), ANA)])
    assert store.view(ANA).entries
    store.close()
    return path


def flip(path, words: bytes) -> None:
    """Another bit in every copy of some words of the file."""
    data = path.read_bytes()
    assert words in data
    path.write_bytes(data.replace(words, bytes([words[0] ^ 1]) + words[1:]))


def test_a_flipped_bit_of_what_is_remembered_is_found_and_never_shown(kept):
    """SQLite has no checksums: "likes green tea" became something else, and stood in prompts."""
    flip(kept, b"likes green tea")
    store = MemoryStore(kept, BELONGS, {0: 9}, pytest.fail)
    assert store.view(ANA).entries == () and "checksum" in store.damage
    store.close()


def test_a_damaged_memory_is_rebuilt_from_the_log_while_its_worker_runs(tmp_path):
    log, told = new_log(), []
    writer_of(log).remember(ANA, "core.md", "likes green tea")
    with serving(log, tmp_path, told):
        pass
    flip(tmp_path / FILE, b"likes green tea")
    with serving(log, tmp_path, told) as memory:
        end = time.monotonic() + PATIENCE_S
        while "likes green tea" not in memory.reader.core([ANA]):
            assert time.monotonic() < end
            time.sleep(0.01)
    assert any("damaged" in line and "rebuilt from the log" in line for line in told)


@pytest.mark.parametrize("code", ["CANTOPEN", "FULL", "BUSY", "IOERR", "READONLY", "NOMEM"])
def test_what_the_system_refuses_is_no_damage(code):
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}") | 5 << 8  # an extended code
    assert not is_damage(error)


def test_a_memory_store_that_cannot_be_opened_is_kept(kept, monkeypatch):
    """Without a descriptor it was taken for damaged, and deleted."""
    def refuse(*_args, **_kwargs):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refuse)
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            MemoryStore(kept, BELONGS, {0: 9}, pytest.fail)
    store = MemoryStore(kept, BELONGS, {0: 9}, pytest.fail)
    assert store.view(ANA).entries
    store.close()


@pytest.mark.parametrize("place", [0, 18, 100, 4096, 9000])
def test_a_file_that_is_no_database_any_more_is_rebuilt_and_said(kept, place):
    data = bytearray(kept.read_bytes())
    data[place : place + 200] = b"\xa5" * 200
    kept.write_bytes(data)
    told = []
    store = MemoryStore(kept, BELONGS, {0: 9}, told.append)
    if store.view(ANA).entries == ():
        assert told or store.damage
    store.close()
