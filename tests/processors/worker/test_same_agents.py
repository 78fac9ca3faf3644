"""A worker does not start if its agents differ from those of the live workers."""

import pytest

from foldlog.log import Clock, MemoryLog
from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.worker.same_agents import (
    AgentsDiffer,
    announcements,
    demand_after_rebalance,
    demand_same_agents,
    group_of,
    label_of,
    others_than,
)
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, topics

ONE = (ev.AgentDigest(name="shop", digest="0" * 32),)
OTHER = (
    ev.AgentDigest(name="desk", digest="0" * 32),
    ev.AgentDigest(name="shop", digest="0" * 8 + "1" * 8 + "0" * 16),
)
ALL = ("sessions", "models", "tools", "background", "delivery")


@pytest.fixture
def log():
    return MemoryLog(topics(2), clock_ms=Clock())


def join(log, name, agents, *, roles=ALL, rolling=False) -> None:
    """Add a worker to its consumer group, and announce the worker's agents."""
    label = label_of(agents, rolling=rolling) if agents else ""
    member = log.group_reader(
        SESSION_EVENTS, group_of(roles), name, lambda ps: dict.fromkeys(ps, 0), lambda _ps: None,
        label,
    )
    member.poll(0)
    event = ev.PartitionTaken(role=roles[0], owner=f"{name}/1", agents=agents)
    headers = headers_for(event, roles[0])
    log.producer().append(SESSION_EVENTS, PARTITION_KEY, encode(event), headers, partition=1)


def test_A6_a_worker_with_the_same_agents_starts_at_once(log):
    join(log, "w1", ONE)
    demand_same_agents(log, "w2", ONE, pytest.fail)
    demand_same_agents(log, "w1", OTHER, pytest.fail)  # its own earlier process


@pytest.mark.parametrize("roles", [ALL, ("models",)])
def test_A6_a_worker_with_other_agents_is_refused_with_the_differences(log, roles):
    join(log, "w1", ONE, roles=roles)
    with pytest.raises(AgentsDiffer) as refused:
        demand_same_agents(log, "w2", OTHER, lambda _text: None, wait_s=0)
    reason = str(refused.value)
    assert "worker w1 (agent desk is only here, agent shop has another prompt)" in reason
    assert "--rolling-update" in reason and "foldlog dev" in reason


def test_A6_a_start_waits_until_an_ended_worker_has_left_the_group(log):
    join(log, "w1", ONE)
    output = []

    def say(text):
        output.append(text)
        log.clock_ms.advance(log.session_timeout_ms + 1)

    demand_same_agents(log, "w2", OTHER, say)
    assert len(output) == 1 and "w1" in output[0]


def test_A6_a_worker_of_a_version_without_labels_is_ignored(log):
    join(log, "w1", ())
    assert others_than(log, "w2", OTHER) == []


def test_A6_of_two_concurrent_starts_the_one_with_the_greater_id_ends(log):
    join(log, "w1", ONE)
    join(log, "w2", OTHER)
    demand_after_rebalance(log, "w1", ONE)
    with pytest.raises(AgentsDiffer, match="worker w1"):
        demand_after_rebalance(log, "w2", OTHER)


def test_A6_a_rolling_update_does_not_end_the_workers_it_has_not_replaced_yet(log):
    join(log, "w1", ONE, rolling=True)
    demand_after_rebalance(log, "w2", OTHER)
    with pytest.raises(AgentsDiffer):  # a worker without --rolling-update is refused
        demand_same_agents(log, "w3", OTHER, lambda _text: None, wait_s=0)


def test_A6_the_newest_announcement_of_each_worker_counts(log):
    join(log, "w1", OTHER)
    log.clock_ms.advance(10)
    join(log, "w1", ONE)
    join(log, "w2", OTHER)
    assert announcements(log) == {"w1": ONE, "w2": OTHER}


def test_A6_the_partition_view_knows_which_agents_its_holder_lacks(log):
    join(log, "w1", ONE)
    view = partition_fold.INITIAL
    for record in log.records(SESSION_EVENTS, 1):
        view = partition_fold.apply(view, entry_of(record))
    assert partition_fold.without(view, "shop") is None
    assert partition_fold.without(view, "desk").owner == "w1/1"
    assert partition_fold.without(partition_fold.INITIAL, "desk") is None
