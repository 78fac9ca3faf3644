"""A fleet runs only on the log that its tables were built from."""

import shutil

import pytest
from confluent_kafka.admin import AdminClient

from foldlog.fleet.same_log import ANOTHER_LOG, BEGUN, CHANGELOGS, AnotherLog, demand_same_log
from foldlog.log import MemoryLog
from foldlog.log.made import Facts, apply_topics, facts_of, notes_of
from foldlog.schemas.topics import SESSION_EVENTS, SESSION_FACTS, topics
from foldlog.tests.fleet.facts import History, fold
from foldlog.tests.fleet.members import PARTITIONS, fleet
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import PATIENCE_S, until


@pytest.fixture
def log():
    log = MemoryLog(cluster_id="with/slash")
    apply_topics(log, 2)
    return log


@pytest.fixture
def settings(tmp_path):
    return settings_in(tmp_path, topic_prefix="shop-", bootstrap_servers="kafka:9092")


def begin_again(log, *topics: str) -> None:
    for topic in topics:
        log.delete_topic(topic)
    apply_topics(log, 2)


def write(log, topic: str) -> None:
    log.producer().append(topic, b"u/s", b"row", partition=1)


def test_the_log_is_noted_once(log, settings):
    for _ in range(3):
        assert demand_same_log(log, settings) == log.topic_id(SESSION_EVENTS)
    assert [found.name for found in notes_of(log)].count(BEGUN) == 1
    assert facts_of(log) == Facts(2)


def test_another_log_is_refused_with_what_to_do(log, settings):
    demand_same_log(log, settings)
    write(log, CHANGELOGS[0])
    begin_again(log, SESSION_EVENTS)
    for _ in range(2):  # a refusal notes nothing
        with pytest.raises(AnotherLog) as refused:
            demand_same_log(log, settings)
    said = str(refused.value)
    assert "shop-session-events was deleted and created again" in said
    assert "Nothing was changed" in said and "\n" not in said
    for name in (SESSION_FACTS, *CHANGELOGS):
        assert f"shop-{name}" in said
    assert "--bootstrap-server kafka:9092 --delete --topic 'shop-session-facts|shop-fleet" in said


@pytest.mark.parametrize("kept", [SESSION_FACTS, *CHANGELOGS])
def test_tables_begin_again_only_without_what_is_of_the_earlier_log(log, settings, kept):
    demand_same_log(log, settings)
    for topic in (SESSION_FACTS, *CHANGELOGS):
        write(log, topic)
    removed = {SESSION_FACTS, *CHANGELOGS} - {kept}
    begin_again(log, SESSION_EVENTS, *removed)
    with pytest.raises(AnotherLog):
        demand_same_log(log, settings)
    begin_again(log, kept)
    write(log, SESSION_FACTS)  # workers are faster
    assert demand_same_log(log, settings) == log.topic_id(SESSION_EVENTS)
    write(log, CHANGELOGS[0])
    demand_same_log(log, settings)


def test_tables_without_a_note_are_of_this_log(log, settings):
    """An earlier version wrote none."""
    write(log, CHANGELOGS[0])
    demand_same_log(log, settings)
    begin_again(log, SESSION_FACTS)  # to fold all facts again is another matter
    demand_same_log(log, settings)
    begin_again(log, SESSION_EVENTS)
    with pytest.raises(AnotherLog):
        demand_same_log(log, settings)


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_a_member_ends_when_the_log_is_created_again(broker, tmp_path):
    with fleet(broker.bootstrap_servers, tmp_path, forked=True) as here:
        member = here.member("a")

        def begin(*names: str) -> None:
            topics_of = [here.settings.topic(name) for name in names]
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            for deleted in admin.delete_topics(topics_of).values():
                deleted.result(PATIENCE_S)
            apply = here.log.apply_topics
            until("the topics exist again", lambda: not apply(topics(PARTITIONS)).created)

        here.write(History(3).facts(20))
        member.start()
        here.await_folded()
        begin(SESSION_EVENTS)
        assert ended(member.process) == ANOTHER_LOG
        member.start()
        assert ended(member.process) == ANOTHER_LOG
        assert member.said().count("created again") == 2 and "Traceback" not in member.said()
        begin(SESSION_FACTS, *CHANGELOGS)
        shutil.rmtree(member.directory)
        here.facts.clear()
        here.write(History(4).facts(20))
        member.start()
        here.await_folded()
        until("rows", lambda: member.status()["pending_rows"] == 0)
        assert here.restored() == fold(here.facts, PARTITIONS)
