"""Sends one raw Metadata request to a port, to find out whether a Kafka listens there, and which
cluster it belongs to.

A TCP connect proves nothing, since any program may have the port. The request is encoded by hand,
because only `log/` may use a Kafka client.
"""

import socket
import struct
from typing import NamedTuple

_METADATA = 3  # api key
# Version 4 is the newest with the old fixed-width encoding (from 9 on it is compact); Kafka 4
# serves 0 to 13. It returns the cluster id (since 2) and can request no topics (since 1).
_VERSION = 4
_CORRELATION_ID = 1
_ANSWER_BYTES_MAX = 1 << 20  # a node's response without topics is under 100 bytes


class KafkaAnswer(NamedTuple):
    """The response of a Kafka: its cluster id, and the ports that its live brokers advertise."""

    cluster_id: str | None
    ports: tuple[int, ...]


def ask(port: int, timeout_s: float = 1.0) -> KafkaAnswer | None:
    """The response of the Kafka on 127.0.0.1:`port`; None if nothing or something else is there."""
    # request header v1 (api key, version, correlation, client id), no topics, no auto-creation
    body = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION_ID, 7) + b"foldlog"
    body += struct.pack(">i?", 0, False)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                if not 0 < size <= _ANSWER_BYTES_MAX:
                    return None
                return _decode(stream.read(size))
    except (OSError, struct.error, UnicodeDecodeError):
        return None  # nothing listens there, or it does not speak the Kafka protocol


def _decode(answer: bytes) -> KafkaAnswer | None:
    at = 0

    def take(fmt: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(fmt, answer, at)
        at += struct.calcsize(fmt)
        return value

    def text() -> str | None:
        nonlocal at
        size = take(">h")
        if size < 0:
            return None
        if at + size > len(answer):
            raise struct.error("string longer than the answer")
        at += size
        return answer[at - size : at].decode()

    if take(">i") != _CORRELATION_ID:
        return None
    take(">i")  # throttle time
    ports = []
    for _ in range(take(">i")):
        take(">i"), text()  # node id, host
        ports.append(take(">i"))
        text()  # rack
    return KafkaAnswer(text(), tuple(ports))
