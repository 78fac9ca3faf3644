"""Runs a real single-node Kafka 4.2 (KRaft) on loopback, without Docker, installed Java or root.

Read in this order: `broker` (up, down, status), `node` (the properties and the command line),
`jars` and `java` (the files that it runs), `process` (starts, finds and ends its process), `probe`
(whether it responds), `ports` (free ports, and which program has a port), `crash_report` and
`errors`, `temporary` (for tests), `prepare` (makes starts faster).
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
