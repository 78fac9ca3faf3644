"""A store that is deleted, damaged, or written for another log or by another version is rebuilt,
and the worker logs this.

The worker is killed in the middle of a turn, its stores are changed, and the next worker continues.
"""

import shutil

import pytest

from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import Play
from foldlog.upkeep.snapshots import demand_snapshots, make

pytestmark = [pytest.mark.broker, pytest.mark.crash]

DAMAGES = {
    damage.deleted: None,  # no store is left to compare
    damage.of_other_folds: "is rebuilt from the log: its folds is older",
    damage.of_another_history: "the log is not the one its store was folded from",
    damage.beyond_the_end: "is beyond the log's end",
    damage.undecodable: "its store is damaged (session",
    damage.unreadable: "is rebuilt from the log: it is damaged",
}


def _continues_after(change, stage, handle) -> None:
    play = Play(stage, handle, cast=("tools", "cancel"))
    if handle.active is None:
        handle.start()
        play.await_taken("")
    play.begin()
    play.until("something streams", play.streams)
    before = stage.owner()
    handle.kill()
    damage.lose_snapshots(stage)
    for partition in range(stage.settings.partitions):
        change(damage.store_of(stage, "w1", partition))
    handle.start()
    play.await_taken(before)
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    assert witnesses.violations(stage, play.people) == []
    assert replay_differs(stage) == []


# How each is found is tested in processors/store; the worker then continues in the same way.
PLAYED = (damage.of_other_folds, damage.undecodable)


@pytest.mark.parametrize(
    "change",
    [pytest.param(one, marks=() if one in PLAYED else pytest.mark.full) for one in DAMAGES],
    ids=lambda change: change.__name__,
)
def test_S2_11_an_unusable_store_is_rebuilt(change, rig):
    with rig.round() as (stage, handle):
        _continues_after(change, stage, handle)
        assert DAMAGES[change] is None or handle.has_logged(DAMAGES[change])


def test_S2_11_a_store_copied_from_another_installation_is_rebuilt(rig, broker, tmp_path):
    with rig.round() as (stage, handle):
        if handle.active is None:
            Play(stage, handle, "models.chunk:1", ("talk",)).run()
        handle.kill()  # a running worker deletes files while they are copied
        with stage_on(broker.bootstrap_servers, tmp_path) as other:
            second = other.handle()
            theirs = stage.settings_of("w1").state_dir / "store" / stage.settings.topic("")
            ours = other.settings_of("w1").state_dir / "store" / other.settings.topic("")

            def copied(directory):
                name = f"{SESSION_EVENTS}/{directory.name}"
                shutil.rmtree(f"{ours}{name}")
                shutil.copytree(f"{theirs}{name}", f"{ours}{name}")

            _continues_after(copied, other, second)
            assert second.has_logged("is rebuilt from the log: its topic_id is")


def test_S2_11_a_worker_that_lost_its_disk_continues_from_snapshots(rig):
    with rig.round() as (stage, handle):
        played = Play(stage, handle, "models.chunk:1", ("talk", "tools"))
        assert played.run().wrong == []
        before = stage.owner()
        handle.kill()
        settings = stage.settings_of("w1")
        made = list(make(stage.log, settings, demand_snapshots(settings)))
        assert len(made) == stage.settings.partitions
        shutil.rmtree(settings.state_dir)
        play = Play(stage, handle, cast=("tools", "cancel", "queue"))
        play.begin()
        handle.start()
        play.await_taken(before)
        play.until("everybody has an answer and nothing is pending", play.all_at_rest)
        assert witnesses.violations(stage, play.people) == []
        assert handle.has_logged("was loaded from the snapshot at offset")
        assert replay_differs(stage) == []
