"""An object store is a place for objects and for blobs: here the memory of the process."""

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.log.object_store import RemoteObjects
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.log.blobs_contract import ALWAYS, BlobsContract
from foldlog.tests.log.objects_contract import ObjectsContract


@pytest.fixture
def objects():
    return RemoteObjects(f"memory://{unique_name()}")


@pytest.fixture
def blobs(objects):
    return BlobStore(objects)


@pytest.fixture
def overwrite(objects):
    return lambda name, data: objects.put(f"{name[:2]}/{name}", [data])


class TestObjectsInMemory(ObjectsContract):
    """Objects in memory."""


class TestBlobsInMemory(BlobsContract):
    """Blobs in memory."""


def test_a_renewed_object_is_young_and_has_the_same_bytes(objects, monkeypatch):
    objects.put("a", [b"1"])
    first = objects.find("a").stored_at
    assert objects.renew("a").stored_at == first, "it is young enough"
    monkeypatch.setattr("foldlog.log.object_store.RENEW_AGE_S", -1)
    assert objects.renew("a").stored_at > first
    assert b"".join(objects.read("a")) == b"1"
    assert [found.name for found in objects.list("")] == ["a"]


def test_beyond_2_a_blob_that_is_there_is_not_sent_again(objects, blobs, monkeypatch):
    ref, sent = blobs.ensure(b"shared", "text/plain"), []
    put = objects.put
    monkeypatch.setattr(objects, "put", lambda name, data: sent.append(name) or put(name, data))
    assert blobs.ensure(b"shared", "text/plain") == ref and sent == []
    monkeypatch.setattr("foldlog.log.object_store.RENEW_AGE_S", -1)
    before = blobs.find(ref.sha256).stored_at
    assert blobs.ensure(b"shared", "text/plain") == ref and sent == []
    assert blobs.find(ref.sha256).stored_at > before, "a collector sees that it is young"


def test_a_blob_that_is_deleted_while_it_is_ensured_is_stored_again(objects, blobs, monkeypatch):
    name, check = blobs.put(b"shared").sha256, blobs._is_deleted_soon

    def check_after_the_deletion(name):
        monkeypatch.undo()
        assert blobs.delete_unless_young(name, ALWAYS)
        return check(name)

    monkeypatch.setattr(blobs, "_is_deleted_soon", check_after_the_deletion)
    blobs.ensure(b"shared", "text/plain")
    assert blobs.get(name) == b"shared"
