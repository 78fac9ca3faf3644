"""Runs a real Kafka 4.2 (KRaft) on loopback, without Docker, installed Java or root.

Read in this order: `broker` (up, down, status), `cluster` (several brokers as one), `node` (the
properties and the command line), `jars` and `java` (the files that it runs), `process` (starts,
finds and ends its process), `probe` (whether it responds), `ports` (free ports, and which program
has a port), `crash_report` and `errors`, `temporary` (for tests), `prepare` (makes starts faster).
"""

from .broker import Broker, BrokerState, BrokerStatus, Condition
from .cluster import BrokerCluster, ClusterState, ClusterStatus, local_kafka
from .errors import (
    BrokerError,
    BrokerFailed,
    DirectoryBusy,
    DiskFull,
    JarRefused,
    JarsUnavailable,
    JavaMissing,
    JavaTooOld,
    PortTaken,
)
from .prepare import prepare
from .temporary import temporary_broker, temporary_cluster

__all__ = [
    "Broker",
    "BrokerCluster",
    "BrokerError",
    "BrokerFailed",
    "BrokerState",
    "BrokerStatus",
    "ClusterState",
    "ClusterStatus",
    "Condition",
    "DirectoryBusy",
    "DiskFull",
    "JarRefused",
    "JarsUnavailable",
    "JavaMissing",
    "JavaTooOld",
    "PortTaken",
    "local_kafka",
    "prepare",
    "temporary_broker",
    "temporary_cluster",
]
