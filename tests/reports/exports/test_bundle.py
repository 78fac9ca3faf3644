"""Bundles: a session replays on another machine, byte for byte, and changes to a bundle are
detected."""

import json
import zipfile
from hashlib import sha256

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import UnknownSession, request_of
from foldlog.log import bundle_file
from foldlog.log.blobs import BlobMissing
from foldlog.log.bundle_file import BadBundle, Bundle, read_bundle
from foldlog.processors.store.views_codec import view_hashes
from foldlog.reports.exports.blocks import Contents
from foldlog.reports.exports.bundle import export_bundle, verify
from foldlog.reports.exports.bundle_log import BundleLog, ReadOnly
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.reports.exports.logs import Recorded, all_logs, golden_log


def exported(source: Recorded, path) -> Bundle:
    export_bundle(path, source.log, source.session_id, Contents(source.read))
    return read_bundle(path)


def reader_of(bundle: Bundle):
    contents = dict(bundle.blobs())

    def read(ref):
        if ref.sha256 not in contents:
            raise BlobMissing(ref.sha256)
        return contents[ref.sha256]

    return read


def test_S2_11_a_bundle_replays_elsewhere_to_the_same_bytes(tmp_path):
    replays = requests = 0
    for source in all_logs():
        try:
            bundle = exported(source, tmp_path / "x")
        except UnknownSession:
            continue
        read = reader_of(bundle)
        replayed, differences = verify(bundle, read)
        assert differences == []
        with SessionFold(source.log, source.session_id, read=source.read) as here:
            assert view_hashes(here.to_end()) == replayed.hashes == bundle.manifest.views
        for step, sha in replayed.requests.items():
            turn, number = map(int, step.split("."))
            there = SessionFold(BundleLog(bundle), source.session_id, read=read)
            try:
                sent = request_of(there, turn, number, read)
            except BlobMissing:
                assert sha is None
                continue
            assert sent.sha256 == sha
            requests += 1
        again = tmp_path / "again"
        export_bundle(again, BundleLog(bundle), source.session_id, Contents(read))
        assert again.read_bytes() == (tmp_path / "x").read_bytes(), "a bundle of a bundle"
        replays += 1
    assert replays > 15 and requests > 50


def test_S2_11_the_raw_records_are_those_of_the_log(tmp_path):
    source = golden_log("conversation")
    bundle = exported(source, tmp_path / "x")
    assert list(bundle.records) == [r for r in source.records if r.offset < bundle.manifest.end]
    assert {name for name, _ in bundle.blobs()} == set(source.blobs)


def test_a_bundle_contains_no_setting_and_no_path(tmp_path):
    exported(golden_log("conversation"), tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "x") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert set(manifest) == {
        "format", "session_id", "partition", "partitions", "end", "records", "records_sha256",
        "blobs", "folds", "builder", "views", "requests",
    }
    assert str(tmp_path).encode() not in (tmp_path / "x").read_bytes()


def test_a_missing_blob_is_named_and_the_rest_still_replays(tmp_path):
    source = golden_log("conversation")
    gone = sorted(source.blobs)[0]
    del source.blobs[gone]
    bundle = exported(source, tmp_path / "x")
    assert [b.sha256 for b in bundle.manifest.blobs if not b.held] == [gone]
    replayed, differences = verify(bundle, reader_of(bundle))
    assert differences == [] and replayed.hashes == bundle.manifest.views


def test_a_bundle_is_read_only(tmp_path):
    log = BundleLog(exported(golden_log("conversation"), tmp_path / "x"))
    with pytest.raises(ReadOnly, match="read-only"):
        log.producer()
    assert log.end_offsets(SESSION_EVENTS) == {0: log.partitions(SESSION_EVENTS) and log._ends[0]}
    assert log.offsets_at(SESSION_EVENTS, 1 << 50) == log.end_offsets(SESSION_EVENTS)


# ---- changed bundles -------------------------------------------------------------------------


