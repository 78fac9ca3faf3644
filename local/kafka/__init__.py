"""A real single-node Kafka 4.2 (KRaft) on loopback: no Docker, no installed Java, no root.

Read in this order: `broker` (up, down, status), `node` (what the JVM is told), `jars` and `java`
(what it is made of), `process` and `probe` (is it alive, does it answer), `errors`.
"""

from .broker import Broker, BrokerState, BrokerStatus, temporary_broker
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

__all__ = [
    "Broker",
    "BrokerError",
    "BrokerFailed",
    "BrokerState",
    "BrokerStatus",
    "DirectoryBusy",
    "DiskFull",
    "JarRefused",
    "JarsUnavailable",
    "JavaMissing",
    "JavaTooOld",
    "PortTaken",
    "temporary_broker",
]
