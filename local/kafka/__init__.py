"""A real single-node Kafka 4.2 (KRaft) on loopback: no Docker, no installed Java, no root.

Read in this order: `broker` (up, down, status), `node` (the properties and the command line),
`jars` and `java` (the files it runs from), `process`, `probe` and `ports` (is it alive, does it
respond, what has the port), `crash_report` and `errors`, `temporary` (for tests), `prepare` (makes
starts faster).
"""

from .broker import Broker, BrokerState, BrokerStatus, Condition
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
from .temporary import temporary_broker

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
