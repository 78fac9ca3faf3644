"""`foldlog fork`, `foldlog regenerate`, and the gateway's routes for both."""

import pytest

from foldlog.client.log_client import LogClient
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.client.branching.branched import talk
from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.web.gateway.served import SECRET, served


@pytest.fixture
def shell(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with LogClient(shell.settings, shell.log) as client:
        talk(client, "s1", "one", "two")
    return shell


def test_fork_prints_its_origin_and_how_to_continue(shell):
    result = shell("fork s1 --as f1")
    assert result.code == 0, result.err
    assert result.out.startswith("session f1 is a fork of s1 after offset ")
    assert "foldlog chat f1" in result.out
    shown = shell("show f1 --view transcript --json")
    assert [line["kind"] for line in shown.json[0]["lines"]][-1] == "ended"
    assert "was open already" in shell("fork s1 --as f1").out


def test_fork_generates_a_name_and_accepts_an_offset(shell):
    (result,) = shell("fork s1 --at 4 --json").json
    assert result["session"].startswith("s-") and result["parent_session"] == "s1"
    assert (result["parent_offset"], result["verdict"]) == (4, "accepted")


def test_regenerate_sends_the_message_again(shell):
    (result,) = shell("regenerate s1 1 --as f1 --json").json
    assert result["message_id"] == "m-one"
    assert "the same message was sent to it" in shell("regenerate s1 --as f2").out


def test_rerun_sends_another_text(shell):
    (result,) = shell("rerun s1 three --as f1 --json").json
    assert (result["message_id"], result["session"]) == ("m-two", "f1")
    assert "your text was sent to it" in shell("rerun s1 three --at 6 --as f2").out
    assert shell("rerun s1 three --error").code == 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fork s1 --at 999", "beyond the end"),
        ("fork nobody", "no session nobody"),
        ("fork s1 --at -3", "begins at offset"),
        ("fork s1 --user eve", "belongs to another user"),
        ("regenerate s1 9", "has no turn 9"),
        ("rerun s1 x --result 1.1.0", "no result of call 1.1.0"),
        ("fork s1 --as not/an/id", "session_id must be"),
    ],
)
def test_an_impossible_fork_is_refused_with_the_reason(shell, command, message):
    refused = shell(command)
    assert refused.code == 1 and message in refused.err


@pytest.fixture
def gateway(tmp_path):
    log = memory_log(threaded=True)
    settings = settings_in(tmp_path)
    with served(log, settings, tmp_path / "gateway", secret=SECRET) as running:
        yield running


def test_the_gateway_forks_only_for_the_owner_and_shows_the_fork_at_once(gateway):
    talk(gateway.gateway.client, "s1", "one", "two")
    with gateway.http("ana") as ana:
        created = ana.post("/v1/sessions/s1/fork", json={})
        assert created.status_code == 201, created.text
        fork = created.json()["session_id"]
        assert created.json()["parent_session"] == "s1"
        shown = ana.get(f"/v1/sessions/{fork}/transcript").json()
        kinds = [line["kind"] for line in shown["lines"]] if "lines" in shown else shown
        assert "answer" in str(kinds)
        again = ana.post("/v1/sessions/s1/regenerate", json={"turn": 1, "name": "f2"})
        assert again.json()["message_id"] == "m-one"
        assert ana.get("/v1/sessions/f2").json()["turn"] == 1
        edited = ana.post("/v1/sessions/s1/rerun", json={"text": "say uno", "message_id": "m-one"})
        assert (edited.status_code, edited.json()["message_id"]) == (201, "m-one"), edited.text
        for more in ({"error": True}, {"reason": "what if"}):
            of_no_call = ana.post("/v1/sessions/s1/rerun", json={"text": "x", **more})
            assert (of_no_call.status_code, of_no_call.json()["code"]) == (400, "invalid")
        no_call = ana.post("/v1/sessions/s1/rerun", json={"text": "x", "call": "1.1.0"})
        assert (no_call.status_code, no_call.json()["code"]) == (409, "unknown_result")
        beyond = ana.post("/v1/sessions/s1/fork", json={"at": 10**9})
        assert (beyond.status_code, beyond.json()["code"]) == (409, "beyond_the_end")
        assert ana.post("/v1/sessions/nobody/fork", json={}).status_code == 404
    with gateway.http("bob") as bob:
        assert bob.post("/v1/sessions/s1/fork", json={}).status_code == 404
        assert bob.get(f"/v1/sessions/{fork}").status_code == 404
