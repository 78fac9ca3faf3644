"""A Kafka client without a broker, and after a fatal error. These tests need no broker."""

import logging
import sys
import threading

import pytest
from confluent_kafka import KafkaError, Message

from foldlog.log import (
    AccessDenied,
    AppendError,
    Fenced,
    LogBusy,
    LogFatal,
    LogUnreachable,
    Retry,
    SettingsError,
    open_log,
)
from foldlog.log.client import LOGGER, TRANSIENT, OncePerWhile, meaning
from foldlog.log.kafka import KafkaLog
from foldlog.log.settings import Settings
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.programs import run

UNREACHABLE = "127.0.0.1:1"  # a privileged port without a listener
LOST_IN_THE_LOGIN = (
    "GroupCoordinator: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Broker transport "
    "failure: broker's supported mechanisms: (n/a)"
)


@pytest.fixture
def connect():
    opened = []

    def make(**properties: str) -> KafkaLog:
        log = KafkaLog(UNREACHABLE, client_properties=properties, timeout_s=0.3)
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.identity(),
        lambda log: log.topic_id("t"),
        lambda log: log.end_offsets("t"),
        lambda log: log.offsets_at("t", 0),
        lambda log: log.apply_topics(topics(8)),
        lambda log: log.check_topics(topics(8)),
        lambda log: log.reader("t", {0: 0}),
        lambda log: log.group_reader("t", "g", "w", dict.fromkeys, lambda revoked: None),
    ],
)
def test_without_a_broker_every_call_names_the_command_that_starts_one(connect, call):
    with pytest.raises(LogUnreachable, match=rf"{UNREACHABLE}.*Connection refused.*`foldlog up`"):
        call(connect())


def test_without_a_broker_a_record_fails_after_its_timeout(connect):
    answers: list = []
    answered = threading.Event()
    producer = connect(**{"message.timeout.ms": "300"}).producer()
    producer.append("t", "k", b"v", on_delivery=lambda a: (answers.append(a), answered.set()))
    assert producer.flush(0.01) == 1 and answers == []
    assert answered.wait(60)
    (error,) = answers
    assert isinstance(error, AppendError) and isinstance(error, Retry)
    assert (error.topic, error.key, error.partition) == ("t", b"k", None)
    assert producer.flush(60) == 0


def test_an_acknowledgement_without_an_offset_does_not_end_the_producer(connect):
    """The defect: an assertion failed, and the producer ended as if foldlog had a bug. A client
    does not know the offset if a record is acknowledged as a repetition, after a broker was paused.
    """
    fatal: list = []
    producer = connect().producer(fatal.append)
    answers: list = []
    message = Message("t", partition=3, key=b"k", value=b"v", offset=-1001)
    assert message.offset() is None
    producer._answered("t", b"k", answers.append, None, message)
    (error,) = answers
    assert isinstance(error, AppendError) and error.partition == 3 and fatal == []


def test_a_full_queue_refuses_a_record_and_keeps_the_queued_ones(connect):
    producer = connect(**{"queue.buffering.max.messages": "2", "message.timeout.ms": "500"})
    producer = producer.producer()
    answers: list = []
    for _ in range(2):
        producer.append("t", "k", b"v", on_delivery=answers.append)
    with pytest.raises(LogBusy, match="not queued"):
        producer.append("t", "k", b"v", on_delivery=answers.append)
    assert producer.flush(60) == 0
    assert len(answers) == 2, "an answer for each queued record, none for the refused one"


def test_an_error_that_is_not_fatal_is_not_reported(connect):
    errors: list = []
    producer = connect(**{"message.timeout.ms": "100"}).producer(errors.append)
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    producer.append("t", "k", b"v")
    assert errors == []


def test_a_fatal_error_is_reported_once_and_closes_the_producer(connect, caplog):
    errors: list[LogFatal] = []
    producer = connect().producer(errors.append)
    for _ in range(2):
        producer._on_error(KafkaError(KafkaError._FATAL, "the log forgot this producer"))
    with pytest.raises(LogFatal, match="the log forgot this producer"):
        producer.append("t", "k", b"v")
    assert len(errors) == 1
    assert [r.getMessage()[:5] for r in caplog.records if r.levelname == "ERROR"] == ["FATAL"]


