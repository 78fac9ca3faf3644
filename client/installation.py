"""Finds the settings and the broker of this installation, for the command line and for Python.

Only this file turns the environment into settings and chooses the broker: the configured broker,
otherwise the local broker that `foldlog up` started.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..log import LogUnreachable, Settings, environment
from ..log.extras import command, is_installed
from ..log.settings import FLUSHED, unknown_variables

if TYPE_CHECKING:
    from ..local.kafka import Broker, BrokerCluster

LOGGER = logging.getLogger("foldlog.client")
SETTINGS_FILE = "foldlog.toml"
FLUSHING = {"log.flush.interval.messages": "1"}
"""Properties of a local broker that writes every record of every topic to its disk at once."""
SCRIPTED_KEY = "scripted"
"""The API key sent to the scripted model's server, which accepts any key."""


def find_settings(
    flags: Mapping[str, Any] | None = None,
    config: Path | None = None,
    report: Callable[[str], None] = LOGGER.warning,
) -> Settings:
    """The settings of this process: flags override the environment, which overrides the file (by
    default `foldlog.toml` in the working directory). `report` gets a line about each environment
    variable that is probably misspelt. Raises SettingsError.
    """
    settings = Settings.load(os.environ, config or Path(SETTINGS_FILE), flags or {})
    for text in unknown_variables(settings, os.environ):
        report(f"foldlog: {text}")
    return settings


def local_broker(settings: Settings, brokers: int | None = None) -> "Broker | BrokerCluster":
    """The local Kafka of this machine, running or not. brokers: their number (default: as they were
    started before). Raises BrokerError if the directory has another number of brokers.
    """
    from ..local.kafka import local_kafka

    env = environment.for_children(environment.JAVA)
    properties = FLUSHING if settings.durability == FLUSHED else {}
    return local_kafka(
        settings.kafka_dir, settings.cache_dir, brokers=brokers, properties=properties, env=env
    )


def bootstrap_servers(settings: Settings) -> str:
    """The broker's address. Raises LogUnreachable, whose message states how to start a broker."""
    if settings.bootstrap_servers is not None:
        return settings.bootstrap_servers
    from ..local.kafka import BrokerError, Condition

    try:
        broker = local_broker(settings)
    except BrokerError as error:
        raise LogUnreachable(str(error)) from error
    status = broker.status()
    if status.state is None and status.pid is None:
        if not is_installed("local"):
            raise LogUnreachable(
                "no Kafka is configured, and the local one is not installed here. Set "
                f"KAFKA_BOOTSTRAP_SERVERS, or run {command('local')} and `foldlog up`."
            )
        raise LogUnreachable(
            "no Kafka is configured, and no local one is running. Run `foldlog up` (or "
            "`foldlog dev` for everything), or set KAFKA_BOOTSTRAP_SERVERS."
        )
    if status.condition is Condition.GONE:
        raise LogUnreachable(
            "the local Kafka was started, but it has exited or was killed. Its data is kept. "
            "Run `foldlog up` to start it again."
        )
    return broker.bootstrap_servers


def connected(settings: Settings) -> Settings:
    """The settings with the broker's address. Raises LogUnreachable."""
    return replace(settings, bootstrap_servers=bootstrap_servers(settings))


@contextmanager
def model_of(
    settings: Settings, roles: Sequence[str], report: Callable[[str], None]
) -> Iterator[Settings]:
    """Yield settings with which model calls get an answer.

    If the `roles` call models, but neither an API key nor a base URL is set, a scripted model runs
    while the block runs. `report` then gets a line that says so.
    """
    if "models" not in roles or settings.api_key or settings.base_url:
        yield settings
        return
    from ..local.messages_api import spawn

    with spawn("demo", env=environment.for_children()) as server:
        report(
            "no ANTHROPIC_API_KEY and no ANTHROPIC_BASE_URL: a scripted model answers at "
            f"{server.base_url}"
        )
        yield replace(settings, api_key=SCRIPTED_KEY, base_url=server.base_url)
