"""Each bench that needs a broker runs once, at its smallest size, on real processes.

What a figure is does not matter here, only that there is one. The benches that compare with a peer
run without it in test_benches.py: their own side only.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foldlog.bench import (
    facts_cost,
    fleet_facts,
    fold_spread,
    frames,
    live,
    refold,
    steps,
    streams,
    takeover,
    viewers,
)
from foldlog.bench.measure import PARTITIONS, Installation, Ratio
from foldlog.bench.sizes import SHORT, Sizes
from foldlog.local.kafka import Broker
from foldlog.local.messages_api import ScriptedServer
from foldlog.log import Settings, open_log
from foldlog.schemas.topics import topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.chromium import chromium_path

pytestmark = [pytest.mark.broker]

SMALL: Sizes = {
    refold: {"STARTS": 1, "SESSIONS": 3, "TURNS": 2},
    fold_spread: {"STARTS": 1, "SPREADS": (2, 4), "SESSIONS": 4},
    frames: {"EVENTS": 40, "SESSIONS": 3, "FRAMES": 4, "EVENTS_A_S": 2_000.0},
    takeover: {"SHORT": 200, "LONG": 400, "TURNS": 2, "SNAPSHOT_RECORDS": 50},
    facts_cost: {"TURNS": 2, "PAIRS": 1},
    fleet_facts: {"USERS": 3, "SESSIONS": 2, "TURNS": 1},
    steps: {"STEPS": 2, "TURNS": 1},
    live: {"MESSAGES": 2, "WARM_S": 0.0},
    viewers: {"CHUNKS": 20, "VIEWERS": 4, "WATCHED": 2, "STOPS": 2},
    streams: {
        "STREAMS": 2, "COST_DELTAS": 500, "WINDOW_S": 0.5, "STREAMS_MIN": 2, "STEPS_MAX": 1,
        "LOAD_DELTAS": 50, "STEP_WINDOW_S": 3.0,
    },
}


def test_short_sizes_are_smaller_than_full_ones():
    for module, values in SHORT.items():
        for name, short in values.items():
            assert short < getattr(module, name), (module.__name__, name)


@pytest.fixture
def here(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """An installation on the shared broker, and benches of the smallest size."""
    for module, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    env = {
        "FOLDLOG_HOME": str(tmp_path), "HOME": str(tmp_path), "FOLDLOG_USER": "bench",
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "FOLDLOG_PARTITIONS": str(PARTITIONS), "FOLDLOG_TOPIC_PREFIX": unique_name("bench") + "-",
    }
    settings = Settings.load(env, None, {})
    log = open_log(settings)
    try:
        log.apply_topics(topics(PARTITIONS)).demand()
        yield Installation(settings, log, tmp_path, broker.dir)
    finally:
        log.close()


@pytest.mark.parametrize(
    "bench",
    [
        refold.fold,
        refold.replay,
        viewers.chunk_latency,
        viewers.idle_viewers_rss,
        pytest.param(
            frames.inspector_frames,
            marks=pytest.mark.skipif(chromium_path() is None, reason="no Chromium found"),
        ),
        fold_spread.fold_spread,
        takeover.takeover,
        fleet_facts.fleet_facts,
        facts_cost.facts_cost,
        steps.step_turnaround,
        streams.stream_cost,
        streams.streams_per_worker,
    ],
    ids=lambda bench: bench.__name__,
)
def test_a_bench_measures_at_its_smallest_size(
    here: Installation, bench: Callable[[Installation, int], Ratio]
) -> None:
    assert bench(here, 1).ours >= 0


def test_the_benches_of_a_worker_measure_at_their_smallest_size(here: Installation) -> None:
    with ScriptedServer(script=live.script()) as server, live.worker(here, server.base_url):
        for bench in (
            live.message_to_request, live.journaled_stream, viewers.stop_latency, live.recovery
        ):
            found = bench(here, server, 1)
            assert found.ours > 0 and found.runs >= 1, found