def test_an_error_in_a_callback_closes_the_producer(connect):
    errors: list[LogFatal] = []
    producer = connect(**{"message.timeout.ms": "200"}).producer(errors.append)
    producer.append("t", "k", b"v", on_delivery=lambda answer: 1 / 0)
    producer.flush(60)
    assert "ZeroDivisionError" in str(errors[0])
    with pytest.raises(LogFatal, match="ZeroDivisionError"):
        producer.append("t", "k", b"v")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._TRANSPORT, "gone"), LogUnreachable),
        (KafkaError(KafkaError._TIMED_OUT, "late"), LogUnreachable),
        (KafkaError(KafkaError._DESTROY_BROKER, "gone"), LogUnreachable),
        (KafkaError(KafkaError._AUTHENTICATION, "wrong password"), AccessDenied),
        (KafkaError(KafkaError._AUTHENTICATION, LOST_IN_THE_LOGIN), LogUnreachable),
        (KafkaError(KafkaError.FENCED_INSTANCE_ID, "x"), Fenced),
        (KafkaError(KafkaError._FATAL, "Static consumer fenced by other consumer"), Fenced),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"), AccessDenied),
        (KafkaError(KafkaError._TRANSPORT, "gone", True), LogFatal),
        (KafkaError(KafkaError.NOT_COORDINATOR, "moved", True), LogFatal),
        *((KafkaError(code, "not yet"), LogUnreachable) for code in sorted(TRANSIENT)),
    ],
)
def test_errors_of_the_client_map_to_errors_of_the_log(error, kind):
    found = meaning(error, "here:1")
    assert type(found) is kind
    assert len(str(found).split(". ")) >= 2, "what happened, what was kept, what to do"


def test_log_lines_of_one_kind_are_rate_limited_and_counted():
    now = 0.0
    shown: list[str] = []
    logger = logging.Logger("test")
    logger.addFilter(OncePerWhile(lambda: now))
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())
    logger.addHandler(handler)
    for number in range(1000):
        logger.warning("%s [%s] %s", "FAIL", "rdkafka#1", f"refused {number}")
    logger.warning("%s [%s] %s", "GETPID", "rdkafka#1", "retrying")
    now = 9.9
    logger.warning("%s [%s] %s", "FAIL", "rdkafka#1", "refused again")
    assert shown == ["FAIL [rdkafka#1] refused 0", "GETPID [rdkafka#1] retrying"]
    now = 10.0
    logger.warning("%s [%s] %s", "FAIL", "rdkafka#1", "still refused")
    logger.warning("plain line")
    logger.warning("plain line")
    assert shown[2:] == [
        "FAIL [rdkafka#1] still refused (1000 more like it were not shown)",
        "plain line",
    ]


def test_a_client_without_a_broker_logs_each_kind_of_line_once(connect, caplog, monkeypatch):
    # A new filter, because the process's own has counted the lines of other tests.
    monkeypatch.setattr(LOGGER, "filters", [OncePerWhile()])
    with caplog.at_level(logging.DEBUG, logger="foldlog.log.client"):
        producer = connect(**{"message.timeout.ms": "1500"}).producer()
        producer.append("t", "k", b"v")
        assert producer.flush(60) == 0
    kinds = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert len(kinds) == len(set(kinds)), kinds
    assert "_TRANSPORT:" in kinds


def test_importing_the_package_does_not_load_the_client_library():
    code = "import sys, foldlog.log; sys.exit('confluent_kafka' in sys.modules)"
    ran = run([sys.executable, "-c", code], within_s=90)
    assert ran.returncode == 0, ran.stderr


def test_the_settings_reach_the_client(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("message.timeout.ms=100\n", encoding="utf-8")
    env = {
        "HOME": str(tmp_path),
        "KAFKA_BOOTSTRAP_SERVERS": UNREACHABLE,
        "FOLDLOG_TOPIC_PREFIX": "p.",
        "FOLDLOG_CLIENT_PROPERTIES": str(file),
    }
    log = open_log(Settings.load(env))
    answers: list = []
    producer = log.producer()
    producer.append(SESSION_EVENTS, "k", b"v", on_delivery=answers.append)
    assert producer.flush(60) == 0 and isinstance(answers[0], AppendError)
    log.close()


def test_a_property_unknown_to_the_client_is_a_settings_error(connect):
    log = connect(**{"foo.bar": "baz"})
    for use in (log.identity, log.producer, lambda: log.reader("t", {0: 0})):
        with pytest.raises(SettingsError, match=r'"foo\.bar"'):
            use()
