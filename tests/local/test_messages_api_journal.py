"""The request journal, gates, waiting for entries, restarts, and the server's process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import anthropic
import httpx2
import pytest

from foldlog.local.messages_api import (
    ATTEMPT_HEADER,
    Journal,
    Reply,
    Rule,
    ScriptedServer,
    read_journal,
    spawn,
    text,
)
from foldlog.tests.kit.programs import line_of
from foldlog.tests.kit.waiting import until
from foldlog.tests.local.scripted_client import ask, assistant, client, post, request

LONG = Reply([text("one two three four five six seven eight")], chunk="word")


def in_thread(ask_it, *arguments, **fields):
    """Run a call in a thread. Returns a function that waits for the call's result or exception."""
    outcome = {}

    def run():
        try:
            outcome["value"] = ask_it(*arguments, **fields)
        except Exception as error:
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join(20)
        assert not thread.is_alive()
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    return finish


# facts -------------------------------------------------------------------------------------------


def test_a_call_is_journalled_with_its_identity(tmp_path):
    path = tmp_path / "journal"
    with ScriptedServer(LONG, journal=path) as server:
        ask(server, "hi session:s.1.", extra_headers={ATTEMPT_HEADER: "s.1 2.3.1"})
        body = server.body(1)
    started, accepted, answered = read_journal(path)
    assert started["kind"] == "started"
    assert (accepted["kind"], accepted["n"], accepted["ordinal"]) == ("accepted", 1, 1)
    assert accepted["canary"] == "s.1"
    assert accepted["canaries"] == ["s.1"]
    assert accepted["attempt"] == "s.1 2.3.1"
    assert accepted["bytes"] == len(body)
    assert (answered["kind"], answered["status"]) == ("answered", 200)
    assert answered["stop_reason"] == "end_turn"
    assert abs(answered["at_ms"] - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    ("fields", "headers", "canary"),
    [
        ({"system": "you are session:a"}, {ATTEMPT_HEADER: "b 1.1.1"}, "a"),
        ({"system": [{"type": "text", "text": "session:a:b@c-d_e."}]}, {}, "a:b@c-d_e"),
        ({"metadata": {"user_id": "session:u1"}}, {}, "u1"),
        ({"metadata": {"user_id": "u2"}}, {ATTEMPT_HEADER: "b 1.1.1"}, "u2"),
        ({}, {ATTEMPT_HEADER: "b 1.1.1"}, "b"),
        ({}, {}, "-"),
    ],
)
def test_where_a_request_may_name_its_session(fields, headers, canary):
    with ScriptedServer(LONG) as server:
        ask(server, "hi", extra_headers=headers, **fields)
        assert server.journal.entries("accepted")[0]["canary"] == canary


def test_a_leak_between_sessions_is_journalled():
    with ScriptedServer(LONG) as server:
        earlier = assistant({"type": "text", "text": "session:not-of-a-user"})
        ask(server, "session:a", earlier, "and session:b")
        assert server.journal.entries("accepted")[0]["canaries"] == ["a", "b"]


def test_a_refusal_is_journalled_with_its_session():
    with ScriptedServer(LONG) as server:
        post(server, body={**request("session:a"), "max_tokens": -1})
        entry = server.journal.entries("refused")[0]
    assert (entry["canary"], entry["status"], entry["type"]) == ("a", 400, "invalid_request_error")


def test_a_client_that_leaves_is_journalled():
    with ScriptedServer(Reply(LONG.blocks, chunk="word", gate="never", gate_after=4)) as server:
        with client(server).messages.stream(**request("session:a")) as stream:
            next(iter(stream.text_stream))
        gone = server.wait_count("client_gone")[0]
    assert (gone["canary"], gone["events"]) == ("a", 4)


def test_a_server_that_stops_drops_its_answers(tmp_path):
    reply = Reply(LONG.blocks, gate="never", gate_after=3)
    with ScriptedServer(reply, journal=tmp_path / "journal") as server:
        finish = in_thread(ask, server)
        server.wait_count("waiting")
    with pytest.raises((httpx2.HTTPError, anthropic.APIConnectionError)):
        finish()
    assert read_journal(tmp_path / "journal")[-1]["kind"] == "dropped"


def test_a_fact_is_in_the_file_before_the_first_byte_of_its_answer(tmp_path):
    path = tmp_path / "journal"
    with ScriptedServer(LONG, journal=path) as server:
        with client(server).messages.stream(**request()) as stream:
            next(iter(stream))
            assert [e["kind"] for e in read_journal(path)][:2] == ["started", "accepted"]


def test_many_requests_at_once_have_their_own_numbers():
    with ScriptedServer("echo") as server:
        finishers = [in_thread(ask, server, f"hi session:s{i % 3}") for i in range(9)]
        for finish in finishers:
            finish()
        accepted = server.journal.entries("accepted")
        assert sorted(entry["n"] for entry in accepted) == list(range(1, 10))
        ordinals = [e["ordinal"] for e in accepted if e["canary"] == "s0"]
        assert sorted(ordinals) == [1, 2, 3]


# gates -------------------------------------------------------------------------------------------


def test_a_gate_holds_a_stream_until_it_is_opened():
    reply = Reply(LONG.blocks, chunk="word", gate="g1", gate_after=5)
    with ScriptedServer(reply) as server:
        finish = in_thread(ask, server)
        waiting = server.wait_count("waiting")[0]
        assert (waiting["gate"], waiting["events"]) == ("g1", 5)
        assert server.journal.count("answered") == 0
        server.open("g1")
        assert finish().content[0].text == "one two three four five six seven eight"


