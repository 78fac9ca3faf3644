"""Workers that must not start: each says why and what to do, and changes nothing."""

import subprocess

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.fleet import PATIENCE_S
from foldlog.tests.crash.rounds import Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]


def _start(hand) -> subprocess.CompletedProcess:
    """A worker in the foreground, whose words are not kept in a file; it is expected to end."""
    command = [part for part in hand.command if part not in ("--log", str(hand.log))]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_S2_9_a_second_worker_on_a_state_directory_is_refused_and_the_first_goes_on(stage):
    hand = stage.hand()
    hand.start()
    play = Play(stage, hand, cast=("slow",))
    play.await_taken("")
    (person,) = play.people
    person.begin()
    play.until("the tool runs", lambda: person.watched.counted(ev.ToolStarted))
    second = _start(hand)
    assert second.returncode == 2, "a supervisor would start it in vain"
    assert "StateDirTaken: another worker works in" in second.stderr
    assert "FOLDLOG_STATE_DIR" in second.stderr, "it says what to do"
    stage.ledger.let_go(person.session_id)
    play.until("everybody has an answer and owes nothing", play.all_rest)
    assert play.ends == [], "the first one was not harmed"
    assert witnesses.violations(stage, play.people) == []
    assert len(stage.taken_at) == 1, "the second one took nothing"


def test_S0_2_a_topic_with_another_number_of_partitions_is_refused(stage):
    hand = stage.hand()
    hand.flags["partitions"] = stage.settings.partitions * 2
    ended = _start(hand)
    assert ended.returncode == 3
    assert "TopicMismatch" in ended.stderr
    assert "number of partitions is 4, wanted 8" in ended.stderr
    assert stage.pump() == [] and stage.taken_at == {}


def test_S0_2_missing_topics_are_named(stage):
    hand = stage.hand()
    hand.flags["topic_prefix"] = "nobody-made-these-"
    ended = _start(hand)
    assert ended.returncode == 3
    assert "TopicMissing" in ended.stderr and "nobody-made-these-" in ended.stderr
    assert "foldlog topics apply" in ended.stderr, "it says what to do"


def test_S0_2_a_log_without_its_first_records_is_worked_on_only_by_who_has_folded_them(stage):
    """It was not said at all: the worker ended at the first poll, and its successors as it did."""
    hand = stage.hand()
    hand.start()
    play = Play(stage, hand, cast=("tools",))
    play.await_taken("")
    play.begin()
    play.until("everybody has an answer and owes nothing", play.all_rest)
    before = stage.owner()
    hand.kill()
    ends = stage.log.end_offsets(SESSION_EVENTS)
    admin = AdminClient({"bootstrap.servers": stage.settings.bootstrap_servers})
    topic = stage.settings.topic(SESSION_EVENTS)
    cut = admin.delete_records([TopicPartition(topic, p, end) for p, end in ends.items()])
    for deleted in cut.values():
        deleted.result(PATIENCE_S)
    hand.start()
    play.await_taken(before)  # a store that has folded all of it goes on
    hand.kill()
    for partition in ends:
        damage.deleted(damage.store_of(stage, "w1", partition))
    ended = _start(hand)
    assert ended.returncode == 2, "no supervisor tries it again"
    assert "LogCut: partition" in ended.stderr and "FOLDLOG_TOPIC_PREFIX" in ended.stderr
