"""A message to a session that no agent serves is refused with the reason, over every protocol."""

import json

import pytest

from foldlog.consumers.adapters.items import ItemLog
from foldlog.consumers.gateway.names import own_id
from foldlog.tests.cli.harness import Shell
from foldlog.tests.consumers.played import Played


@pytest.fixture(scope="module")
def unanswered(log, settings, ana):
    """The ids of a stream, of a deleted stream, and of a session of another framework."""
    text = {"content-type": "text/plain"}
    for name in ("notes", "gone"):
        ana.put(f"/v1/stream/{name}", headers=text, content=b"one").raise_for_status()
    ana.delete("/v1/stream/gone").raise_for_status()
    items = ItemLog(settings, log, agent="their-agent")
    items.add("theirs", [{"role": "user", "content": "hi"}])
    items.close()
    return (own_id("ana", "notes"), own_id("ana", "gone"), "theirs")


MESSAGE = {"id": "m1", "role": "user"}
PROTOCOLS = {
    "plain": lambda s: (f"/v1/sessions/{s}/messages", {"text": "hi"}),
    "ai_sdk": lambda s: ("/api/chat", {
        "id": s, "messages": [{**MESSAGE, "parts": [{"type": "text", "text": "hi"}]}]}),
    "ag_ui": lambda s: ("/agui", {"threadId": s, "messages": [{**MESSAGE, "content": "hi"}]}),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_over_http_it_is_409_and_nothing_is_written(log, ana, unanswered, protocol):
    for name in unanswered:
        before = Played(log, name).fold.end()
        path, body = PROTOCOLS[protocol](name)
        with ana.stream("POST", path, json=body) as response:
            assert response.status_code == 409, "it waits for an answer"
            error = json.loads(response.read())
        assert error["code"] == "nobody_answers"
        assert name in error["detail"] and "Nothing was written" in error["detail"]
        assert Played(log, name).fold.end() == before
        assert not Played(log, name).views.turn.open


def test_the_error_names_the_route_that_writes_a_stream(ana, unanswered):
    detail = ana.post("/v1/sessions/notes/messages", json={"text": "hi"}).json()["detail"]
    assert "POST /v1/stream/notes" in detail
    more = ana.post("/v1/stream/notes", headers={"content-type": "text/plain"}, content=b" two")
    assert more.status_code == 204 and ana.get("/v1/stream/notes").content == b"one two"


def test_no_session_is_opened_for_the_agent_of_streams(log, ana):
    body = {"text": "hi", "agent": "durable-stream"}
    assert ana.post("/v1/sessions/new/messages", json=body).status_code == 409
    assert ana.get("/v1/sessions/new").status_code == 404


def test_the_command_line_refuses_it_too(log, settings, unanswered, capsys):
    shell = Shell(log, settings.home, capsys)
    for name in unanswered:
        before = Played(log, name).fold.end()
        send = shell(f"send {name} hi")
        assert (send.code, send.out) == (1, "") and "Nothing was written" in send.err
        chat = shell(f"chat {name}", stdin="hi\n")
        assert chat.code == 1 and "Nothing was written" in chat.err
        assert Played(log, name).fold.end() == before
