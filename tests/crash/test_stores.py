"""A store that is lost, damaged, of another log or of another version is made anew, and says so.

The worker is killed in the middle of a turn, its stores are changed, the next one goes on.
"""

import shutil

import pytest

from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]

DAMAGES = {
    damage.deleted: None,  # nothing is left that could be of another log
    damage.of_other_folds: "is rebuilt from the log: its folds is older",
    damage.of_another_history: "the log is not the one its store was folded from",
    damage.beyond_the_end: "is beyond the log's end",
    damage.undecodable: "its store is damaged (session",
    damage.unreadable: "is rebuilt from the log: it is damaged",
}


def _goes_on_after(change, stage, hand) -> None:
    play = Play(stage, hand, cast=("tools", "cancel"))
    if hand.active is None:
        hand.start()
        play.await_taken("")
    play.begin()
    play.until("something streams", play.streams)
    before = stage.owner()
    hand.kill()
    for partition in range(stage.settings.partitions):
        change(damage.store_of(stage, "w1", partition))
    hand.start()
    play.await_taken(before)
    play.until("everybody has an answer and owes nothing", play.all_rest)
    assert witnesses.violations(stage, play.people) == []
    assert replay_differs(stage) == []


@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_S2_11_a_store_that_does_not_fit_is_made_anew(change, rig):
    with rig.round() as (stage, hand):
        _goes_on_after(change, stage, hand)
        assert DAMAGES[change] is None or hand.said(DAMAGES[change])


def test_S2_11_a_store_copied_from_another_installation_is_made_anew(rig, broker, tmp_path):
    with rig.round() as (stage, hand):
        if hand.active is None:
            Play(stage, hand, "models.chunk:1", ("talk",)).run()
        with stage_on(broker.bootstrap_servers, tmp_path) as other:
            second = other.hand()
            theirs = stage.settings_of("w1").state_dir / "store" / stage.settings.topic("")
            ours = other.settings_of("w1").state_dir / "store" / other.settings.topic("")

            def copied(directory):
                name = f"{SESSION_EVENTS}/{directory.name}"
                shutil.rmtree(f"{ours}{name}")
                shutil.copytree(f"{theirs}{name}", f"{ours}{name}")

            _goes_on_after(copied, other, second)
            assert second.said("is rebuilt from the log: its topic_id is")
