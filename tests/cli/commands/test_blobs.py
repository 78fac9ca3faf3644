"""`foldlog blobs`: verify, gc and copy, and that gc deletes nothing that is named anywhere."""

import json
import os
from dataclasses import replace

import pytest

from foldlog.log import Clock, MemoryLog
from foldlog.log.archive import archive_of
from foldlog.log.archived import ArchivedLog
from foldlog.log.blobs import BlobStore, open_blobs
from foldlog.producers import Sessions
from foldlog.producers.attachments import attach
from foldlog.schemas.topics import topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import PARTITIONS, Played
from foldlog.tests.schemas.test_attachments import png
from foldlog.upkeep import blobs as care

LARGE = "x" * 70_000


@pytest.fixture
def house(shell, tmp_path):
    """A log of 2023 with blobs of every kind: a large message, which names an attachment; an
    attachment that an inline message names; the seed of a fork, whose parent is archived.
    """
    live = MemoryLog(topics(PARTITIONS), clock_ms=Clock())
    shell.log = ArchivedLog(live, archive_of(shell.settings))
    blobs = open_blobs(shell.settings)
    sessions = Sessions(shell.log, shell.settings)
    for number, text in enumerate(("see", LARGE)):
        file = tmp_path / f"{number}.png"
        file.write_bytes(png(10 + number, 10))
        sessions.open(f"s{number}", agent="shop")
        content = [*attach([file], blobs), {"type": "text", "text": text}]
        sessions.say(f"s{number}", content, message_id="m1")
        read = lambda ref: blobs.get(ref.sha256)  # noqa: E731
        Played(shell.log, f"s{number}", read=read).answer("seen")
    assert shell("fork s0 --as f0").code == 0
    return shell


def names(shell) -> set[str]:
    return {path.name for path in shell.settings.blobs_dir.glob("??/*")}


def make_old(shell) -> None:
    for path in shell.settings.blobs_dir.glob("??/*"):
        os.utime(path, (1, 1))


def orphan(shell, data=b"nobody names this") -> str:
    return BlobStore(shell.settings.blobs_dir).put(data).sha256


# -- verify ----------------------------------------------------------------------------------------


def test_verify_reads_every_blob(house):
    assert len(names(house)) == 4
    (found,) = house("blobs verify --json").json
    assert (found["named"], found["stored"], found["problems"]) == (4, 4, 0)
    lone = orphan(house)
    assert house("blobs verify").out.startswith("4 blobs are named by the log, 5 are in the store")
    (house.settings.blobs_dir / lone[:2] / lone).write_bytes(b"rotten")
    damaged, found = house("blobs verify --json").json
    assert (damaged["sha256"], damaged["what"], damaged["named"]) == (lone, "damaged", None)


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_verify_reports_where_a_lost_blob_is_named(house, what):
    for name in names(house):
        path = house.settings.blobs_dir / name[:2] / name
        whole = path.read_bytes()
        path.unlink() if what == "missing" else path.write_bytes(whole[1:])
        ran = house("blobs verify --json")
        problem = next(row for row in ran.json if row.get("sha256") == name)
        assert ran.code == 1 and problem["what"] == what
        assert problem["named"]["session_id"] in ("s0", "s1", "f0")
        shown = house("blobs verify")
        assert f"{what}: {name} (session " in shown.out and shown.code == 1
        path.write_bytes(whole)


# -- gc --------------------------------------------------------------------------------------------


def test_gc_deletes_only_what_nothing_names(house):
    kept, lone = names(house), orphan(house)
    make_old(house)
    (found,) = house("blobs gc --json").json
    assert (found["stored"], found["garbage"], found["deleted"]) == (5, 1, 0)
    assert found["garbage_bytes"] == len(b"nobody names this")
    shown = house("blobs gc").out
    assert "1 of 5 blobs are not named by any event" in shown and "nothing was deleted" in shown
    assert names(house) == kept | {lone}, "a dry run"
    assert "1 blobs deleted" in house("blobs gc --delete").out
    assert names(house) == kept
    assert house("blobs verify").code == 0


def test_gc_keeps_young_blobs(house):
    """The event that names them may not be written yet."""
    before = names(house) | {orphan(house)}
    (found,) = house("blobs gc --delete --json").json
    assert (found["young"], found["garbage"], found["deleted"]) == (5, 0, 0)
    make_old(house)
    orphan(house)  # an old blob that is stored again is young
    assert house("blobs gc --delete --json").json[0]["deleted"] == 0
    assert names(house) == before


