"""`foldlog retain` on a real broker: deleted records come back from the archive, to commands and to
workers."""

import json
import shutil

import pytest

from foldlog.log import Settings, open_log
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.cli.test_on_a_broker import WAIT_S, approve_until_answered, machine

pytestmark = pytest.mark.broker
__all__ = ["machine"]
EVERYTHING = "2999-01-01"


def talk(machine, text):
    """Send a message to s1, and wait for its answer."""
    sent = json.loads(machine("send", "s1", text, "--json"))
    approve_until_answered(machine, sent["message_id"])


def serve_one_answer(machine, text):
    worker = machine.start("worker")
    try:
        talk(machine, text)
    finally:
        worker.terminate()
        _, err = worker.communicate(timeout=WAIT_S)
    assert "Traceback" not in err


def shown(machine):
    commands = ("show s1 --json", "tail s1 --json", "replay --json", "request s1 1.1", "sessions")
    return [machine(*command.split()) for command in commands]


@pytest.mark.timeout(300)  # three workers and their answers, each a process
def test_an_archived_session_reads_the_same_and_continues(machine):
    serve_one_answer(machine, "what is this?")
    before = shown(machine)
    rows = [json.loads(line) for line in machine(
        "retain", "--older-than", EVERYTHING, "--json").splitlines()]
    assert sum(row["sessions"] for row in rows) == 1
    assert all(row["trim_to"] == row["end_offset"] for row in rows)
    log = open_log(Settings.load(machine.env))
    try:
        assert log.live.first_offsets(SESSION_EVENTS) == log.end_offsets(SESSION_EVENTS)
        assert not any(log.first_offsets(SESSION_EVENTS).values())
    finally:
        log.close()
    assert shown(machine) == before
    assert "matches the log" in machine("replay", "--verify")
    assert "nothing to delete" in machine("retain", "--older-than", EVERYTHING)

    # A worker on an empty disk folds the archive, and the session continues.
    shutil.rmtree(machine.home / "worker")
    machine.env["FOLDLOG_SNAPSHOT_RECORDS"] = "0"
    serve_one_answer(machine, "and what is that?")
    after = shown(machine)
    assert after[1].startswith(before[1]), "the events before are unchanged"
    assert json.loads(after[0])["turn"]["number"] == 2
    assert "matches the log" in machine("replay", "--verify")

    # A worker with a store whose cursor is the end of the deleted records.
    machine("retain", "--older-than", EVERYTHING)
    serve_one_answer(machine, "and now?")
    assert "matches the log" in machine("replay", "--verify")

    # A cut that the archive does not explain.
    log = open_log(Settings.load(machine.env))
    try:
        log.delete_before(SESSION_EVENTS, log.end_offsets(SESSION_EVENTS))
    finally:
        log.close()
    assert "no archive that this process can read" in machine(
        "retain", "--older-than", EVERYTHING, code=1)
