"""The properties of the single KRaft node and the command lines of its JVM.

Every number that tunes the local Kafka is here, with its reason. The node runs in the broker's
directory, and every path in this file is relative to that directory. So a home directory with
spaces, commas or umlauts in its name needs no escaping (Java reads properties as Latin-1), and the
broker's directory may be moved.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from .java import Java

HOST = "127.0.0.1"
DATA = "data"
NEW_DATA = "data.new"  # formatted here, then renamed: DATA is complete or absent
PROPERTIES = "server.properties"
FORMAT_PROPERTIES = "format.properties"
LOGGING = "log4j2.properties"

_RELEASE_WITH_UNSAFE_WARNING = 24  # from here on Java knows the option that silences it

LOGGING_TEXT = """\
rootLogger.level=WARN
rootLogger.appenderRef.stderr.ref=stderr
appender.stderr.type=Console
appender.stderr.name=stderr
appender.stderr.target=SYSTEM_ERR
appender.stderr.layout.type=PatternLayout
appender.stderr.layout.pattern=%d %p %c{1} %m%n
"""


def properties_text(
    port: int,
    extra: Mapping[str, str],
    data: str = DATA,
    *,
    node_id: int = 1,
    ports: Sequence[int] = (),
) -> str:
    """The node's properties, in which clients use `port` and the controller uses `port` + 1.
    `extra` adds or replaces properties. `ports`: those of all nodes of a cluster, in the order of
    their ids, which begin with 1."""
    listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": f"{HOST}:{port + 1}",
        "listeners": listeners,
        # Clients reconnect to the advertised address, so it must equal the address that they were
        # given.
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        # After kill -9 the controller re-admits the node only when its old session has ended:
        # 9000 (the default) makes a restart take 11 s, 1000 makes it 1.8 s, 500 burns more CPU.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "250",
        "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",  # the default waits for a fleet of consumers
        "log.retention.hours": "-1",  # the log is the truth: nothing expires
        "log.segment.bytes": str(64 << 20),
        # One node can have only one copy. With one partition each, Kafka does not create 50 + 50
        # directories.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # Two threads each saturate a laptop's producer; the defaults are for 24 cores.
        "num.network.threads": "2",
        "num.io.threads": "2",
        "num.replica.fetchers": "1",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),  # default 128 MB would eat half the heap
        **_of_cluster(ports),
        **extra,
    }
    if ports:
        del properties["controller.quorum.bootstrap.servers"]
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _of_cluster(ports: Sequence[int]) -> dict[str, str]:
    """The properties of a node that differ in a cluster."""
    if not ports:
        return {}
    copies, in_sync = str(len(ports)), str(len(ports) // 2 + 1)
    voters = (f"{each}@{HOST}:{port + 1}" for each, port in enumerate(ports, 1))
    return {
        # Static voters: their ports can change while all are down, and a node that lost its disk is
        # formatted and joins again, without commands to the quorum.
        "controller.quorum.voters": ",".join(voters),
        # A leader that died is replaced after the session timeout: shorter than the default of
        # 9000, but longer than the pauses of three busy JVMs on a laptop.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.election.timeout.ms": "500",
        "controller.quorum.fetch.timeout.ms": "1000",
        "replica.lag.time.max.ms": "3000",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "unclean.leader.election.enable": "false",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def jvm(java: Java, jars: Sequence[Path], start_caches: Path) -> list[str]:
    """The start of a command line: Java, its flags and the class path.

    Uses the startup cache in the directory `start_caches` if `prepare` has written one.
    """
    command = [str(java.path), *_flags(java), "-cp", ":".join(map(str, jars))]
    cache = start_cache(java, jars, start_caches)
    if cache is None or not cache.exists():
        return command
    # The log flags silence harmless warnings about a cache that does not match in every detail.
    flags = [f"-XX:AOTCache={cache}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    return [command[0], *flags, *command[1:]]


def start_cache(java: Java, jars: Sequence[Path], start_caches: Path) -> Path | None:
    """The path of the startup cache for exactly this Java, these flags and these jars.

    None for a Java that is not bundled, because an older Java would refuse the option and not
    start.
    """
    if java.version is None:
        return None
    key = "\n".join([java.version, *_flags(java), *map(str, jars)])
    return start_caches / f"kafka-{hashlib.sha256(key.encode()).hexdigest()[:16]}.aot"


def _flags(java: Java) -> list[str]:
    flags = [
        "-Xms64m",
        "-Xmx256m",  # 165 MB resident under a saturating producer; more changes nothing
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a start is 0.3 s faster than with the slow compiler
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",  # a dead node is restarted; a hung one blocks clients
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        "-Dlog4j2.disable.jmx=true",
        f"-Dlog4j2.configurationFile={LOGGING}",
    ]
    if java.release >= _RELEASE_WITH_UNSAFE_WARNING:
        flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    return flags


def format_arguments(cluster_id: str, *, alone: bool = True) -> list[str]:
    """The arguments to append to `jvm(...)` in order to format NEW_DATA. alone: whether the node is
    the whole cluster; otherwise its properties name the voters."""
    tool = ["kafka.tools.StorageTool", "format", *(["--standalone"] if alone else [])]
    return [*tool, "--cluster-id", cluster_id, "--config", FORMAT_PROPERTIES]
