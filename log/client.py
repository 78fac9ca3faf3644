"""The parts that all librdkafka clients of foldlog share: properties, log lines, error mapping.

The properties that correctness depends on are defined here; `client.properties` cannot change
them. Only this file, `kafka.py`, `kafka_reader.py` and `admin.py` import confluent_kafka.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ..schemas.topics import BATCH_BYTES_MAX
from .errors import AccessDenied, Fenced, FoldlogError, LogFatal, LogUnreachable, SettingsError

Made = TypeVar("Made")

_DEFAULTS: Mapping[str, Any] = {
    # Reconnect to a restarted broker at once: 0.7 s from kill -9 to the first ack with these.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log.connection.close": False,
    # A client learns only from the metadata that a broker was paused and that others lead its
    # partitions: its requests to the paused broker wait for 60 s. With the default of 300000, the
    # writers of these partitions waited as long as the pause (40 s); with this value, 3 to 7 s.
    "topic.metadata.refresh.interval.ms": 2000,
}

_PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "compression.type": "zstd",
    # The client counts the bytes of a batch before compression; check_size checks each record.
    "message.max.bytes": BATCH_BYTES_MAX,
}

_CONSUMER_DEFAULTS: Mapping[str, Any] = {
    # With the default of 1000, a fast reader stalls for a second each time that its queue was full.
    "fetch.queue.backoff.ms": 5,
    # A newly assigned or sought partition waits until the broker has answered the previous fetch,
    # which on a quiet topic takes all of this time: 0.5 s with the default of 500. A record
    # that arrives is delivered at once in either case. The cost is 10 empty fetches a second.
    "fetch.wait.max.ms": 100,
}

_PRODUCER_FIXED: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    # Every client must map a key to the same partition. librdkafka's default is CRC32.
    "partitioner": "murmur2_random",
}

_BRIEF: Mapping[str, Any] = {
    # librdkafka requests the id of an idempotent producer only 500 ms after the producer's
    # creation.
    "enable.idempotence": False,
    # A retried record keeps its position in the order; it may then be in the log twice.
    "max.in.flight.requests.per.connection": 1,
}

_CONSUMER_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # The store's cursor decides where to read. A gap must be an error.
    "auto.offset.reset": "error",
}

_GROUP_FIXED: Mapping[str, Any] = {
    # Classic and static: a restarted worker has its partitions in 0.1 s. KIP-848: 45 s or fatal.
    "group.protocol": "classic",
    # Cooperative: only moved partitions are revoked, so a second worker causes no refold.
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6000,
    # How late a member learns of a rebalance; moving a partition takes two intervals.
    "heartbeat.interval.ms": 250,
}

_GIVEN = frozenset({"bootstrap.servers", "group.id", "group.instance.id"})

_AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._DESTROY_BROKER,  # the client dropped its handle of a dead broker
        KafkaError._AUTHENTICATION,  # unless `denied`: the connection was lost during the login
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_PROPERTIES = "in client.properties (FOLDLOG_CLIENT_PROPERTIES)"
_LOGIN = f"Correct sasl.username, sasl.password or sasl.mechanism {_PROPERTIES}."
_TLS = f"Correct ssl.ca.location, ssl.certificate.location or ssl.key.location {_PROPERTIES}."
_RIGHTS = f"Grant it the rights of its role (docs/security.md), or set another {_PROPERTIES}."

_DENIED: Mapping[int, tuple[str, str]] = {
    KafkaError._AUTHENTICATION: ("the login failed", _LOGIN),
    KafkaError.SASL_AUTHENTICATION_FAILED: ("the login failed", _LOGIN),
    KafkaError.UNSUPPORTED_SASL_MECHANISM: ("the login failed", _LOGIN),
    KafkaError.ILLEGAL_SASL_STATE: ("the login failed", _LOGIN),
    KafkaError._SSL: ("the TLS handshake failed", _TLS),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("this principal lacks a right to topic", _RIGHTS),
    KafkaError.GROUP_AUTHORIZATION_FAILED: ("this principal lacks a right to group", _RIGHTS),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ("this principal may write to no topic", _RIGHTS),
}
"""Errors of a secured cluster: what failed, and what to do about it."""

MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
"""Errors which mean that the topic does not exist, or has no such partition."""

TRANSIENT = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._NOENT,  # no leader is known to the client: after a broker was paused
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that soon pass. They occur after a topic was created, or a broker stopped or started,
while a leader is elected or a coordinator reads its groups.
"""

