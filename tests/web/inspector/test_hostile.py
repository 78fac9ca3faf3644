"""Hostile content of a model is shown as text: no route of the inspector or the gateway fails on
it."""

import json

import pytest

from foldlog.schemas import events as ev

DEEP = b"[" * 20_000 + b"]" * 20_000
CONTENTS = {
    "deep": b'[{"type":"text","text":"x","more":' + DEEP + b"}]",
    "unclosed": b"[" * 50_000,
    "a number": b"5",
    "numbers": b'[{"type":"text","text":"x","n":' + b"9" * 5_000 + b',"m":1e999,"o":-0}]',
    "NaN": b'[{"type":"text","text":"x","n":NaN,"i":-Infinity}]',
    "not texts": b'[{"type":"text","text":{"a":[1]}},{"type":5},7,null]',
    "a lone surrogate": b'[{"type":"text","text":"\\ud800"}]',
    "not UTF-8": b"\xff\xfe\x00",
    "calls": b'[{"type":"tool_use","id":"a","name":"read","input":' + DEEP + b"}]",
}
ROUTES = (
    "events", "lines", "moment", "request", "cost", "runs", "fills", "family",
    "compare?before=99&after=99", "compare?before=99&after=99&other=s0",
)


@pytest.fixture(scope="module", autouse=True)
def hostile_sessions(place):
    for number, content in enumerate(CONTENTS.values()):
        hostile(place, f"s{number}", content)


def hostile(place, session_id: str, content: bytes) -> None:
    """Play a turn whose answer has this content, also as the arguments of a call."""
    _, played = place.open(session_id, "question")
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
    played.run_tool("done")


@pytest.mark.parametrize("number", range(len(CONTENTS)), ids=CONTENTS)
@pytest.mark.parametrize("path", [
    *(f"inspector/api/sessions/s{{}}/{route}" for route in ROUTES),
    "v1/sessions/s{}/transcript",
    "api/chat/s{}/messages",
])
def test_hostile_content_is_shown(ana, number, path):
    response = ana.get("/" + path.format(number))
    assert response.status_code == 200, response.text[:300]
    json.loads(response.content, parse_constant=pytest.fail)
