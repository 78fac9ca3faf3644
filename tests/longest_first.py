"""Starts the longest files of tests first, so that every process works until the end.

A pytest plugin, loaded by tests/conftest.py. `make test` gives a whole file to one process and
starts the files in the order of collection. A long file that starts last would run alone.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LONGEST = (
    "tests/docs/test_pages.py",
    "tests/docs/test_how_to_pages.py",
    "tests/crash/test_points.py",
    "tests/cli/test_readme.py",
    "tests/cli/test_retain_on_a_broker.py",
    "tests/local/test_cluster.py",
    "tests/bench/test_smallest.py",
    "tests/cli/test_on_a_broker.py",
    "tests/local/test_broker_life.py",
    "tests/local/test_broker_errors.py",
    "tests/crash/test_outages.py",
    "tests/crash/test_full_disk.py",
    "tests/crash/test_asked_early.py",
    "tests/crash/test_supervised.py",
    "tests/simulation/test_simulation.py",
    "tests/client/test_worker.py",
    "tests/crash/test_two_workers.py",
    "tests/crash/test_three_brokers.py",
    "tests/structure/test_tidy.py",
    "tests/laws/test_wake_laws.py",
    "tests/cli/commands/test_reload.py",
    "tests/docs/test_web_example.py",
    "tests/log/test_kafka.py",
    "tests/processors/outside/test_mcp_stdio.py",
    "tests/crash/test_stores.py",
    "tests/cli/test_search_on_a_broker.py",
    "tests/crash/test_other_agents.py",
    "tests/crash/test_broker_killed.py",
    "tests/log/test_object_store_on_s3.py",
    "tests/security/test_whole_turn.py",
    "tests/producers/test_outage.py",
    "tests/log/test_kafka_life.py",
    "tests/client/test_outage.py",
    "tests/web/gateway/test_kills.py",
    "tests/security/test_clients.py",
)
"""The files that took over 20 seconds on a busy machine, the longest first (`--durations=0`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of LONGEST to the front."""
    for name in LONGEST:
        if not (ROOT / name).is_file():
            raise pytest.UsageError(f"tests/longest_first.py names {name}, which does not exist")
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))
