"""The holders of partitions, read backwards from the end of the log, are those of a fold."""

import random

import pytest

from foldlog.client import holders
from foldlog.client.holders import holders_of
from foldlog.client.show import fold_everything
from foldlog.processors.fold.projections.partition import ANSWERS, INITIAL
from foldlog.producers import Sessions
from foldlog.schemas.events.parts import AgentDigest
from foldlog.tests.kit.played import PARTITIONS, Played, memory_log, settings_in

AGENTS = [(AgentDigest(name=name, digest="0" * 32),) for name in ("shop", "bank")]


@pytest.fixture
def log(tmp_path):
    """Sessions in several partitions, whose workers change at random."""
    log, pick = memory_log(), random.Random(5)
    sessions = Sessions(log, settings_in(tmp_path))
    for number in range(40):
        sessions.open(f"s{number}", agent="shop")
        if pick.random() < 0.3:
            Played(log, f"s{number}").take(f"w{number}/1", pick.choice(AGENTS))
    return log


def answering(view):
    """The owner and the agents of the roles that every answer needs."""
    found = [view.holder(role) for role in ANSWERS]
    return [holder and (holder.owner, holder.epoch, holder.agents) for holder in found]


@pytest.mark.parametrize("window", [1, 3, 5_000])
def test_the_holders_are_those_of_a_fold(log, monkeypatch, window):
    monkeypatch.setattr(holders, "WINDOW", window)
    monkeypatch.setattr(holders, "GROWTH", 2)
    folded = fold_everything(log).holders
    found = holders_of(log, range(PARTITIONS))
    assert set(found) == set(range(PARTITIONS)) and folded
    for place, view in found.items():
        assert answering(view) == answering(folded.get(place, INITIAL))


def test_a_partition_without_holders_is_read_to_its_beginning(tmp_path):
    log = memory_log()
    assert holders_of(log, [0, 1]) == {0: INITIAL, 1: INITIAL}
    Sessions(log, settings_in(tmp_path)).open("s1", agent="shop")
    assert set(holders_of(log, range(PARTITIONS)).values()) == {INITIAL}


def test_a_window_that_is_not_read_in_time_finds_nothing(log):
    assert holders_of(log, range(PARTITIONS), -1.0) == {}
