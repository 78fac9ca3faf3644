"""Several brokers on one machine, as one Kafka cluster: to try a replicated log, and for tests.

Each broker is also a controller and has a directory of its own below that of the cluster. The file
`cluster.json` has what they share: the cluster's id and their ports. One broker of three may be
killed, paused or emptied while clients continue; `up` starts the missing ones again.
"""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from . import node
from .broker import (
    Broker,
    BrokerState,
    BrokerStatus,
    Condition,
    make_private,
    new_cluster_id,
    unusable,
)
from .errors import BrokerFailed, PortTaken
from .jars import Progress, only_one
from .ports import DEFAULT_PORT, free_pair, holder_of

_FILE = "cluster.json"
_PORT_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """A cluster whose brokers have become ready. `brokers` has the state of each."""

    cluster_id: str
    brokers: tuple[BrokerState, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(state.bootstrap_servers for state in self.brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The current status of the cluster and of each of its brokers. `state` is None unless each
    broker has been started since the last `down`."""

    condition: Condition
    state: ClusterState | None
    brokers: tuple[BrokerStatus, ...]

    @property
    def running(self) -> bool:
        return self.condition is Condition.RUNNING

    @property
    def pid(self) -> int | None:
        """The process id of the first broker that runs; None if none does."""
        return next((status.pid for status in self.brokers if status.pid), None)


@dataclass(frozen=True, kw_only=True)
class BrokerCluster:
    """The local Kafka of one directory, with `size` brokers.

    The other arguments are those of `Broker`. The ports are chosen at the first start, beginning at
    `preferred_port`. They are chosen again if another program has one of them while no broker runs.
    """

    dir: Path
    cache_dir: Path
    size: int = 3
    preferred_port: int | None = DEFAULT_PORT
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()
    tied: bool = False
    mirror: str | None = None
    env: Mapping[str, str] | None = None

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers, in the order of their ids, which begin with 1. Raises BrokerFailed before
        the first `up`."""
        shared = read_shared(self.dir)
        if shared is None:
            raise BrokerFailed(f"no brokers have been started in {self.dir}: run `foldlog up`")
        cluster_id, ports = shared
        return tuple(
            Broker(
                dir=self.dir / f"broker-{number}",
                cache_dir=self.cache_dir,
                port=port,
                properties=self.properties,
                java_options=self.java_options,
                tied=self.tied,
                mirror=self.mirror,
                env=self.env,
                node_id=number,
                ports=ports,
                cluster_id=cluster_id,
            )
            for number, port in enumerate(ports, 1)
        )

    def up(self, progress: Progress = lambda _line: None) -> ClusterState:
        """Start the brokers that do not run, and return when all respond. Raises BrokerError.

        If the call fails or is interrupted (Ctrl-C), it ends the processes that it started.
        """
        try:
            self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._only_one(progress):
                states = self._start(progress)
                make_private(self.dir)
        except OSError as error:
            raise unusable(self.dir, error) from error
        return ClusterState(cluster_id=states[0].cluster_id, brokers=states)

    def _start(self, progress: Progress) -> tuple[BrokerState, ...]:
        for attempt in range(_PORT_TRIES):
            some_run = self._choose_ports(progress)
            try:
                with ExitStack() as stack:
                    # None responds before most have started, so all are started first.
                    ready = [broker.launch(stack, progress) for broker in self.brokers]
                    return tuple(await_ready() for await_ready in ready)
            except PortTaken:  # taken between our check and Kafka's bind
                if some_run or attempt == _PORT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def down(self) -> bool:
        """Stop the brokers and keep their data; False if none ran."""
        if read_shared(self.dir) is None:
            return False
        with self._only_one(lambda _line: None):
            # All at once: a broker that stops after the others waits for a majority that is gone.
            for broker in self.brokers:
                if (pid := broker.pid) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
            return any([broker.down() for broker in self.brokers])

    def kill(self) -> None:
        """Send SIGKILL to every broker that runs."""
        if read_shared(self.dir) is not None:
            for broker in self.brokers:
                broker.kill()

    def status(self) -> ClusterStatus:
        """The current status, read without a lock and without changing anything."""
        shared = read_shared(self.dir)
        if shared is None:
            return ClusterStatus(condition=Condition.STOPPED, state=None, brokers=())
        each = tuple(broker.status() for broker in self.brokers)
        states = [status.state for status in each if status.state is not None]
        state = None
        if len(states) == len(each):
            state = ClusterState(cluster_id=shared[0], brokers=tuple(states))
        return ClusterStatus(condition=_together(each), state=state, brokers=each)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to which clients connect. Raises BrokerFailed if `up` was never called."""
        return ",".join(f"{node.HOST}:{broker.port}" for broker in self.brokers)

    def _choose_ports(self, progress: Progress) -> bool:
        """Choose the ports, unless they were chosen before and are still usable. Returns whether a
        broker runs already."""
        shared = read_shared(self.dir)
        if shared is not None:
            if any(broker.pid for broker in self.brokers):
                return True
            cluster_id, ports = shared
        else:
            cluster_id, ports = new_cluster_id(), self._preferred()
        holder = next(filter(None, map(holder_of, ports)), None)
        if holder is not None:
            progress(f"port {holder}; choosing other ones")
        if holder is not None or not ports:
            chosen: list[int] = []
            while len(chosen) < self.size:
                port = free_pair()
                chosen += [] if port in chosen else [port]
            ports = tuple(chosen)
        self._write_shared(cluster_id, ports)
        return False

    def _preferred(self) -> tuple[int, ...]:
        if self.preferred_port is None:
            return ()
        return tuple(range(self.preferred_port, self.preferred_port + 2 * self.size, 2))

    def _write_shared(self, cluster_id: str, ports: tuple[int, ...]) -> None:
        scratch = self.dir / f"{_FILE}.new"
        scratch.write_text(json.dumps({"cluster_id": cluster_id, "ports": ports}))
        os.replace(scratch, self.dir / _FILE)

    def _only_one(self, progress: Progress) -> AbstractContextManager[None]:
        return only_one(
            self.dir / "up.lock",
            lambda: progress("waiting for another `foldlog up` or `down` in this directory"),
        )


def read_shared(directory: Path) -> tuple[str, tuple[int, ...]] | None:
    """The id and the ports of the cluster in a directory; None if it has no cluster."""
    try:
        shared = json.loads((directory / _FILE).read_text())
        return shared["cluster_id"], tuple(shared["ports"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerFailed(
            f"{directory / _FILE} is damaged, so the ports of the brokers are unknown. Their data "
            f"is untouched. Restore the file, or move {directory} away to start empty."
        ) from error


def _together(each: tuple[BrokerStatus, ...]) -> Condition:
    conditions = {status.condition for status in each}
    if len(conditions) == 1:
        return conditions.pop()
    if Condition.RUNNING in conditions:
        return Condition.PARTIAL
    return Condition.SILENT if Condition.SILENT in conditions else Condition.GONE


def local_kafka(
    directory: Path,
    cache_dir: Path,
    *,
    brokers: int | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
    env: Mapping[str, str] | None = None,
) -> Broker | BrokerCluster:
    """The local Kafka of a directory, running or not. brokers: their number, or None for that of
    the directory (1 if it is new). `properties` are added to those of a broker that starts. Raises
    BrokerFailed if the directory has another number of brokers.
    """
    shared = read_shared(directory)
    present = len(shared[1]) if shared else 1 if (directory / node.DATA).exists() else None
    wanted = brokers or present or 1
    if present not in (None, wanted):
        raise BrokerFailed(
            f"the local Kafka in {directory} has {present} broker{'s' * (present != 1)}, and its "
            f"data stays with them. Nothing was started. Omit --brokers, or start {wanted} in "
            f"another directory: foldlog --home DIR up --brokers {wanted}"
        )
    if wanted == 1:
        return Broker(dir=directory, cache_dir=cache_dir, properties=properties, env=env)
    return BrokerCluster(
        dir=directory, cache_dir=cache_dir, size=wanted, properties=properties, env=env
    )
