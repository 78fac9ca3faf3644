"""The model rejects a file: the turn and the session continue without the file."""

import json
from base64 import b64encode

import pytest

from foldlog.local.messages_api import Reply, Rule, text, thinking
from foldlog.processors.agent import Agent
from foldlog.producers.attachments import attach
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven
from foldlog.tests.engine.test_many_images import PNG
from foldlog.tests.kit.manual_worker import USER

BAD, GOOD = PNG + b"bad", PNG + b"good"
ERRORS = (  # as users of the API report them
    "Could not process image",
    "messages.2.content.0.pdf.source.base64.data: The PDF specified was not valid.",
)


def shown(body: dict) -> list[str]:
    """Returns the data of every image in a request."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["source"]["data"] for block in blocks if block["type"] == "image"]


@pytest.fixture
def start(start_session):
    def drive(error: str) -> Driven:
        no = Reply([], fault={"name": "bad_request", "message": error})
        bad = b64encode(BAD).decode()
        rules = [
            Rule(reply=no, when=lambda request: bad in shown(request.body)),
            Rule(reply=Reply([thinking("hm"), text("I see.")])),
        ]
        agent = Agent(
            name="helper", model="claude-opus-4-6", params={"thinking": {"type": "adaptive"}}
        )
        return start_session(agent, *rules)

    return drive


def say_with(driven: Driven, directory, data: bytes, name: str) -> None:
    path = directory / name
    path.write_bytes(data)
    blocks = [{"type": "text", "text": "look"}, *attach([path], driven.blobs)]
    driven.put(
        "producer",
        ev.MessageReceived(
            message_id=name,
            role="user",
            content=driven.blobs.body(json.dumps(blocks).encode(), "application/json"),
            tokens=100,
            channel="test",
            when_busy="queue",
            by_user=USER,
        ),
    )
    driven.run()


@pytest.mark.parametrize("error", ERRORS)
def test_S1_A_a_session_continues_without_a_file_that_the_model_cannot_read(
    start, tmp_path, error
):
    driven = start(error)
    driven.say("hi").run()
    say_with(driven, tmp_path, BAD, "bad.png")
    driven.check()
    (failed,) = driven.events(ev.GenFailed)
    assert failed.error == "file_refused" and failed.permanent
    newest = json.loads(driven.server.body(driven.server.calls()))
    sent = json.dumps(newest["messages"])
    assert f"[No longer shown: [image/png, {len(BAD)} bytes]]" in sent
    assert "look" in sent and "hm" not in sent, "the thinking was signed for the file, too"
    say_with(driven, tmp_path, GOOD, "good.png")
    driven.restart()
    driven.run().say("and now?").run()
    driven.check()
    assert [turn.reason for turn in driven.events(ev.TurnEnded)] == ["end_turn"] * 4
    assert len(driven.events(ev.GenFailed)) == 1
    newest = json.loads(driven.server.body(driven.server.calls()))
    assert shown(newest) == [b64encode(GOOD).decode()], "later files are sent"