def test_a_gate_may_be_before_the_first_byte_and_stays_open():
    with ScriptedServer(Reply(LONG.blocks, gate="g1")) as server:
        server.open("g1")
        ask(server)
        ask(server)
        assert server.journal.count("waiting") == 0


def test_an_answer_waits_at_a_gate_past_its_end():
    with ScriptedServer(Reply(LONG.blocks, gate="g1", gate_after=10_000)) as server:
        finish = in_thread(ask, server)
        server.wait_count("waiting")
        server.open("g1")
        assert finish().stop_reason == "end_turn"


def test_a_fault_may_follow_a_gate():
    reply = Reply(LONG.blocks, gate="g1", gate_after=4, fault={"name": "reset", "k": 6})
    with ScriptedServer(reply) as server:
        finish = in_thread(ask, server)
        server.wait_count("waiting")
        server.open("g1")
        with pytest.raises(httpx2.ReadError):
            finish()
        assert server.wait_count("faulted")[0]["events"] == 6


def test_a_gate_opens_over_http():
    with ScriptedServer(Reply(LONG.blocks, gate="g/1 é")) as server:
        finish = in_thread(ask, server)
        server.wait_count("waiting")
        assert post(server, "/_gate/g%2F1%20%C3%A9")[0] == 200
        finish()


def test_a_timeout_shows_the_last_facts():
    with ScriptedServer(LONG) as server:
        ask(server)
        with pytest.raises(TimeoutError, match='"kind": "answered"'):
            server.wait_for(lambda journal: journal.count("faulted"), timeout_s=0.05)


# the file ----------------------------------------------------------------------------------------


def test_a_restarted_server_continues_the_numbering(tmp_path):
    path = tmp_path / "journal"
    rules = [Rule(reply=Reply([text("second")]), ordinal=2), Reply([text("other")])]
    with ScriptedServer(rules, journal=path) as server:
        first = ask(server, "session:a")
    with ScriptedServer(rules, journal=path, port=server.port) as server:
        second = ask(server, "session:a")
    assert first.content[0].text == "other"
    assert second.content[0].text == "second"
    assert first.id != second.id
    assert [e["n"] for e in read_journal(path) if e["kind"] == "accepted"] == [1, 2]


def test_an_incomplete_line_is_cut_off(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b'{"at_ms": 1, "n": 7, "kind": "accepted", "canary": "a"}\n{"at_ms": 2, "n"')
    journal = Journal(path)
    assert journal.next_n() == 8
    journal.note("accepted", 8, canary="b")
    journal.close()
    assert [entry["n"] for entry in read_journal(path)] == [7, 8]


def test_a_missing_journal_is_empty(tmp_path):
    assert read_journal(tmp_path / "none") == []


# the process -------------------------------------------------------------------------------------


def test_the_server_runs_in_its_own_process(tmp_path):
    path = tmp_path / "journal"
    script = tmp_path / "script.json"
    reply = {"blocks": ["a reply from a file"], "gate": "g", "gate_after": 3}
    script.write_text(json.dumps([{"contains": "file", "reply": reply}, {"reply": "echo"}]))
    with spawn(script, journal=path, pace_s=0) as server:
        assert ask(server, "hello").content[0].text == "You said: hello"
        finish = in_thread(ask, server, "the file, please")
        until(
            "the reply waits at its gate",
            lambda: any(entry["kind"] == "waiting" for entry in read_journal(path)),
        )
        assert post(server, "/_gate/g")[0] == 200
        assert finish().content[0].text == "a reply from a file"
        status, _, body = post(server, "/_rules", [{"reply": {"blocks": ["new"]}}])
        assert (status, body) == (200, {"added": 1})
        assert ask(server, "hello").content[0].text == "new"
        assert post(server, "/_rules", [{"reply": "unknown"}])[0] == 400
        pid = server.pid
    assert server.process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


PARENT = """
import sys, time
from foldlog.local.messages_api import spawn
server = spawn("echo", pace_s=0)
print(server.pid, flush=True)
time.sleep(60)
"""


def test_the_process_ends_with_its_parent():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            child = int(line_of(parent.stdout, "the server's process id"))
            os.kill(child, 0)
        finally:
            parent.kill()
    for _ in range(4000):
        if not _runs(child):
            return
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the server outlived its parent")


def _runs(pid):
    # The adopting process reaps an orphan; until then it is a zombie, which serves no request.
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run_module(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "foldlog.local.messages_api", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_a_taken_port_and_an_unknown_script_are_errors_with_a_reason():
    with ScriptedServer("echo") as server:
        taken = run_module("--port", str(server.port))
    assert taken.returncode == 3
    assert f"cannot listen on 127.0.0.1:{server.port}" in taken.stderr
    with pytest.raises(RuntimeError, match="did not start"):
        spawn("unknown")


def test_a_taken_port_is_an_oserror_of_a_threaded_server():
    with ScriptedServer("echo") as server, pytest.raises(OSError):
        ScriptedServer("echo", port=server.port).start()


def test_the_fault_modes_can_be_listed():
    listed = run_module("--list-faults")
    assert listed.returncode == 0
    assert "eof_before_message_delta" in listed.stdout


def test_a_reader_that_closes_the_list_of_faults_early_gets_no_traceback():
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "foldlog.local.messages_api", "--list-faults"]
    listed = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=30)
    os.close(writes)
    assert listed.stderr == b""
