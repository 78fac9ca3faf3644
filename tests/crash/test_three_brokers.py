"""One broker of three is killed or paused under busy sessions: no acknowledged record is lost, no
`once` tool runs twice, and the views equal a fold of the log."""

import pytest

from foldlog.local.kafka import temporary_cluster
from foldlog.tests.crash.broker_faults import ThreeBrokers

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]

GATE = ("killed", "paused")  # `make soak ARGS="--brokers 3"` plays the other faults too


@pytest.fixture(scope="module")
def three(broker_cache_dir, tmp_path_factory):
    with temporary_cluster(broker_cache_dir) as cluster:
        made = ThreeBrokers(cluster, tmp_path_factory.mktemp("three"))
        yield made
        made.close()


@pytest.mark.timeout(300)  # 70 s on a busy machine: conversations, elections, replicas in sync
@pytest.mark.parametrize("fault", GATE)
def test_S0_2_a_replicated_log_survives_a_broker_that_is(fault, three):
    assert three.round(fault, ("talk", "tools", "approve")) == []
