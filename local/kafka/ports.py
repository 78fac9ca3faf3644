"""Finds two free ports for a node (for clients, and the next one for the controller), and finds out
which program has a port."""

import random
import socket

from .errors import PortTaken
from .probe import ask

DEFAULT_PORT = 19092  # 9092 is every other Kafka's default
# Free pairs are drawn below the range of ephemeral ports: in that range a client that retries a
# dead broker for long enough connects to itself and occupies the port.
_FREE_PORTS = range(20_000, 32_000, 2)
_FREE_TRIES = 100


def free_pair() -> int:
    """A free port whose next higher port is free too. Raises PortTaken if none was found."""
    for port in random.sample(_FREE_PORTS, _FREE_TRIES):
        if not (is_taken(port) or is_taken(port + 1)):
            return port
    raise PortTaken(
        f"found no free pair of ports between {_FREE_PORTS[0]} and {_FREE_PORTS[-1]}. Nothing was"
        " started. Choose a port yourself."
    )


def holder_of(port: int) -> str | None:
    """Text about the program that has `port` or the next port; None if both ports are free."""
    for taken in (port, port + 1):
        if is_taken(taken):
            answer = ask(taken)
            who = f"another Kafka (cluster {answer.cluster_id})" if answer else "another program"
            return f"{taken} is taken by {who}"
    return None


def is_taken(port: int) -> bool:
    """True if something listens on the port, or it cannot be bound on loopback."""
    with socket.socket() as listener:
        # As for the JVM, a port in TIME_WAIT counts as free. The bind still fails if there is a
        # listener.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return True
    with socket.socket() as client:  # some systems allow a bind next to a wildcard listener
        client.settimeout(1.0)
        return client.connect_ex(("127.0.0.1", port)) == 0
