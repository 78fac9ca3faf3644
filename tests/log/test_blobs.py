"""Each blob is stored durably under its hash, and a read verifies the hash."""

import os
import threading
import time
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from foldlog.log.blob_cache import BlobCache
from foldlog.log.blobs import INLINE_BYTES_MAX, BlobCorrupt, BlobError, BlobMissing, BlobStore
from foldlog.tests.kit.waiting import PATIENCE_S, joined
from foldlog.tests.log.blobs_contract import BlobsContract


@pytest.fixture
def blobs(tmp_path):
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def overwrite(blobs):
    return lambda name, data: blobs._path(name).write_bytes(data)


class TestBlobsInADirectory(BlobsContract):
    """Blobs in a directory."""


@given(data=st.binary(max_size=4096))
def test_S2_3_get_returns_the_bytes_of_put(tmp_path_factory, data):
    blobs = BlobStore(tmp_path_factory.getbasetemp() / "shared-blobs")
    stored = blobs.put(data)
    assert stored == (sha256(data).hexdigest(), len(data))
    assert blobs.get(stored.sha256) == data


def test_S2_3_the_same_bytes_are_stored_once(blobs):
    first = blobs.put(b"x" * 1000)
    inode = os.stat(blobs._path(first.sha256)).st_ino
    assert blobs.put(b"x" * 1000) == first
    assert os.stat(blobs._path(first.sha256)).st_ino == inode


def test_file_and_directory_are_synced_before_put_returns(blobs, monkeypatch):
    synced = []
    real = os.fsync

    def record(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", record)
    name = blobs.put(b"a new blob").sha256
    assert [p for p in synced if "/incoming/" in p], "the file itself"
    assert synced[-1] == str(blobs.directory.resolve() / name[:2]), "then the directory, last"


@pytest.mark.parametrize(
    "name",
    ["", "..", "../../etc/passwd", "a" * 63, "a" * 65, "A" * 64, "/" * 64, "a" * 63 + "\n"],
)
def test_a_name_that_is_not_a_hash_is_missing(blobs, name):
    with pytest.raises(BlobMissing, match="not the name of a blob"):
        blobs.get(name)


@given(name=st.text(max_size=80))
def test_S2_3_no_name_reads_outside_the_directory(tmp_path_factory, name):
    blobs = BlobStore(tmp_path_factory.getbasetemp() / "shared-blobs")
    with pytest.raises(BlobMissing):
        blobs.get(name)


@pytest.mark.parametrize("name", ["../mine", "incoming/../../mine", "{0}/mine", "..", ".", "nul\0"])
def test_S2_3_the_cache_reads_and_deletes_nothing_outside_its_directory(tmp_path, name):
    """The defect: a record that named a file of the worker as a blob deleted that file."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"not a blob")
    store = BlobStore(tmp_path / "blobs", BlobCache(tmp_path / "cache", 1 << 20))
    with pytest.raises(BlobMissing, match="not the name of a blob"):
        store.get(name.format(tmp_path))
    assert mine.read_bytes() == b"not a blob"


def test_a_symbolic_link_is_not_followed(blobs, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    name = sha256(b"secret").hexdigest()
    path = blobs._path(name)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(BlobCorrupt):
        blobs.get(name)


def test_the_path_of_a_blob_is_logged_and_never_in_an_error(blobs, monkeypatch, caplog):
    """The defect: the gateway returned such an error, with a path of the gateway's machine, to
    clients."""
    damaged = blobs.put(b"abc").sha256
    (blobs.directory / damaged[:2] / damaged).write_bytes(b"xyz")
    linked = blobs.put(b"def").sha256
    path = blobs.directory / linked[:2] / linked
    path.unlink()
    path.symlink_to("/nowhere")
    for name in (damaged, linked, "0" * 64):
        for _ in range(2):
            with pytest.raises(BlobError, match=name) as raised:
                blobs.get(name)
            assert str(blobs.directory) not in str(raised.value)
        logged = [r for r in caplog.records if f"{name[:2]}/{name}" in r.getMessage()]
        assert len(logged) == 1 and str(blobs.directory) in logged[0].getMessage()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda a, b: os.rename(blobs.directory / "no", b))
        with pytest.raises(BlobError) as raised:
            blobs.put(b"new")
    assert str(blobs.directory) not in str(raised.value) and "No such file" in str(raised.value)
    assert str(blobs.directory / "no") in caplog.text


def test_a_failed_write_raises_and_leaves_no_file(blobs, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BlobError, match="No space left"):
        blobs.put(b"abc")
    monkeypatch.undo()
    assert os.listdir(blobs.directory / "incoming") == []
    with pytest.raises(BlobMissing):
        blobs.get(sha256(b"abc").hexdigest())


def test_only_old_incomplete_files_are_deleted(tmp_path):
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    day_ago = time.time() - 86400
    os.utime(incoming / "old", (day_ago, day_ago))
    BlobStore(tmp_path)
    assert os.listdir(incoming) == ["new"]


def test_threads_may_put_the_same_blob_at_once(blobs):
    start = threading.Barrier(8)

    def work(n):
        start.wait(PATIENCE_S)
        for i in range(10):
            blobs.put(b"shared %d" % i)
            blobs.put(b"own %d %d" % (n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        joined(thread)
    for i in range(10):
        assert blobs.get(sha256(b"shared %d" % i).hexdigest()) == b"shared %d" % i
    assert os.listdir(blobs.directory / "incoming") == []


def test_S2_3_a_body_is_inline_up_to_the_limit(blobs):
    small, large = b"x" * INLINE_BYTES_MAX, b"x" * (INLINE_BYTES_MAX + 1)
    inline, referred = blobs.body(small, "text/plain"), blobs.body(large, "text/plain")
    assert inline.inline == small and inline.ref is None
    assert referred.inline is None and referred.ref.bytes == len(large)
    assert blobs.resolve(inline) == small and blobs.resolve(referred) == large
