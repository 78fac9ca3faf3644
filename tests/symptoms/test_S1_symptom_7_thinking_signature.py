"""Symptom 7: "the API reports that the thinking signature does not match".

The cause was a store that encoded the block again, with another key order or other numbers. foldlog
stores and sends the received bytes, also after the store's codec, a restart and another turn.
"""

import pytest

from foldlog.local.messages_api import (
    Reply,
    ScriptedServer,
    redacted_thinking,
    text,
    thinking,
    tool_use,
)
from foldlog.processors.request.blocks import raw_blocks
from foldlog.schemas import events as ev
from foldlog.tests.symptoms.by_model import call_model, opened, views_after

WORDS = 'hm é 日本 😀 \\ " \u2028 1.50 1e3 {"b":1,"a":2}'


def script(request):
    """Replies as the model: thinks before each of two calls, then answers."""
    count = len(request.turn_results)
    if count < 2:
        call = tool_use("look", '{ "where" : "a\\u0062"}')
        return Reply([thinking(f"{WORDS} {count}"), redacted_thinking(), call])
    return Reply([thinking(WORDS), text("done")])


@pytest.fixture
def server():
    with ScriptedServer(script) as server:
        yield server


def turn(history, server) -> None:
    """Plays a turn of two calls and an answer. The server rejects thinking that it did not sign."""
    history.say("go on")
    while True:
        assert isinstance(call_model(history, server), ev.GenComplete)
        if not history.turn.open:
            return
        history.result(f"{history.turn.number}.{history.turn.step}.0", "seen")


def blocks_in(event) -> list[str]:
    """Returns the text of an answer's blocks, exactly as it was received."""
    if not isinstance(event, ev.GenComplete):
        return []
    return [raw for _, raw in raw_blocks(event.content.inline)]


def test_S1_symptom_7_thinking_is_sent_back_byte_for_byte_across_turns_and_restarts(server):
    history = opened()
    turn(history, server)
    history.views = views_after(history, len(history.records))  # a restart
    turn(history, server)
    blocks = [b for m in history.request()["messages"] for b in m["content"]]
    signed = [block for block in blocks if block["type"] == "thinking"]
    assert len(signed) == 5 and all(WORDS in block["thinking"] for block in signed)
    request = history.request_bytes().decode()
    received = [raw for step in history.steps for raw in blocks_in(step.entry.event)]
    assert len(received) == 16 and all(raw in request for raw in received[:-2])
    assert sum(block["type"] == "redacted_thinking" for block in blocks) == 4


@pytest.mark.parametrize(("old", "new"), [(b"1.50", b"1.5"), (b"You help.", b"You do help.")])
def test_S1_symptom_7_the_server_rejects_altered_bytes(server, old, new):
    history = opened()
    turn(history, server)
    history.say("go on")
    failed = call_model(history, server, lambda request: request.replace(old, new))
    assert isinstance(failed, ev.GenFailed) and failed.permanent
    assert "signature" in failed.detail and "thinking" in failed.detail
