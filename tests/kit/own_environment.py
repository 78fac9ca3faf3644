"""Environments for the processes that a test starts, without the settings of the person who runs
the tests."""

import os
from pathlib import Path

from foldlog.tests.kit.broker_fixture import unique_name

NO_FLEET = {"FOLDLOG_FLEET_URL": "http://127.0.0.1:1"}
"""With it, `dev` starts no fleet, whose start takes seconds of CPU, and finds none."""
KEPT = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME", "VIRTUAL_ENV")


def bare_env(*more: str) -> dict[str, str]:
    """The variables of this process's environment that every program needs (KEPT), and those with
    these names."""
    return {name: os.environ[name] for name in (*KEPT, *more) if name in os.environ}


def installation_env(servers: str, home: Path, stem: str, partitions: int = 2) -> dict[str, str]:
    """The environment of a new installation: its own home, and its own topics on a broker."""
    return bare_env() | {
        "KAFKA_BOOTSTRAP_SERVERS": servers,
        "FOLDLOG_TOPIC_PREFIX": unique_name(stem) + "-",
        "FOLDLOG_PARTITIONS": str(partitions),
        "FOLDLOG_HOME": str(home),
        "FOLDLOG_USER": "ana",
    }
