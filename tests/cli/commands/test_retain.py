"""`foldlog retain`: what it prints, and that no command shows another log afterwards."""

import dataclasses

import pytest

from foldlog.log import Clock, MemoryLog
from foldlog.log.archive import archive_of
from foldlog.log.archived import ArchivedLog
from foldlog.log.partition import partition_for
from foldlog.producers import Sessions
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, Played

NAMES = [name for name in (f"s{i}" for i in range(99)) if partition_for(name, PARTITIONS) == 1]
OLD, OPEN = NAMES[:2]
BRANCH = next(f"b{i}" for i in range(99) if partition_for(f"b{i}", PARTITIONS) != 1)


@pytest.fixture
def live():
    """A log whose clock is in 2023."""
    return MemoryLog(topics(PARTITIONS), clock_ms=Clock())


@pytest.fixture
def house(shell, live):
    """An old session in partition 1, and one of the same time whose turn is open."""
    shell.log = ArchivedLog(live, archive_of(shell.settings))
    sessions = Sessions(shell.log, shell.settings)
    for name in (OLD, OPEN):
        sessions.open(name, agent="shop")
        sessions.say(name, f"what {name} asks", message_id=f"m-{name}")
    Played(shell.log, OLD).answer("the answer")
    return shell


def first(live) -> int:
    return live.first_offsets(SESSION_EVENTS)[1]


def test_a_dry_run_reports_and_changes_nothing(house, live):
    (row,) = house("retain --older-than 90d --dry-run --json --partition 1").json
    assert row["trim_to"] == 2 and row["sessions"] == 1 and row["deleted"] is False
    assert row["held_by"]["session_id"] == OPEN
    shown = house("retain --older-than 90d --dry-run").out.splitlines()
    assert shown[0] == "partition 0: nothing to delete"
    assert shown[1].startswith("partition 1: 2 records of 1 sessions would be deleted; session "
                               f"{OPEN} stays from offset 2: it has an open turn")
    assert first(live) == 0 and not (house.settings.blobs_dir / "archive").exists()


def test_every_command_shows_the_same_after_a_run(house, live):
    commands = [
        "sessions --json", f"show {OLD} --json", f"show {OLD}", f"tail {OLD}", "tail --json",
        f"request {OLD} 1.1", "replay --json", f"replay --session {OLD} --from 0",
        f"wake {OPEN}", f"context show {OLD}", f"traces {OLD}",
        f"replay --session {OLD} --from 2023-01-01T00:00",
    ]
    before = [house(command)[:2] for command in commands]
    assert {code for code, _ in before} == {0}
    assert "2 records deleted, of 1 sessions" in house("retain --older-than 90d").out
    assert first(live) == 2
    for command, shown in zip(commands, before, strict=True):
        assert house(command)[:2] == shown, command
    assert "nothing to delete; session" in house("retain --older-than 90d").out
    assert not [f for f in house("doctor --json").json if "were deleted" in f["text"]]


def test_an_archived_session_can_be_exported_and_forked(house, live, tmp_path):
    before = house(f"export {OLD} --format bundle --json -o {tmp_path / 'a'}").json
    house("retain --older-than 90d")
    after = house(f"export {OLD} --format bundle --json -o {tmp_path / 'b'}").json
    assert before[0]["sha256"] == after[0]["sha256"]
    assert house(f"fork {OLD} --as {BRANCH}").code == 0
    shown = house(f"show {BRANCH}").out
    assert "the answer" in shown
    assert "whose bundles need" in house("retain --older-than 2999-01-01").out
    partition = partition_for(BRANCH, PARTITIONS)
    assert live.first_offsets(SESSION_EVENTS)[partition] > 0
    assert house(f"show {BRANCH}").out == shown, "its seed is a blob"


def test_without_its_archive_the_cut_is_reported(house, live):
    house("retain --older-than 90d")
    house.log = live
    unknown = house(f"show {OLD}")
    assert unknown.code == 1 and "begins at offset 2: if the session is older" in unknown.err
    (problem,) = [f for f in house("doctor --json").json if "were deleted" in f["text"]]
    assert "FOLDLOG_ARCHIVE" in problem["do"]
    elsewhere = house.settings.home / "elsewhere"
    house.settings = dataclasses.replace(house.settings, archive_dir=elsewhere)
    refused = house("retain --older-than 90d")
    assert refused.code == 1 and "the log begins at 2" in refused.err
    assert "Nothing was changed" in refused.err
