"""Whatever a hostile model wrote is shown: no page of the inspector or gateway fails on it."""

import json

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.schemas import events as ev
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import Place

SECRET = "s" * 40
DEEP = b"[" * 20_000 + b"]" * 20_000
CONTENTS = {
    "deep": b'[{"type":"text","text":"x","more":' + DEEP + b"}]",
    "unclosed": b"[" * 50_000,
    "a number": b"5",
    "numbers": b'[{"type":"text","text":"x","n":' + b"9" * 5_000 + b',"m":1e999,"o":-0}]',
    "NaN": b'[{"type":"text","text":"x","n":NaN,"i":-Infinity}]',
    "texts that are none": b'[{"type":"text","text":{"a":[1]}},{"type":5},7,null]',
    "half a pair": b'[{"type":"text","text":"\\ud800"}]',
    "no text": b"\xff\xfe\x00",
    "calls": b'[{"type":"tool_use","id":"a","name":"read","input":' + DEEP + b"}]",
}
LOOKS = ("events", "lines", "moment", "request", "cost", "series", "compare?before=99&after=99")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("hostile"))
    for number, content in enumerate(CONTENTS.values()):
        hostile(made, f"s{number}", content)
    return made


def hostile(place, session_id: str, content: bytes) -> None:
    """A turn whose answer has this content, and its one call these arguments."""
    sessions, played = place.open(session_id)
    sessions.say(session_id, "question", message_id="m1")
    played.call()
    played.start()
    call = ev.ProposedCall(
        index=0, call_id="a", name="read", args=ev.Body(inline=content), args_sha256="0" * 64
    )
    event = ev.GenComplete(
        **played.place(), content=ev.Body(inline=content), calls=(call,), stop_reason="tool_use",
        response_id="r", model="m", usage=ev.Usage(
            input_tokens=1, cache_read_tokens=0, cache_write_5m_tokens=0, cache_write_1h_tokens=0,
            output_tokens=1, raw=content,
        ),
    )
    played.append(event, "models")
    played.invoke()
    played.tool_start()
    played.tool_result("done")


@pytest.fixture(scope="module")
def http(place):
    with (
        served(place.log, place.settings, place.settings.home / "gateway", secret=SECRET) as it,
        it.http(token_for("ana", SECRET)) as client,
    ):
        yield client


@pytest.mark.parametrize("number", range(len(CONTENTS)), ids=CONTENTS)
@pytest.mark.parametrize("look", LOOKS)
def test_the_inspector_shows_whatever_a_model_wrote(http, number, look):
    answer = http.get(f"/inspector/api/sessions/s{number}/{look}")
    assert answer.status_code == 200, answer.text[:300]
    json.loads(answer.content, parse_constant=pytest.fail)


@pytest.mark.parametrize("number", range(len(CONTENTS)), ids=CONTENTS)
@pytest.mark.parametrize("what", ["v1/sessions/s{}/transcript", "api/chat/s{}/messages"])
def test_the_gateway_serves_whatever_a_model_wrote(http, number, what):
    answer = http.get("/" + what.format(number))
    assert answer.status_code == 200, answer.text[:300]
    json.loads(answer.content, parse_constant=pytest.fail)
