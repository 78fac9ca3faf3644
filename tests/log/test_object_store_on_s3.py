"""The same contracts on a real S3 server, and what happens when it is killed, paused or refuses."""

import time

import pytest

from foldlog.log.blobs import BlobMissing, BlobsAway, BlobStore
from foldlog.log.object_store import RemoteObjects
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.log.blobs_contract import BlobsContract
from foldlog.tests.log.objects_contract import ObjectsContract

pytestmark = pytest.mark.broker


@pytest.fixture
def objects(s3):
    return RemoteObjects(s3.url(unique_name()))


@pytest.fixture
def blobs(objects):
    return BlobStore(objects)


@pytest.fixture
def overwrite(objects):
    return lambda name, data: objects.put(f"{name[:2]}/{name}", [data])


class TestObjectsOnS3(ObjectsContract):
    """Objects on S3."""


class TestBlobsOnS3(BlobsContract):
    """Blobs on S3."""


def test_a_renewed_object_has_the_same_bytes(objects, monkeypatch):
    objects.put("a", [b"1"])
    monkeypatch.setattr("foldlog.log.object_store.RENEW_AGE_S", -9)
    first = objects.find("a").stored_at
    assert objects.renew("a").stored_at >= first
    assert b"".join(objects.read("a")) == b"1"
    assert [found.name for found in objects.list("")] == ["a"]


def test_two_prefixes_of_a_bucket_are_two_places(s3):
    one, two = (RemoteObjects(s3.url(unique_name())) for _ in range(2))
    one.put("a", [b"1"])
    assert two.find("a") is None and list(two.list("")) == []


def away(blobs, use):
    with pytest.raises(BlobsAway) as raised:
        use(blobs)
    assert "127.0.0.1" not in str(raised.value) and "quokka" not in str(raised.value)
    assert blobs.away
    return str(raised.value)


def until_back(blobs):
    """Wait until the store's own probes find the server again, each with its deadline."""
    deadline = time.monotonic() + 60
    while blobs.away:
        assert time.monotonic() < deadline, "the store was still away after 60 s"
        time.sleep(0.05)


def test_an_outage_is_an_error_of_its_own_and_ends_by_itself(own_s3):
    blobs = BlobStore(RemoteObjects(own_s3.url("p")))
    kept = blobs.put(b"kept").sha256
    own_s3.kill()
    assert "nothing is lost" in away(blobs, lambda b: b.put(b"new")).lower()
    away(blobs, lambda b: b.get(kept))
    away(blobs, lambda b: b.find(kept))
    away(blobs, lambda b: list(b.list("00")))
    own_s3.start()
    until_back(blobs)
    assert blobs.away_s == 0 and blobs.get(kept) == b"kept"
    assert blobs.get(blobs.put(b"new").sha256) == b"new"


def test_a_server_that_does_not_answer_is_given_up(own_s3, monkeypatch):
    monkeypatch.setattr("foldlog.log.object_store.DEADLINE_S", 1.0)
    blobs = BlobStore(RemoteObjects(own_s3.url("p")))
    blobs.put(b"kept")
    own_s3.pause()
    away(blobs, lambda b: b.put(b"new"))
    own_s3.resume()
    # A probe on a busy machine may take longer than a second.
    monkeypatch.setattr("foldlog.log.object_store.DEADLINE_S", 30.0)
    until_back(blobs)
    assert blobs.put(b"new")


def test_while_the_store_is_away_requests_fail_at_once(own_s3, monkeypatch):
    """Or the thread that folds records would wait for each of them."""
    blobs = BlobStore(RemoteObjects(own_s3.url("p")))
    own_s3.kill()
    away(blobs, lambda b: b.put(b"new"))
    monkeypatch.setattr(
        "foldlog.log.object_store._wait_for", lambda work: pytest.fail("a request was sent")
    )
    for _ in range(100):
        away(blobs, lambda b: b.put(b"new"))


@pytest.mark.parametrize("wrong", [{"AWS_SECRET_ACCESS_KEY": "wrong"}], ids=["password"])
def test_a_refused_login_counts_as_away_and_shows_no_secret(s3, monkeypatch, wrong, caplog):
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    blobs = BlobStore(RemoteObjects(s3.url(unique_name())))
    assert "denies access" in away(blobs, lambda b: b.put(b"new"))
    assert "wrong" not in caplog.text and s3.environment["AWS_SECRET_ACCESS_KEY"] not in caplog.text


def test_a_bucket_that_does_not_exist_is_no_missing_blob(s3):
    """A fork whose seed is missing is frozen for good."""
    with pytest.raises(BlobMissing):
        BlobStore(RemoteObjects(s3.url("p"))).get("0" * 64)
    away(BlobStore(RemoteObjects("s3://other/p")), lambda b: b.get("0" * 64))
    away(BlobStore(RemoteObjects("s3://other/p")), lambda b: b.put(b"x"))
