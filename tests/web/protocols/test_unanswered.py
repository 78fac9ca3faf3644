"""A message to a session that no agent serves is refused with the reason, over every protocol."""

import json

import pytest

from foldlog.adapters.items import ItemLog
from foldlog.tests.cli.harness import Shell
from foldlog.tests.kit.played import Played


@pytest.fixture(scope="module")
def unanswered(log, settings):
    """The id of a session of another framework."""
    items = ItemLog(settings, log, agent="their-agent")
    items.add("theirs", [{"role": "user", "content": "hi"}])
    items.close()
    return "theirs"


MESSAGE = {"id": "m1", "role": "user"}
PROTOCOLS = {
    "plain": lambda s: (f"/v1/sessions/{s}/messages", {"text": "hi"}),
    "ai_sdk": lambda s: ("/api/chat", {
        "id": s, "messages": [{**MESSAGE, "parts": [{"type": "text", "text": "hi"}]}]}),
    "ag_ui": lambda s: ("/agui", {"threadId": s, "messages": [{**MESSAGE, "content": "hi"}]}),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_over_http_it_is_409_and_nothing_is_written(log, ana, unanswered, protocol):
    before = Played(log, unanswered).fold.end()
    path, body = PROTOCOLS[protocol](unanswered)
    with ana.stream("POST", path, json=body) as response:
        assert response.status_code == 409, "it waits for an answer"
        error = json.loads(response.read())
    assert error["code"] == "nobody_answers"
    assert unanswered in error["detail"] and "Nothing was written" in error["detail"]
    assert Played(log, unanswered).fold.end() == before
    assert not Played(log, unanswered).views.turn.open


def test_the_command_line_refuses_it_too(log, settings, unanswered, capsys):
    shell = Shell(log, settings.home, capsys)
    before = Played(log, unanswered).fold.end()
    send = shell(f"send {unanswered} hi")
    assert (send.code, send.out) == (1, "") and "Nothing was written" in send.err
    chat = shell(f"chat {unanswered}", stdin="hi\n")
    assert chat.code == 1 and "Nothing was written" in chat.err
    assert Played(log, unanswered).fold.end() == before
