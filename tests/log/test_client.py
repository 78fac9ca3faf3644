"""What a client does when no broker answers, or when it fails for good. Needs no broker."""

import logging
import subprocess
import sys
import threading

import pytest
from confluent_kafka import KafkaError

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
from foldlog.log.client import LOGGER, OncePerWhile, meaning
from foldlog.log.kafka import KafkaLog
from foldlog.log.settings import Settings
from foldlog.schemas.topics import SESSION_EVENTS, topics

NOBODY = "127.0.0.1:1"  # a port that only the superuser may listen on, and does not


@pytest.fixture
def connect():
    opened = []

    def make(**properties: str) -> KafkaLog:
        log = KafkaLog(NOBODY, client_properties=properties, timeout_s=0.3)
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.identity(),
        lambda log: log.topic_id("t"),
        lambda log: log.end_offsets("t"),
        lambda log: log.offsets_at("t", 0),
        lambda log: log.apply_topics(topics(8)),
        lambda log: log.check_topics(topics(8)),
        lambda log: log.reader("t", {0: 0}),
        lambda log: log.group_reader("t", "g", "w", dict.fromkeys, lambda taken: None),
    ],
)
def test_without_a_broker_every_question_says_so_and_what_to_do(connect, ask):
    with pytest.raises(LogUnreachable, match=rf"{NOBODY}.*Connection refused.*`foldlog up`"):
        ask(connect())


def test_without_a_broker_a_record_waits_and_then_fails_by_itself(connect):
    told: list = []
    answered = threading.Event()
    producer = connect(**{"message.timeout.ms": "300"}).producer()
    producer.append("t", "k", b"v", on_delivery=lambda a: (told.append(a), answered.set()))
    assert producer.flush(0.01) == 1 and told == []
    assert answered.wait(60)
    (error,) = told
    assert isinstance(error, AppendError) and isinstance(error, Retry)
    assert (error.topic, error.key, error.partition) == ("t", b"k", None)
    assert producer.flush(60) == 0


def test_a_full_queue_refuses_a_record_and_keeps_those_before_it(connect):
    producer = connect(**{"queue.buffering.max.messages": "2", "message.timeout.ms": "500"})
    producer = producer.producer()
    told: list = []
    for _ in range(2):
        producer.append("t", "k", b"v", on_delivery=told.append)
    with pytest.raises(LogBusy, match="not queued"):
        producer.append("t", "k", b"v", on_delivery=told.append)
    assert producer.flush(60) == 0
    assert len(told) == 2, "each of the two was answered, the third never was"


def test_an_error_that_is_not_fatal_is_news(connect):
    told: list = []
    producer = connect(**{"message.timeout.ms": "100"}).producer(told.append)
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    producer.append("t", "k", b"v")
    assert told == []


def test_a_fatal_error_is_told_once_and_ends_the_producer(connect, caplog):
    told: list[LogFatal] = []
    producer = connect().producer(told.append)
    for _ in range(2):
        producer._on_error(KafkaError(KafkaError._FATAL, "the log forgot this producer"))
    with pytest.raises(LogFatal, match="the log forgot this producer"):
        producer.append("t", "k", b"v")
    assert len(told) == 1
    assert [r.getMessage()[:5] for r in caplog.records if r.levelname == "ERROR"] == ["FATAL"]


def test_a_bug_in_a_callback_is_not_swallowed(connect):
    told: list[LogFatal] = []
    producer = connect(**{"message.timeout.ms": "200"}).producer(told.append)
    producer.append("t", "k", b"v", on_delivery=lambda answer: 1 / 0)
    producer.flush(60)
    assert "ZeroDivisionError" in str(told[0])
    with pytest.raises(LogFatal, match="ZeroDivisionError"):
        producer.append("t", "k", b"v")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._TRANSPORT, "gone"), LogUnreachable),
        (KafkaError(KafkaError._TIMED_OUT, "late"), LogUnreachable),
        (KafkaError(KafkaError._DESTROY_BROKER, "gone"), LogUnreachable),
        (KafkaError(KafkaError._AUTHENTICATION, "wrong password"), AccessDenied),
        (KafkaError(KafkaError.FENCED_INSTANCE_ID, "x"), Fenced),
        (KafkaError(KafkaError._FATAL, "Static consumer fenced by other consumer"), Fenced),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"), AccessDenied),
        (KafkaError(KafkaError._TRANSPORT, "gone", True), LogFatal),
    ],
)
def test_what_an_error_of_the_client_means(error, kind):
    found = meaning(error, "here:1")
    assert type(found) is kind
    assert len(str(found).split(". ")) >= 2, "what happened, what was kept, what to do"


def test_lines_of_one_kind_come_once_in_a_while_and_are_counted():
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


def test_a_client_without_a_broker_writes_few_lines(connect, caplog, monkeypatch):
    # The filter of this process has seen the other tests' lines.
    monkeypatch.setattr(LOGGER, "filters", [OncePerWhile()])
    with caplog.at_level(logging.DEBUG, logger="foldlog.log.client"):
        producer = connect(**{"message.timeout.ms": "1500"}).producer()
        producer.append("t", "k", b"v")
        assert producer.flush(60) == 0
    kinds = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert len(kinds) == len(set(kinds)), kinds
    assert "_TRANSPORT:" in kinds


def test_a_log_dropped_while_a_question_is_open_does_not_end_the_process():
    # The garbage collector runs on the thread of the client that it would free.
    code = """if True:
        import gc, threading
        from foldlog.log.kafka import KafkaLog
        gc.disable()
        done = threading.Event()
        log = KafkaLog("127.0.0.1:1", timeout_s=0.3)
        answer = log._ask()._ask("describe_cluster")
        answer.add_done_callback(lambda answer: (gc.collect(), done.set()))
        del log
        assert done.wait(60)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_room_is_used_without_the_client_library():
    code = "import sys, foldlog.log; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_settings_reach_the_client(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("message.timeout.ms=100\n", encoding="utf-8")
    env = {
        "HOME": str(tmp_path),
        "KAFKA_BOOTSTRAP_SERVERS": NOBODY,
        "FOLDLOG_TOPIC_PREFIX": "p.",
        "FOLDLOG_CLIENT_PROPERTIES": str(file),
    }
    log = open_log(Settings.load(env))
    told: list = []
    producer = log.producer()
    producer.append(SESSION_EVENTS, "k", b"v", on_delivery=told.append)
    assert producer.flush(60) == 0 and isinstance(told[0], AppendError)
    log.close()


def test_a_property_that_the_client_does_not_know_is_a_wrong_setting(connect):
    log = connect(**{"foo.bar": "baz"})
    for use in (log.identity, log.producer, lambda: log.reader("t", {0: 0})):
        with pytest.raises(SettingsError, match=r'"foo\.bar"'):
            use()
