"""What a blob store does in every place. A test class inherits the cases and supplies `blobs` and
`overwrite`, which replaces the stored bytes of a blob.
"""

import threading
from hashlib import sha256
from time import monotonic

import pytest

from foldlog.log.blobs import BlobCorrupt, BlobMissing
from foldlog.tests.kit.waiting import PATIENCE_S, joined

ALWAYS = 9e12  # a time after every blob was stored


class BlobsContract:
    """The cases for `blobs`, a fixture that returns an empty store without a cache."""

    def test_S2_3_get_returns_the_bytes_of_put(self, blobs):
        for data in (b"", b"abc", bytes(range(256)) * 5000):
            stored = blobs.put(data)
            assert stored == (sha256(data).hexdigest(), len(data)) == blobs.put(data)
            assert blobs.get(stored.sha256) == data
            assert blobs.find(stored.sha256)[:2] == stored

    def test_a_blob_that_was_never_stored_is_missing(self, blobs):
        assert blobs.find("0" * 64) is None
        with pytest.raises(BlobMissing, match="FOLDLOG_BLOBS"):
            blobs.get("0" * 64)

    def test_a_name_that_is_not_a_hash_is_missing(self, blobs):
        for use in (blobs.get, blobs.find):
            with pytest.raises(BlobMissing, match="is not the name of a blob"):
                use("../../etc/passwd")

    @pytest.mark.parametrize("found", [b"the", b"the trush"], ids=["torn", "rotten"])
    def test_S2_3_damaged_bytes_are_never_returned_and_put_replaces_them(
        self, blobs, overwrite, found
    ):
        name = blobs.put(b"the truth").sha256
        overwrite(name, found)
        with pytest.raises(BlobCorrupt, match="do not have this sha256"):
            blobs.get(name)
        blobs.put(b"the truth")
        assert blobs.get(name) == b"the truth"

    @pytest.mark.parametrize("found", [b"the", b""], ids=["torn", "empty"])
    def test_ensure_stores_what_is_missing_or_torn(self, blobs, overwrite, found):
        ref = blobs.ensure(b"the truth", "text/plain")
        assert blobs.ensure(b"the truth", "text/plain") == ref
        overwrite(ref.sha256, found)
        blobs.ensure(b"the truth", "text/plain")
        assert blobs.get(ref.sha256) == b"the truth"
        assert (ref.bytes, ref.media_type) == (9, "text/plain")

    def test_blobs_are_listed_by_the_beginning_of_their_names(self, blobs):
        stored = sorted(blobs.put(str(number).encode()) for number in range(9))
        found = [each for name, _ in stored for each in blobs.list(name[:2])]
        assert sorted({each[:2] for each in found}) == stored
        assert list(blobs.list(sha256(b"other").hexdigest()[:2])) == []

    def test_only_a_blob_that_is_not_young_is_deleted(self, blobs):
        name = blobs.put(b"young").sha256
        assert not blobs.delete_unless_young(name, blobs.find(name).stored_at)
        assert blobs.get(name) == b"young"
        assert blobs.delete_unless_young(name, ALWAYS)
        assert blobs.find(name) is None
        assert not blobs.delete_unless_young(name, ALWAYS)

    def test_a_blob_that_is_stored_while_it_is_deleted_remains(self, blobs, monkeypatch):
        """The writer begins between the collector's look at the blob's age and the deletion."""
        name = blobs.put(b"shared").sha256
        objects, writers = blobs._objects, []
        delete = objects.delete

        def delete_late(key):
            if not key.startswith("deleting/"):
                objects.find(key)
                writers.append(threading.Thread(target=blobs.put, args=(b"shared",)))
                stored_at = []
                noting = noted(blobs._is_deleted_soon, stored_at)
                monkeypatch.setattr(blobs, "_is_deleted_soon", noting)
                writers[0].start()
                deadline = monotonic() + PATIENCE_S
                while not stored_at:  # until the writer has stored the blob and seen the mark
                    assert monotonic() < deadline  # no pause: it would let the writer store again
            delete(key)

        monkeypatch.setattr(objects, "delete", delete_late)
        assert blobs.delete_unless_young(name, ALWAYS)
        (writer,) = writers
        joined(writer)
        assert blobs.get(name) == b"shared"

    def test_a_blob_is_stored_again_if_it_was_deleted_before_its_writer_looks(
        self, blobs, monkeypatch
    ):
        """The defect: the writer stored the blob after the collector's look at its age, and looked
        for the mark only after the collector had removed it. `put` returned without a blob."""
        name = blobs.put(b"shared").sha256
        stored, deleted = threading.Event(), threading.Event()
        writer = threading.Thread(target=blobs.put, args=(b"shared",))
        delete, check = blobs._objects.delete, blobs._is_deleted_soon

        def delete_after_the_writer(key):
            if not key.startswith("deleting/"):
                writer.start()
                assert stored.wait(PATIENCE_S)
            delete(key)

        def check_after_the_deletion(name):
            stored.set()
            assert deleted.wait(PATIENCE_S)
            return check(name)

        monkeypatch.setattr(blobs._objects, "delete", delete_after_the_writer)
        monkeypatch.setattr(blobs, "_is_deleted_soon", check_after_the_deletion)
        assert blobs.delete_unless_young(name, ALWAYS)
        deleted.set()
        joined(writer)
        assert blobs.get(name) == b"shared"


def noted(check, noted_in):
    """`check`, which notes each of its results."""

    def noting(name):
        found = check(name)
        noted_in.append(found)
        return found

    return noting
