"""A message to a session that no agent serves is refused with a reason, whatever way it comes."""

import json

import pytest

from foldlog.consumers.adapters.items import ItemLog
from foldlog.consumers.gateway.names import own_id
from foldlog.tests.cli.harness import Shell
from foldlog.tests.consumers.played import Played


@pytest.fixture(scope="module")
def unanswered(log, settings, ana):
    """A stream, one that was deleted, and what another framework keeps: their names."""
    text = {"content-type": "text/plain"}
    for name in ("notes", "gone"):
        ana.put(f"/v1/stream/{name}", headers=text, content=b"one").raise_for_status()
    ana.delete("/v1/stream/gone").raise_for_status()
    items = ItemLog(settings, log, agent="their-agent")
    items.add("theirs", [{"role": "user", "content": "hi"}])
    items.close()
    return (own_id("ana", "notes"), own_id("ana", "gone"), "theirs")


SAID = {"id": "m1", "role": "user"}
WAYS = {
    "plain": lambda s: (f"/v1/sessions/{s}/messages", {"text": "hi"}),
    "ai_sdk": lambda s: ("/api/chat", {
        "id": s, "messages": [{**SAID, "parts": [{"type": "text", "text": "hi"}]}]}),
    "ag_ui": lambda s: ("/agui", {"threadId": s, "messages": [{**SAID, "content": "hi"}]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_over_http_it_is_409_and_nothing_is_written(log, ana, unanswered, way):
    for name in unanswered:
        before = Played(log, name).fold.end()
        path, body = WAYS[way](name)
        with ana.stream("POST", path, json=body) as said:
            assert said.status_code == 409, "or it waits for an answer"
            answer = json.loads(said.read())
        assert answer["code"] == "nobody_answers"
        assert name in answer["detail"] and "Nothing was written" in answer["detail"]
        assert Played(log, name).fold.end() == before
        assert not Played(log, name).views.turn.open


def test_the_answer_says_how_a_stream_is_written(ana, unanswered):
    detail = ana.post("/v1/sessions/notes/messages", json={"text": "hi"}).json()["detail"]
    assert "POST /v1/stream/notes" in detail
    more = ana.post("/v1/stream/notes", headers={"content-type": "text/plain"}, content=b" two")
    assert more.status_code == 204 and ana.get("/v1/stream/notes").content == b"one two"


def test_a_session_is_not_opened_for_an_agent_that_answers_nobody(log, ana):
    body = {"text": "hi", "agent": "durable-stream"}
    assert ana.post("/v1/sessions/new/messages", json=body).status_code == 409
    assert ana.get("/v1/sessions/new").status_code == 404


def test_the_command_line_says_the_same(log, settings, unanswered, capsys):
    shell = Shell(log, settings.home, capsys)
    for name in unanswered:
        before = Played(log, name).fold.end()
        said = shell(f"send {name} hi")
        assert (said.code, said.out) == (1, "") and "Nothing was written" in said.err
        chat = shell(f"chat {name}", stdin="hi\n")
        assert chat.code == 1 and "Nothing was written" in chat.err
        assert Played(log, name).fold.end() == before
