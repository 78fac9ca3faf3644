"""Workers that must not start: each reports why it ends and what to do, and changes nothing."""

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


def _start(handle) -> subprocess.CompletedProcess:
    """Run a worker that must exit during its start, and capture its output."""
    command = [part for part in handle.command if part not in ("--log", str(handle.log))]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_S2_9_a_second_worker_on_a_state_directory_is_rejected(stage):
    handle = stage.handle()
    handle.start()
    play = Play(stage, handle, cast=("slow",))
    play.await_taken("")
    (person,) = play.people
    person.begin()
    play.until("the tool runs", lambda: person.watched.counted(ev.ToolStarted))
    second = _start(handle)
    assert second.returncode == 2, "a supervisor must not start it again"
    assert "StateDirTaken: another worker works in" in second.stderr
    assert "FOLDLOG_STATE_DIR" in second.stderr, "the message names the remedy"
    stage.ledger.release(person.session_id)
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    assert play.ends == [], "the first one still runs"
    assert witnesses.violations(stage, play.people) == []
    assert len(stage.taken_at) == 1, "the second one took nothing"


def test_S0_2_a_topic_with_another_number_of_partitions_is_rejected(stage):
    handle = stage.handle()
    handle.flags["partitions"] = stage.settings.partitions * 2
    ended = _start(handle)
    assert ended.returncode == 3
    assert "TopicMismatch" in ended.stderr
    assert "number of partitions is 4, wanted 8" in ended.stderr
    assert stage.pump() == [] and stage.taken_at == {}


def test_S0_2_missing_topics_are_named(stage):
    handle = stage.handle()
    handle.flags["topic_prefix"] = "not-created-"
    ended = _start(handle)
    assert ended.returncode == 3
    assert "TopicMissing" in ended.stderr and "not-created-" in ended.stderr
    assert "foldlog topics apply" in ended.stderr, "the message names the remedy"


def test_S0_2_a_truncated_log_needs_a_store_that_has_folded_the_deleted_records(stage):
    """The defect: the worker ended at its first poll and gave no reason, and so did each worker
    after it."""
    handle = stage.handle()
    handle.start()
    play = Play(stage, handle, cast=("tools",))
    play.await_taken("")
    play.begin()
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    before = stage.owner()
    handle.kill()
    ends = stage.log.end_offsets(SESSION_EVENTS)
    admin = AdminClient({"bootstrap.servers": stage.settings.bootstrap_servers})
    topic = stage.settings.topic(SESSION_EVENTS)
    cut = admin.delete_records([TopicPartition(topic, p, end) for p, end in ends.items()])
    for deleted in cut.values():
        deleted.result(PATIENCE_S)
    handle.start()
    play.await_taken(before)  # a store that has folded all of it continues
    handle.kill()
    for partition in ends:
        damage.deleted(damage.store_of(stage, "w1", partition))
    ended = _start(handle)
    assert ended.returncode == 2, "a supervisor must not start it again"
    assert "LogCut: partition" in ended.stderr and "FOLDLOG_TOPIC_PREFIX" in ended.stderr