def repacked(path, change, *, compress=zipfile.ZIP_STORED):
    """Rewrite a bundle whose members `change(members)` has changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members = change(members) or members
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _flip(members):
    lines = members["records.jsonl"].splitlines(keepends=True)
    members["records.jsonl"] = b"".join(lines[:-1])


def _blob(members):
    name = next(name for name in members if name.startswith("blobs/"))
    members[name] = b"x" + members[name][1:]


def _manifest(**changes):
    def change(members):
        contents = json.loads(members["manifest.json"])
        members["manifest.json"] = json.dumps({**contents, **changes}).encode()
    return change


def _foreign(members):
    lines = [json.loads(line) for line in members["records.jsonl"].splitlines()]
    lines[-1]["key"] = "another"
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    members["records.jsonl"] = text
    _manifest(records_sha256=sha256(text).hexdigest())(members)


@pytest.mark.parametrize("change, why", [
    (_flip, "records are not those"),
    (_blob, "the bytes of blob"),
    (_foreign, "does not belong in it"),
    (_manifest(format="foldlog-bundle/9"), "format"),
    (_manifest(session_id="another"), None),
    (_manifest(partition=7), "does not belong to its partition"),
    (_manifest(partitions=10**12), "does not belong|records"),
    (_manifest(end=3), "does not belong in it"),
    (_manifest(more=1), "manifest cannot be read"),
    (lambda members: members.pop("manifest.json") and None, "it has no manifest.json"),
    (lambda members: members.pop("records.jsonl") and None, "lacks records.jsonl"),
    (lambda members: members.update({"../../evil": b"x"}), "evil"),
    (lambda members: members.update({"blobs/" + "a" * 64: b"x"}), "does not name"),
    (lambda members: members.update({"manifest.json": b"[" * 9000}), "manifest"),
    (lambda members: members.update({"manifest.json": b"[]"}), "manifest"),
    (lambda members: members.update({"records.jsonl": b"junk\n"}), "record 0 cannot be read"),
])
def test_a_changed_bundle_is_refused_with_what_is_wrong(tmp_path, change, why):
    exported(golden_log("conversation"), tmp_path / "x")
    repacked(tmp_path / "x", change)
    with pytest.raises(BadBundle, match=why) as found:
        read_bundle(tmp_path / "x")
    assert "nothing in it was used" in str(found.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_compressed_or_oversized_member_is_refused(tmp_path, monkeypatch):
    exported(golden_log("conversation"), tmp_path / "x")
    repacked(tmp_path / "x", lambda members: None, compress=zipfile.ZIP_DEFLATED)
    with pytest.raises(BadBundle, match="is compressed"):
        read_bundle(tmp_path / "x")
    exported(golden_log("conversation"), tmp_path / "y")
    monkeypatch.setattr(bundle_file, "MANIFEST_BYTES_MAX", 10)
    with pytest.raises(BadBundle, match="larger than 10"):
        read_bundle(tmp_path / "y")


@pytest.mark.parametrize("cut", [0, 1, 100, -1, -30])
def test_a_truncated_bundle_is_refused(tmp_path, cut):
    exported(golden_log("conversation"), tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[:cut])
    with pytest.raises(BadBundle):
        read_bundle(tmp_path / "x")


def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(tmp_path):
    bundle = exported(golden_log("terminate"), tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    found = 0
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 1
        (tmp_path / "x").write_bytes(changed)
        try:
            again = read_bundle(tmp_path / "x")
            same = again.records == bundle.records and again.manifest == bundle.manifest
            if not same:  # the manifest changed: its claims differ from the replay
                assert verify(again, reader_of(again))[1] or again.manifest.folds
        except BadBundle:
            found += 1
    assert found > 50


def test_a_false_view_hash_is_found_by_the_replay(tmp_path):
    exported(golden_log("conversation"), tmp_path / "x")
    contents = read_bundle(tmp_path / "x").manifest.views
    repacked(tmp_path / "x", _manifest(views={**contents, "transcript": "0" * 64}))
    lying = read_bundle(tmp_path / "x")
    _, (difference,) = verify(lying, reader_of(lying))
    assert difference.what == "view transcript" and difference.there == "0" * 64


def test_an_unknown_session_has_no_bundle(tmp_path):
    source = golden_log("conversation")
    with pytest.raises(UnknownSession):
        export_bundle(tmp_path / "x", source.log, "nobody", Contents(source.read))
    assert not (tmp_path / "x").exists()


