"""`foldlog search` with a real broker and a real worker."""

import fcntl
import json

import pytest

from foldlog.tests.cli.test_on_a_broker import WAIT_S, approve_until_answered, machine
from foldlog.tests.kit.programs import line_of

pytestmark = pytest.mark.broker
__all__ = ["machine"]


def found(machine, *args):
    return [json.loads(line) for line in machine("search", "--json", *args).splitlines()]


def test_S0_8_messages_and_answers_are_found_by_the_next_search(machine):
    worker = machine.start("worker")
    try:
        sent = json.loads(machine("send", "s1", "what is the walrus?", "--json"))
        assert [hit["kind"] for hit in found(machine, "walruses")] == ["said"]
        approve_until_answered(machine, sent["message_id"])
    finally:
        worker.terminate()
        worker.communicate(timeout=WAIT_S)
    transcript = json.loads(machine("show", "s1", "--view", "transcript", "--json"))
    answered = [row for row in transcript["lines"] if row["kind"] == "answer"]
    text = json.loads(answered[-1]["body"]["inline"])[0]["text"]
    hits = found(machine, "--limit", "50", "--", text)
    assert {hit["offset"] for hit in hits if hit["kind"] == "answered"} >= {answered[-1]["offset"]}
    machine("send", "s2", "a walrus in another session")
    assert {hit["session_id"] for hit in found(machine, "walrus")} >= {"s1", "s2"}
    assert "*walrus* in another session" in machine("search", "walrus", "--session", "s2")


def test_a_second_search_waits_and_ends_cleanly_at_ctrl_c(machine):
    machine("send", "s1", "a walrus")
    assert len(found(machine, "walrus")) == 1
    (index,) = (machine.home / "search").glob("*.sqlite")
    with open(f"{index}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = machine.start("search", "walrus")
        assert "waiting for another search" in line_of(waiting.stderr, "a line of its output")
        waiting.send_signal(2)
        out, err = waiting.communicate(timeout=WAIT_S)
    assert (waiting.returncode, out, err.strip()) == (130, "", "")
    assert len(found(machine, "walrus")) == 1


def test_an_unreachable_broker_is_exit_code_3(machine):
    machine.env["KAFKA_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    assert "no Kafka broker answers" in machine("search", "walrus", code=3)
