"""An object store is a place for objects and for blobs: here the memory of the process."""

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.log.object_store import RemoteObjects
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.log.blobs_contract import BlobsContract
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
