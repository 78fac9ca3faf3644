"""The side log: only later attempts of the same call find the record of the call."""

import os

import pytest

from foldlog.processors.tools.side_log import SideLogStore


@pytest.fixture
def store(tmp_path):
    return SideLogStore(tmp_path / "side_log")


def path_of(store, session_id="s1", call_key="1.1.0"):
    return store.of(session_id, call_key)._path


def test_S2_8_a_result_is_found_by_another_process_and_not_by_another_call(store):
    store.of("s1", "1.1.0").record({"paid": True})
    again = SideLogStore(store.directory)
    assert again.of("s1", "1.1.0").result() == {"paid": True}
    for other in [("s1", "1.1.1"), ("s2", "1.1.0"), ("s1\n1.1.0", ""), ("s", "1\n1.1.0")]:
        assert not again.of(*other).has_result
    assert again.of("s1", "1.1.1").result("nothing") == "nothing"


def test_a_recorded_null_is_a_result(store):
    log = store.of("s1", "1.1.0")
    assert not log.has_result
    log.record(None)
    assert log.has_result and log.result("other") is None


def test_the_last_record_replaces_value_and_extras(store):
    log = store.of("s1", "1.1.0")
    log.record(1, beside={"reminders": ["x"]})
    log.record(2)
    assert (log.result(), log.beside) == (2, {})


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b"\xff", b'{"value":1}', b'{"session_id":"s2"}']
)
def test_F15_a_damaged_entry_is_ignored(store, damage):
    log = store.of("s1", "1.1.0")
    log.record(5)
    path_of(store).write_bytes(damage)
    assert not log.has_result and log.beside == {}
    log.record(6)
    assert log.result() == 6


def test_a_record_is_synced_before_it_returns(store, monkeypatch):
    synced = []
    real = os.fsync

    def record(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", record)
    store.of("s1", "1.1.0").record(1)
    shard = path_of(store).parent
    assert os.path.dirname(synced[0]) == str(shard), "the file"
    assert str(shard) in synced[1:], "then its name"


def test_a_failed_record_keeps_the_earlier_one(store, monkeypatch):
    log = store.of("s1", "1.1.0")
    log.record(1)

    def full(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            log.record(2)
    with pytest.raises(TypeError):
        log.record({1, 2})
    assert log.result() == 1
    assert os.listdir(path_of(store).parent) == [path_of(store).name]


def test_the_oldest_entries_are_pruned(store):
    for n in range(10):
        store.of("s1", f"1.1.{n}").record(n)
        os.utime(path_of(store, call_key=f"1.1.{n}"), (n, n))
    assert store.prune(keep=3) == 7
    assert [n for n in range(10) if store.of("s1", f"1.1.{n}").has_result] == [7, 8, 9]
    assert store.prune() == 0
