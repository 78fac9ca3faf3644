"""`foldlog blobs`, `retain` and bundles with the segments of seeds: what a fork needs is kept."""

import os
from dataclasses import replace

import pytest

from foldlog.client.log_client import LogClient
from foldlog.log import Clock, MemoryLog
from foldlog.log.archive import archive_of
from foldlog.log.archived import ArchivedLog
from foldlog.log.blobs import open_blobs
from foldlog.log.bundle_file import read_bundle
from foldlog.processors.store.views_codec import view_hashes
from foldlog.producers.fork import store_seed
from foldlog.reports.exports.bundle import verify
from foldlog.schemas.topics import topics
from foldlog.tests.client.branching.branched import views_of
from foldlog.tests.client.branching.long_sessions import USER, LongSession
from foldlog.tests.kit.played import PARTITIONS

TURNS = 100


@pytest.fixture
def long(shell):
    """A session of 2023 with 100 turns, and its fork f1, whose seed has two segments."""
    live = MemoryLog(topics(PARTITIONS), clock_ms=Clock())
    shell.log = ArchivedLog(live, archive_of(shell.settings))
    shell.settings = replace(shell.settings, user=USER)
    long = LongSession(live).grow_to(TURNS)
    assert shell("fork s1 --as f1").code == 0
    assert len(names(shell)) == 3
    return long


def names(shell) -> set[str]:
    return {path.name for path in shell.settings.blobs_dir.glob("??/*")}


def hashes_of(shell, session_id: str = "f1") -> dict[str, str]:
    with LogClient(shell.settings, shell.log) as client:
        views = views_of(client, session_id)
    assert views.frozen is None and views.turn.number == TURNS
    return view_hashes(views)


def make_old(shell) -> None:
    for path in shell.settings.blobs_dir.glob("??/*"):
        os.utime(path, (1, 1))


def test_beyond_2_gc_keeps_the_segments_of_a_fork_and_deletes_those_of_none(shell, long):
    kept, whole = names(shell), hashes_of(shell)
    records = long.records()[20:]  # another beginning, so other segments; no event names this seed
    store_seed(open_blobs(shell.settings), "s1", records, None)
    assert len(names(shell)) == 6
    make_old(shell)
    assert shell("blobs gc --delete --json").json[0]["deleted"] == 3
    assert names(shell) == kept and hashes_of(shell) == whole


def test_beyond_2_a_segment_that_a_new_fork_shares_is_young(shell, long):
    """Its event is not written yet: only the time protects it."""
    make_old(shell)
    records = long.records()[: -3]
    store_seed(open_blobs(shell.settings), "s1", records, None)
    paths = shell.settings.blobs_dir.glob("??/*")
    assert sum(path.stat().st_mtime > 1 for path in paths) == 3, "two segments and the new head"


def test_beyond_2_retention_and_gc_keep_what_a_fork_needs(shell, long):
    whole = hashes_of(shell)
    assert shell("retain --older-than 90d").code == 0
    assert any(shell.log.live.first_offsets("session-events").values()), "records were deleted"
    make_old(shell)
    assert shell("blobs gc --delete --json").json[0]["deleted"] == 0
    assert hashes_of(shell) == whole
    assert shell("blobs verify").code == 0


def test_beyond_2_a_copied_store_has_the_segments(shell, long):
    whole, target = hashes_of(shell), shell.settings.home / "copy"
    assert shell(f"blobs copy {shell.settings.blobs_dir} {target}").code == 0
    shell.settings = replace(shell.settings, blobs_dir=target)
    assert hashes_of(shell) == whole


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_beyond_2_verify_reports_a_lost_segment_and_the_fork_that_needs_it(shell, long, what):
    for name in sorted(names(shell)):
        path = shell.settings.blobs_dir / name[:2] / name
        data = path.read_bytes()
        path.unlink() if what == "missing" else path.write_bytes(data[1:])
        ran = shell("blobs verify --json")
        (problem,) = [row for row in ran.json if row.get("sha256")]
        assert (ran.code, problem["sha256"], problem["what"]) == (1, name, what)
        assert problem["named"]["session_id"] == "f1"
        (frozen,) = [row for row in shell("doctor --json").json if row["check"] == "frozen"]
        assert name in frozen["text"]
        path.write_bytes(data)


def test_beyond_2_the_bundle_of_a_fork_has_its_segments(shell, long, tmp_path):
    assert shell(f"export f1 --format bundle -o {tmp_path / 'x'}").code == 0
    bundle = read_bundle(tmp_path / "x")
    blobs = dict(bundle.blobs())
    assert names(shell) <= blobs.keys()
    replayed, differences = verify(bundle, lambda ref: blobs[ref.sha256])
    assert differences == [] and replayed.views.turn.number == TURNS
