"""A damaged memory store is rebuilt from the log; a store that cannot be opened at the moment is
kept."""

import sqlite3
import time

import pytest

from foldlog.processors.memory.service import FILE
from foldlog.processors.memory.store import MemoryStore, memory_version
from foldlog.processors.sqlite_errors import is_damage
from foldlog.processors.store.store import Belongs
from foldlog.tests.processors.memory.memory_log import (
    ANA,
    new_log,
    record,
    serving,
    writer_of,
    wrote,
)

PATIENCE_S = 90
BELONGS = Belongs("cluster", "topic", memory_version())


@pytest.fixture
def path(tmp_path):
    """The file of a closed store that has one entry."""
    file = tmp_path / "m.sqlite"
    store = MemoryStore(file, BELONGS, {0: 9}, pytest.fail)
    store.fold([record(0, wrote("tea", "likes green tea"), ANA)])
    assert store.view(ANA).entries
    store.close()
    return file


def flip_bit(path, words: bytes) -> None:
    """Flip one bit in every copy of some words in the file."""
    data = path.read_bytes()
    assert words in data
    path.write_bytes(data.replace(words, bytes([words[0] ^ 1]) + words[1:]))


def test_a_flipped_bit_in_an_entry_is_detected_and_never_shown(path):
    """The defect: SQLite has no checksums, so "likes green tea" became another text in the
    prompts."""
    flip_bit(path, b"likes green tea")
    store = MemoryStore(path, BELONGS, {0: 9}, pytest.fail)
    assert store.view(ANA).entries == () and "checksum" in store.damage
    store.close()


def test_a_damaged_memory_is_rebuilt_from_the_log_while_its_worker_runs(tmp_path):
    log, output = new_log(), []
    writer_of(log).remember(ANA, "core.md", "likes green tea")
    with serving(log, tmp_path, output):
        pass
    flip_bit(tmp_path / FILE, b"likes green tea")
    with serving(log, tmp_path, output) as memory:
        end = time.monotonic() + PATIENCE_S
        while "likes green tea" not in memory.reader.core([ANA]):
            assert time.monotonic() < end
            time.sleep(0.01)
    assert any("damaged" in line and "rebuilt from the log" in line for line in output)


@pytest.mark.parametrize("code", ["CANTOPEN", "FULL", "BUSY", "IOERR", "READONLY", "NOMEM"])
def test_an_error_of_the_system_is_not_damage(code):
    error = sqlite3.OperationalError("a message of SQLite")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}") | 5 << 8  # an extended code
    assert not is_damage(error)


def test_a_memory_store_that_cannot_be_opened_is_kept(path, monkeypatch):
    """The defect: without a free file descriptor, the store counted as damaged and was deleted."""
    def refuse(*_args, **_kwargs):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refuse)
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            MemoryStore(path, BELONGS, {0: 9}, pytest.fail)
    store = MemoryStore(path, BELONGS, {0: 9}, pytest.fail)
    assert store.view(ANA).entries
    store.close()


@pytest.mark.parametrize("place", [0, 18, 100, 4096, 9000])
def test_a_file_that_is_no_longer_a_database_is_rebuilt_and_reported(path, place):
    data = bytearray(path.read_bytes())
    data[place : place + 200] = b"\xa5" * 200
    path.write_bytes(data)
    output = []
    store = MemoryStore(path, BELONGS, {0: 9}, output.append)
    if store.view(ANA).entries == ():
        assert output or store.damage
    store.close()