def test_gc_keeps_what_only_the_archive_names(house):
    orphan(house)
    make_old(house)
    kept = names(house)
    assert house("retain --older-than 90d").code == 0
    live = house.log.live
    assert any(live.first_offsets("session-events").values()), "records were deleted"
    assert house("blobs gc --delete --json").json[0]["deleted"] == 1
    assert len(names(house)) == len(kept) - 1
    assert house("blobs verify").code == 0


def test_gc_keeps_what_only_a_young_blob_names(house):
    """A large message was stored just now, and its event is not written yet."""
    lone = orphan(house)
    make_old(house)
    message = orphan(house, json.dumps([{"source": {"sha256": lone}}]).encode())
    assert house("blobs gc --delete --json").json[0]["deleted"] == 0
    assert {lone, message} <= names(house)


def test_gc_refuses_the_store_of_another_log(house, shell):
    make_old(house)
    house.log = MemoryLog(topics(PARTITIONS))
    house.settings = replace(house.settings, archive_dir=house.settings.home / "none")
    before = names(house)
    refused = house("blobs gc --delete")
    assert refused.code == 1 and "another cluster" in refused.err and names(house) == before
    assert house("blobs gc --delete --force --json").json[0]["deleted"] == len(before)


def test_gc_stops_at_a_damaged_blob_because_it_may_name_others(house):
    named = names(house)
    lone = orphan(house)
    make_old(house)
    for name in named:
        path = house.settings.blobs_dir / name[:2] / name
        path.write_bytes(path.read_bytes()[1:])
        os.utime(path, (1, 1))
    stopped = house("blobs gc --delete")
    assert stopped.code == 1 and "nothing was deleted" in stopped.err and lone in names(house)


def test_gc_refuses_a_grace_time_of_minutes(house):
    assert house("blobs gc --grace-days 0.001").code == 2


@pytest.mark.parametrize("text, found", [
    (b"a" * 63, 0), (b"a" * 64, 1), (b"a" * 66, 1), (b"0123456789abcdef" * 4 + b"0", 2),
    (b"A" * 64, 0), (b"\x80\x01" + b"a" * 64 + b"\x00", 1),
])
def test_every_run_of_64_digits_counts_as_a_name(text, found):
    assert len(care._names_in([text])) == found
    assert len(care._names_in([text[:40], text[40:]])) == found, "also across two chunks"


# -- copy ------------------------------------------------------------------------------------------


def test_copy_is_whole_and_idempotent(house):
    source, target = house.settings.blobs_dir, f"memory://{unique_name()}"
    (first,) = house(f"blobs copy {source} {target} --json").json
    assert (first["stored"], first["copied"], first["present"]) == (4, 4, 0)
    (again,) = house(f"blobs copy {source} {target} --json").json
    assert (again["copied"], again["present"]) == (0, 4)
    house.settings = replace(house.settings, blobs=target, blobs_dir=house.settings.home / "none")
    assert house("blobs verify --json").json[0]["problems"] == 0
    assert LARGE in house("request s1 1.1").out


def test_copy_is_continued_after_ctrl_c(house, monkeypatch):
    target = house.settings.home / "copy"
    put, count = BlobStore.put, [0]

    def interrupted(self, data):
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return put(self, data)

    with monkeypatch.context() as patched:
        patched.setattr(BlobStore, "put", interrupted)
        ran = house(f"blobs copy {house.settings.blobs_dir} {target}")
    assert ran.code == 130 and "the same command copies the rest" in ran.err
    (rest,) = house(f"blobs copy {house.settings.blobs_dir} {target} --json").json
    assert (rest["copied"], rest["present"]) == (2, 2)


def test_copy_leaves_out_what_is_damaged_and_reports_it(house):
    name = sorted(names(house))[0]
    (house.settings.blobs_dir / name[:2] / name).write_bytes(b"rotten")
    ran = house(f"blobs copy {house.settings.blobs_dir} {house.settings.home / 'copy'}")
    assert ran.code == 1 and f"damaged: {name}" in ran.out and "3 blobs copied" in ran.out


@pytest.mark.parametrize("source, target", [("/no/such/place", "memory://x"),
                                            ("memory://x", "s3://user:hidden@b")])
def test_copy_refuses_a_place_that_is_none(house, source, target):
    ran = house(f"blobs copy {source} {target}")
    assert ran.code == 2 and "hidden" not in ran.err


def test_each_command_has_an_example(house):
    for command in ("verify", "gc", "copy"):
        assert f"foldlog blobs {command}" in house(f"blobs {command} --help").out
