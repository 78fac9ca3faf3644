"""A real single-node Kafka 4.2 (KRaft) on loopback: no Docker, no installed Java, no root.

Read in this order: `broker` (up, down, status), `node` (what the JVM is told), `jars` and `java`
(what it is made of), `process` and `probe` (is it alive, does it answer), `last_words` and
`errors`, `prepare` (makes starts faster).
"""

from .broker import Broker, BrokerState, BrokerStatus, Condition, temporary_broker
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

__all__ = [
    "Broker",
    "BrokerError",
    "BrokerFailed",
    "BrokerState",
    "BrokerStatus",
    "Condition",
    "DirectoryBusy",
    "DiskFull",
    "JarRefused",
    "JarsUnavailable",
    "JavaMissing",
    "JavaTooOld",
    "PortTaken",
    "prepare",
    "temporary_broker",
]
