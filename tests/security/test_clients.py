"""Every client of the log can log in by every mechanism, or reports why it cannot."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest

from foldlog.fleet.credentials import faust_credentials
from foldlog.log.door import Delivered
from foldlog.log.errors import (
    AccessDenied,
    AppendError,
    FoldlogError,
    LogFatal,
    LogUnreachable,
    SettingsError,
)
from foldlog.log.kafka import KafkaLog
from foldlog.schemas.topics import SESSION_EVENTS, SESSION_FACTS, topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import settings_in
from foldlog.tests.security.secured import Secured, password_of

pytestmark = pytest.mark.broker
WAIT_S = 20


def opened(properties: Mapping[str, str], prefix: str) -> KafkaLog:
    """A log that is opened with these client properties."""
    passed = dict(properties)
    return KafkaLog(passed.pop("bootstrap.servers"), topic_prefix=prefix, client_properties=passed)


@pytest.fixture(scope="module")
def prefix(secured: Secured) -> str:
    """The prefix of topics that the operator created, with the rights of every role."""
    prefix = unique_name("secured") + "-"
    secured.grant(prefix)
    with closing(opened(secured.scram("operator"), prefix)) as log:
        assert len(log.apply_topics(topics(2)).created) == len(topics(2))
        assert not log.check_topics(topics(2)).differs
    return prefix


LOGINS: Mapping[str, Callable[[Secured, str, str], dict[str, str]]] = {
    "SASL_SSL SCRAM-SHA-512": lambda s, user, _: s.scram(user),
    "SASL_SSL SCRAM-SHA-256": lambda s, user, _: s.scram(user, "SCRAM-SHA-256"),
    "SASL_SSL PLAIN": lambda s, user, _: s.scram(user, "PLAIN"),
    "SASL_PLAINTEXT PLAIN": lambda s, user, _: s.sasl(user, "PLAIN"),
    "SASL_PLAINTEXT SCRAM-SHA-512": lambda s, user, _: s.sasl(user, "SCRAM-SHA-512"),
    "mutual TLS": lambda s, user, _: s.certificate(user),
    "SASL_SSL OAUTHBEARER": lambda s, user, endpoint: s.oauth(endpoint, user),
}


def write(log: KafkaLog, value: bytes, *, brief: bool) -> Delivered | AppendError:
    """Write one record. Returns its delivery or its error."""
    answers: list[Delivered | AppendError] = []
    with closing(log.producer(brief=brief)) as producer:
        producer.append(SESSION_EVENTS, "s1", value, partition=0, on_delivery=answers.append)
        assert producer.flush(WAIT_S) == 0
    return answers[0]


@pytest.mark.parametrize("login", LOGINS)
def test_every_client_logs_in(
    secured: Secured, prefix: str, token_endpoint: str, login: str
) -> None:
    with closing(opened(LOGINS[login](secured, "worker", token_endpoint), prefix)) as log:
        assert log.partitions(SESSION_EVENTS) == 2  # the admin client
        for brief in (True, False):  # both producers
            at = write(log, login.encode(), brief=brief)
            assert isinstance(at, Delivered)
        with closing(log.reader(SESSION_EVENTS, {0: at.offset})) as reader:
            assert [record.value for record in reader.poll(WAIT_S)] == [login.encode()]
        given: list[int] = []

        def assigned(partitions: list[int]) -> dict[int, int]:
            given.extend(partitions)
            return {p: at.offset if p == at.partition else 0 for p in partitions}

        joining = (unique_name("foldlog-"), "member", assigned, lambda _: None)
        with closing(log.group_reader(SESSION_EVENTS, *joining)) as member:
            assert [record.value for record in member.poll(WAIT_S)] == [login.encode()]
        assert 0 in given


def refusals(secured: Secured) -> Iterator[tuple[str, dict[str, str], str]]:
    """The (name, properties, text) of each case; the error message must contain the text."""
    good, mtls = secured.scram("worker"), secured.certificate("worker")
    yield "wrong password", {**good, "sasl.password": "pw-wrong-Zk9"}, "sasl.password"
    yield "wrong user", {**good, "sasl.username": "mallory"}, "sasl.username"
    yield "no CA", {k: v for k, v in good.items() if k != "ssl.ca.location"}, "ssl.ca.location"
    lacks = ("ssl.certificate.location", "ssl.key.location")
    yield "no certificate", {k: v for k, v in mtls.items() if k not in lacks}, lacks[0]


def test_a_failed_login_names_the_property_to_correct(secured: Secured, prefix: str) -> None:
    """The defect: a wrong password was reported as "no Kafka broker answers"."""

    def error_of(properties: dict[str, str]) -> FoldlogError:
        with closing(opened(properties, prefix)) as log, pytest.raises(FoldlogError) as raised:
            log.partitions(SESSION_EVENTS)
        return raised.value

    cases = list(refusals(secured))
    with ThreadPoolExecutor(len(cases)) as pool:  # in each case a login is tried for 2 s
        found = list(pool.map(error_of, [properties for _, properties, _ in cases]))
    for (name, properties, named), error in zip(cases, found, strict=True):
        assert isinstance(error, AccessDenied), (name, error)
        assert named in str(error) and "no Kafka broker answers" not in str(error)
        assert "Zk9" not in str(error), name
        assert properties.get("sasl.password", password_of("worker")) not in str(error)


def test_a_client_without_tls_learns_that_the_cluster_may_be_secured(
    secured: Secured, prefix: str
) -> None:
    with closing(opened({"bootstrap.servers": secured.sasl_ssl}, prefix)) as log:
        with pytest.raises(LogUnreachable, match=r"security\.protocol"):
            log.partitions(SESSION_EVENTS)


def test_a_missing_right_is_reported_with_its_topic(secured: Secured, prefix: str) -> None:
    with closing(opened(secured.sasl("nobody", "PLAIN"), prefix)) as log:
        with pytest.raises(AccessDenied, match=f"right to topic {prefix}{SESSION_EVENTS}"):
            log.partitions(SESSION_EVENTS)


def test_a_reader_cannot_write(secured: Secured, prefix: str) -> None:
    fatal: SimpleQueue[LogFatal] = SimpleQueue()
    with closing(opened(secured.sasl("reader", "PLAIN"), prefix)) as log:
        assert log.end_offsets(SESSION_EVENTS)
        refused = write(log, b"x", brief=True)
        assert isinstance(refused, AppendError) and refused.denied is not None
        assert f"right to topic {prefix}{SESSION_EVENTS}" in str(refused.denied)
        # An idempotent producer is rejected as a whole: it may write to no topic.
        with closing(log.producer(fatal.put)) as producer:
            with pytest.raises(LogFatal):
                for _ in range(50):
                    producer.append(SESSION_EVENTS, "s1", b"x", partition=0)
                    producer.flush(WAIT_S)
        message = str(fatal.get(timeout=WAIT_S))
        assert "may write to no topic" in message and "docs/security.md" in message


def test_a_producer_can_write_but_not_read(secured: Secured, prefix: str) -> None:
    with closing(opened(secured.sasl("producer", "PLAIN"), prefix)) as log:
        assert isinstance(write(log, b"x", brief=False), Delivered)
        with closing(log.reader(SESSION_EVENTS, {0: 0})) as reader:
            with pytest.raises(AccessDenied, match="lacks a right to"):
                reader.poll(WAIT_S)


def test_only_a_retainer_deletes_records(secured: Secured, prefix: str) -> None:
    with closing(opened(secured.sasl("worker", "PLAIN"), prefix)) as log:
        at = write(log, b"x", brief=True)
        assert isinstance(at, Delivered)
        with pytest.raises(AccessDenied, match=f"right to topic {prefix}{SESSION_EVENTS}"):
            log.delete_before(SESSION_EVENTS, {at.partition: 1})
    with closing(opened(secured.sasl("retainer", "PLAIN"), prefix)) as log:
        first = log.first_offsets(SESSION_EVENTS)[at.partition]
        log.delete_before(SESSION_EVENTS, {at.partition: first})
        assert log.first_offsets(SESSION_EVENTS)[at.partition] == first == 0


def test_a_group_of_another_name_is_rejected_by_name(secured: Secured, prefix: str) -> None:
    with closing(opened(secured.sasl("worker", "PLAIN"), prefix)) as log:
        joining = ("others", unique_name("member"), lambda p: dict.fromkeys(p, 0), lambda _: None)
        with closing(log.group_reader(SESSION_EVENTS, *joining)) as member:
            with pytest.raises(AccessDenied, match=f"right to group {prefix}others"):
                member.poll(WAIT_S)


def test_an_operator_cannot_read_messages(secured: Secured, prefix: str) -> None:
    with closing(opened(secured.sasl("operator", "PLAIN"), prefix)) as log:
        with closing(log.reader(SESSION_EVENTS, {0: 0})) as reader:
            with pytest.raises(AccessDenied):
                reader.poll(WAIT_S)


@pytest.mark.parametrize("login", LOGINS)
def test_the_client_of_faust_logs_in(
    secured: Secured, prefix: str, token_endpoint: str, tmp_path: Path, login: str
) -> None:
    """Faust's client gets its credentials from the same properties as the other clients."""
    from aiokafka import AIOKafkaConsumer
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    properties = LOGINS[login](secured, "fleet", token_endpoint)
    servers = properties.pop("bootstrap.servers")
    settings = settings_in(tmp_path, bootstrap_servers=servers, client_properties=properties)

    async def topic_names() -> set[str]:
        auth = credentials_to_aiokafka_auth(faust_credentials(settings), None)
        client = AIOKafkaConsumer(bootstrap_servers=servers, **auth)
        await client.start()
        try:
            return await client.topics()
        finally:
            await client.stop()

    assert prefix + SESSION_FACTS in asyncio.run(topic_names())


def test_an_unreadable_certificate_is_a_settings_error(tmp_path: Path) -> None:
    properties = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "none.pem")}
    settings = settings_in(tmp_path, client_properties=properties)
    with pytest.raises(SettingsError, match=r"ssl\.ca\.location"):
        faust_credentials(settings)
