"""`foldlog snapshots`: list, make, gc and delete, and what they refuse."""

import dataclasses
import os

import pytest

from foldlog.log.partition import partition_for
from foldlog.processors.store.state_dir import StateDir
from foldlog.reports.replay import store_directory
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import PARTITIONS, opened
from foldlog.tests.reports.test_replay import stored

PARTITION = partition_for("s1", PARTITIONS)


@pytest.fixture
def at_rest(shell):
    """A shell whose state directory has the store of one session's partition."""
    sessions, played = opened(shell.log, shell.settings)
    sessions.say("s1", "hi", message_id="m1")
    played.answer("hello")
    stored(shell.log, shell.settings)
    return shell


def test_a_snapshot_of_a_store_at_rest_is_made_and_listed(at_rest):
    end = at_rest.log.end_offsets(SESSION_EVENTS)[PARTITION]
    (made,) = at_rest("snapshots make --json").json
    assert (made["partition"], made["offset"]) == (PARTITION, end)
    assert made["bytes"] == made["bytes_written"] > 0
    (again,) = at_rest("snapshots make --json").json
    assert again["bytes_written"] < again["bytes"]
    at_rest.log.producer().append(SESSION_EVENTS, "s1", b"x", [("t", b"NEW"), ("w", b"producer")])
    (listed,) = at_rest("snapshots list --json").json
    assert (listed["partition"], listed["offset"], listed["behind"]) == (PARTITION, end, 1)
    assert listed["bytes"] > 0 and listed["created_at"] > 0 and listed["why_not"] == ""
    shown = at_rest("snapshots list").out
    assert "just now" in shown and "yes" in shown
    assert "snapshot at offset" in at_rest("snapshots make").out
    assert sorted(os.listdir(store_directory(at_rest.settings, 0).parent)) == [str(PARTITION)]


def test_an_unusable_snapshot_is_listed_with_the_reason(at_rest):
    at_rest("snapshots make")
    (manifest,) = (at_rest.settings.blobs_dir / "snapshots" / "manifests").rglob("*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"format":1', b'"format":9'))
    (listed,) = at_rest("snapshots list --json").json
    assert "its format is 9" in listed["why_not"] and listed["created_at"] == 0
    assert "no: its format is 9" in at_rest("snapshots list").out


def test_snapshots_are_deleted_of_one_partition_or_all(at_rest):
    at_rest("snapshots make")
    other = (PARTITION + 1) % PARTITIONS
    assert at_rest(f"snapshots delete --json --partition {other}").json == [{"deleted": 0}]
    assert at_rest("snapshots delete --all").out == "1 snapshots deleted\n"
    assert at_rest("snapshots list --json").json == []
    assert "no snapshots" in at_rest("snapshots list").err
    for wrong in ("snapshots delete", "snapshots delete --all --partition 1"):
        assert at_rest(wrong).code == 2


def test_gc_deletes_what_no_snapshot_names(at_rest):
    at_rest("snapshots make")
    at_rest("snapshots delete --all")
    (young,) = at_rest("snapshots gc --json").json
    assert young == {"manifests": 0, "files": 0, "bytes": 0}, "they may belong to a new one"
    for path in (at_rest.settings.blobs_dir / "snapshots").rglob("*"):
        os.utime(path, (1, 1))
    (old,) = at_rest("snapshots gc --json").json
    assert old["files"] > 0 and old["bytes"] > 0
    assert "0 files deleted" in at_rest("snapshots gc").out


def test_bad_input_a_store_in_use_is_left_to_its_worker(at_rest):
    state = StateDir(at_rest.settings.state_dir)
    try:
        refused = at_rest("snapshots make")
    finally:
        state.close()
    assert refused.code == 1 and "a worker runs in" in refused.err
    assert "Nothing was changed" in refused.err


def test_bad_input_without_stores_or_with_snapshots_turned_off(shell):
    assert "there is no store" in shell("snapshots make").err
    shell.settings = dataclasses.replace(shell.settings, snapshot_records=0)
    for command in ("list", "make", "gc", "delete --all"):
        refused = shell(f"snapshots {command}")
        assert refused.code == 1 and "snapshots are turned off" in refused.err