SECRET_CHARS_MIN = 4
"""Shorter values of properties stay in messages: they are no secrets, and common words contain
them."""

_QUIET_S = 10.0
"""The interval in seconds in which each kind of line is logged once; without a broker, a client
logs thousands a minute.
"""


def check_properties(given: Mapping[str, str]) -> None:
    """Raise SettingsError if `given` would change a property that correctness depends on."""
    fixed = {**_PRODUCER_FIXED, **_CONSUMER_FIXED, **_GROUP_FIXED}
    for name, value in given.items():
        if name in fixed and str(value).lower() != str(fixed[name]).lower():
            raise SettingsError(
                f"client.properties sets {name}, but foldlog needs {name}={fixed[name]}: "
                "its guarantees depend on it. Remove that line."
            )
        if name in _GIVEN - {"bootstrap.servers"}:
            raise SettingsError(f"client.properties sets {name}, which foldlog sets itself.")


def common_properties(bootstrap_servers: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The properties that all clients have. `given`: the contents of `client.properties`."""
    check_properties(given)
    passed = {name: value for name, value in given.items() if name not in _GIVEN}
    return {**_DEFAULTS, **passed, "bootstrap.servers": bootstrap_servers}


def producer_properties(common: Mapping[str, Any], linger_ms: float, brief: bool) -> dict[str, Any]:
    """The properties of a producer. It is idempotent unless it is `brief`. An idempotent
    producer must first request a producer id, which delays its first record (see door.py).
    """
    defaults = {**_PRODUCER_DEFAULTS, "linger.ms": linger_ms}
    fixed = {**_PRODUCER_FIXED, **(_BRIEF if brief else {})}
    return {**defaults, **common, **fixed}


def reader_properties(common: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The properties of a consumer outside of any group. The client requires a group id, and
    brokers check the right to this group.

    End-of-partition events are on, so that a reader reaches a known end even if compaction or a
    transaction left a gap before it.
    """
    fixed = {**_CONSUMER_FIXED, "enable.partition.eof": True, "group.id": group}
    return {**_CONSUMER_DEFAULTS, **common, **fixed}


def group_properties(
    common: Mapping[str, Any], group: str, instance_id: str, label: str = ""
) -> dict[str, Any]:
    """The properties of a static member.

    End-of-partition events are off, because each would wake the member's loop needlessly.
    """
    fixed = {**_GROUP_FIXED, "group.instance.id": instance_id, "enable.partition.eof": False}
    if label:
        fixed["client.id"] = f"{common.get('client.id', 'foldlog')}{LABEL}{label}"
    return {**reader_properties(common, group), **fixed}


LABEL = "."
"""Separates the label at the end of a member's client id. The client id is the only field of a
member that every client can read and that a member may change at each start.
"""


def label_of(client_id: str) -> str:
    """The label in a client id; '' if it has none."""
    return client_id.rpartition(LABEL)[2] if LABEL in client_id else ""


STARTING = "Coordinator load in progress"
"""The error that an idempotent producer gets in a broker's first second; the client retries."""


class OncePerWhile(logging.Filter):
    """Passes one line of each kind per `_QUIET_S`, and counts the lines that it suppresses.

    The kind of a line of librdkafka is the facility that it begins with (FAIL, ERROR, GETPID, ...).
    The kind of any other line is its format string.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if STARTING in record.getMessage():
            return False
        kind = str(record.msg)
        if kind.startswith("%s ") and isinstance(record.args, tuple) and record.args:
            kind = str(record.args[0])
        now = self._monotonic_s()
        since, suppressed = self._kinds.get(kind, (float("-inf"), 0))
        if now - since < _QUIET_S:
            self._kinds[kind] = (since, suppressed + 1)
            return False
        self._kinds[kind] = (now, 0)
        if suppressed:
            record.msg = f"{record.getMessage()} ({suppressed} more like it were not shown)"
            record.args = ()
        return True


LOGGER = logging.getLogger("foldlog.log.client")
"""The logger for clients, and for messages that may come with every record; rate-limited by kind.
"""
LOGGER.addFilter(OncePerWhile())

ALARM = logging.getLogger("foldlog.log")
"""The logger for messages that are never suppressed."""


def is_fatal(error: KafkaError) -> bool:
    """Whether the error makes the client unusable.

    librdkafka marks such an error with a flag. An error that comes through the error callback lacks
    the flag and has the code _FATAL instead.
    """
    return error.fatal() or error.code() == KafkaError._FATAL


def open_client(build: Callable[..., Made], properties: Mapping[str, Any], **more: Any) -> Made:
    """Create a client. Raises SettingsError if the library rejects a property."""
    try:
        return build(dict(properties), **more)
    except KafkaException as error:
        text = _without_values(error.args[0].str().strip(), properties.values())
        raise SettingsError(
            f"the Kafka client rejects its properties: {text}. Nothing was read or "
            "written. Correct that line of client.properties (FOLDLOG_CLIENT_PROPERTIES)."
        ) from None


def _without_values(text: str, values: Iterable[Any]) -> str:
    """A message of the library without the values of properties, which may be secrets."""
    for value in sorted((str(value) for value in values), key=len, reverse=True):
        text = text.replace(f'"{value}"', "***")
        if len(value) >= SECRET_CHARS_MIN:
            text = text.replace(value, "***")
    return text


def denied(error: KafkaError, servers: str, about: str = "") -> AccessDenied | None:
    """The AccessDenied error to raise for `error`, or None if `error` is not a denial of access.
    `about`: the topic or group.
    """
    code, text = error.code(), error.str()
    if code == KafkaError._FATAL and "authorization failed" in text.lower():
        code = KafkaError.CLUSTER_AUTHORIZATION_FAILED  # the callback gets no other code
    if code == KafkaError._TRANSPORT and "SSL routines" in text:
        code = KafkaError._SSL  # a broker that rejects our certificate closes the connection
    if code == KafkaError._AUTHENTICATION and KafkaError(KafkaError._TRANSPORT).str() in text:
        return None  # the connection was lost during the login
    if code not in _DENIED:
        return None
    what, do = _DENIED[code]
    subject = f" {about}" if about and do is _RIGHTS else ""
    return AccessDenied(
        f"Kafka at {servers} refuses access: {what}{subject} ({text}). Acknowledged records "
        f"are safe in the log. {do}"
    )


def unreachable(servers: str, reason: str) -> LogUnreachable:
    return LogUnreachable(
        f"no Kafka broker answers at {servers} ({reason}). Nothing was read or written. Start it, "
        "or set another in KAFKA_BOOTSTRAP_SERVERS; if that is not set, `foldlog up` starts a "
        "local one."
    )


def meaning(error: KafkaError, servers: str, about: str = "") -> FoldlogError:
    """The foldlog error for `error`, whose message states what to do.

    `about`: the topic or group.
    """
    code = error.code()
    if code == KafkaError.FENCED_INSTANCE_ID or "fenced" in error.str().lower():
        return Fenced(
            "another process joined the group under this instance id, so this one stops. Nothing "
            "is lost: the other owns the partitions now. Two workers must not share a state "
            "directory. Stop one of them."
        )
    refused = denied(error, servers, about)
    if refused is not None:
        return refused
    if code in _AWAY and not is_fatal(error):
        return unreachable(servers, error.str())
    if code in TRANSIENT and not is_fatal(error):
        return LogUnreachable(
            f"Kafka at {servers} is not ready ({error.str()}). Nothing was read or written. Wait "
            "until its brokers are back."
        )
    return LogFatal(
        f"Kafka reports {error.name()}: {error.str()}. Acknowledged records are safe in the log. "
        "End this process, correct the cause (rights, versions, configuration), start it again."
    )
