"""A session has more images than the model accepts: it continues with a shorter context."""

import json

import pytest

from foldlog.local.messages_api import Reply, Rule, text
from foldlog.processors.agent import Agent, Compaction
from foldlog.producers.attachments import attach
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven
from foldlog.tests.kit.manual_worker import USER

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + 2 * (3_000).to_bytes(4, "big") + b"\x08\x02\0\0\0"
PNG += bytes(4) + b"\0\0\0\0IEND"
REFUSALS = (  # the wording of the API
    "messages.8.content.1.image.source.base64.data: At least one of the image dimensions exceed "
    "max allowed size for many-image requests: 2000 pixels",
    "Too much media: 0 document pages + 22 images > 20",
    "too many images and documents: 22 + 0 > 20",
)


def images(body: dict) -> int:
    return json.dumps(body).count('"type": "image"')


@pytest.fixture
def start(start_session):
    def drive(refusal: str, provider: bool = False) -> Driven:
        no = Reply([], fault={"name": "bad_request", "message": refusal})
        rules = [
            Rule(reply=no, when=lambda request: images(request.body) > 20),
            Rule(reply=Reply([text("In short.")]), when=lambda request: request.model == CHEAP),
            Rule(reply=Reply([text("I see.")])),
        ]
        compaction = Compaction(model=CHEAP, provider=provider)
        agent = Agent(name="helper", model=MODEL, compaction=compaction)
        return start_session(agent, *rules)

    return drive


def sent(driven: Driven) -> list[dict]:
    count = driven.server.calls()
    return [json.loads(driven.server.body(n)) for n in range(1, count + 1)]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("provider", [False, True])
def test_constraint_1_a_session_with_more_images_than_the_model_accepts_continues(
    start, tmp_path, refusal, provider
):
    """The defect: every later request contained all the images too, and was rejected as well."""
    driven = start(refusal, provider)
    say_with_images(driven, tmp_path, 12)
    for number in range(12):
        driven.run().say(f"question {number}")
    say_with_images(driven.run(), tmp_path, 10)
    driven.run().say("And now?").run()
    assert [ended.reason for ended in driven.events(ev.TurnEnded)] == ["end_turn"] * 15
    (request,) = [body for body in sent(driven) if body["model"] == CHEAP]
    content = json.dumps(request["messages"][0]["content"])
    assert content.count("attached") == 12, "the summary mentions the images it replaces"
    assert images(sent(driven)[-1]) == 10
    driven.check()


def test_S3_4_images_in_the_newest_12_messages_are_left_out_if_they_are_too_many(start, tmp_path):
    """The defect: the tokens of the images fit, so no image was left out, and no later message was
    answered."""
    driven = start(REFUSALS[1])
    for count in (12, 10):
        say_with_images(driven, tmp_path, count)
        driven.run()
    driven.say("And now?").run()
    assert [ended.reason for ended in driven.events(ev.TurnEnded)] == ["end_turn"] * 3
    assert images(sent(driven)[-1]) == 10
    driven.check()


def say_with_images(driven: Driven, directory, count: int) -> None:
    paths = [directory / f"{n}.png" for n in range(count)]
    for path in paths:
        path.write_bytes(PNG + path.name.encode())
    blocks = [{"type": "text", "text": "look"}, *attach(paths, driven.blobs)]
    message = ev.MessageReceived(
        message_id=f"look{count}",
        role="user",
        content=driven.blobs.body(json.dumps(blocks).encode(), "application/json"),
        tokens=count * 1_000,
        channel="test",
        when_busy="queue",
        by_user=USER,
    )
    driven.put("producer", message)
