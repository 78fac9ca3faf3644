"""C: whatever a body holds, the answer is a status and a sentence: no request is a 500.

One row per mistake, sent to every route that takes JSON, in the places of its body.
"""

import json
from itertools import islice

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.json_bodies import DEPTH_MAX, VALUES_MAX, read_json
from foldlog.producers.checks import Invalid
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import Place, asking

SECRET = "s" * 40
PLACE = '"HERE"'

BODIES = {
    "/v1/sessions": {"session_id": "s", "agent": "a"},
    "/v1/sessions/asks/messages": {"text": "t", "message_id": "m", "when_busy": "q", "agent": "a"},
    "/v1/sessions/asks/cancel": {
        "turn": 1, "seen_phase": "p", "mode": "now", "reason": "r", "cancel_id": "c"},
    "/v1/sessions/asks/calls/1.1.0/decide": {
        "decision": "allow", "args_sha256": "x", "remember": True},
    "/v1/sessions/asks/calls/1.1.0/resolve": {"outcome": "happened", "report": "r"},
    "/v1/sessions/asks/phase": {"trigger": "t", "command_id": "c"},
    "/v1/sessions/asks/project": {"project_id": "p", "command_id": "c"},
    "/v1/sessions/asks/terminate": {"reason": "r"},
    "/v1/sessions/asks/fork": {"at": 1, "name": "n"},
    "/v1/sessions/asks/regenerate": {"turn": 1, "name": "n"},
    "/api/tabs": {"tab": "t", "agent": "a"},
    "/api/chat": {"id": "asks", "trigger": "submit-message", "messageId": "m", "agent": "a",
                  "when_busy": "q", "messages": [
                      {"id": "m", "role": "user", "parts": [{"type": "text", "text": "t"}]}]},
    "/api/chat/asks/stop": {"turn": 1, "messageId": "m"},
    "/api/chat/asks/approvals": {"approvals": [{"id": "1.1.0:x", "approved": True}]},
    "/agui": {"threadId": "asks", "runId": "r", "state": {}, "tools": [], "context": [],
              "messages": [{"id": "m", "role": "user", "content": "t"}],
              "forwardedProps": {"agent": "a", "when_busy": "q"},
              "resume": [{"interruptId": "1.1.0", "status": "resolved",
                          "payload": {"approved": True}}]},
    "/agui/connect": {"threadId": "asks", "runId": "r", "messages": []},
}

WRONG = {
    "deep arrays": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a little too deep": "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
    "over 64 bits": str(2**63),
    "under 64 bits": str(-(2**63) - 1),
    "a thousand digits": "9" * 5_000,
    "over a double": "1e400",
    "NaN": "NaN",
    "infinity": "-Infinity",
    "twice the same name": '{"a": 1, "a": 2}',
    "a lone surrogate": '"half \\ud83d of one"',
    "the other half": '"\\uDE00"',
}
ODD = {
    "a large number": str(2**63 - 1), "a negative number": "-1", "zero": "0", "a fraction": "0.5",
    "nothing": "null", "a truth": "true", "an empty text": '""', "a NUL": '"\\u0000"',
    "no id": '"a/b"', "a long text": json.dumps("x" * 70_000), "an empty array": "[]",
    "an empty object": "{}", "an array of arrays": "[[[]]]", "a deep value": "[" * 60 + "]" * 60,
}


@pytest.fixture(scope="module")
def ana(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("place"))
    with (
        served(place.log, place.settings, place.settings.home / "g", secret=SECRET) as running,
        running.http(token_for("ana", SECRET)) as http,
    ):
        asking(place)
        yield http


def places(value, told=lambda inner: inner):
    """A body, as many times as it has values, with HERE in the place of another each time."""
    yield told("HERE")
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], lambda v, n=name: told({**value, n: v}))
    elif isinstance(value, list) and value:
        yield from places(value[0], lambda v: told([v, *value[1:]]))


def answered(http, path, body):
    headers = {"content-type": "application/json"}
    with http.stream("POST", path, content=body, headers=headers) as answer:
        return answer.status_code, answer.read() if answer.status_code >= 300 else b"{}"


@pytest.mark.parametrize("path", BODIES)
def test_C_json_that_can_be_misread_is_400_and_says_why(ana, path):
    for body in islice(places(BODIES[path]), 1, 2):
        for name, wrong in WRONG.items():
            status, said = answered(ana, path, json.dumps(body).replace(PLACE, wrong))
            assert status == 400, (path, body, name, said[:200])
            told = json.loads(said)
            assert told["code"].startswith("invalid") and len(told["detail"]) > 20, told


@pytest.mark.parametrize("path", [path for path in BODIES if "terminate" not in path])
def test_C_no_value_anywhere_in_a_body_is_a_500(ana, path):
    for number, body in enumerate(places(BODIES[path])):
        for name, odd in list(ODD.items())[number % 7 :: 7]:
            status, said = answered(ana, path, json.dumps(body).replace(PLACE, odd))
            assert status < 500, (path, body, name, said[:200])


@pytest.mark.parametrize("path", [
    "/inspector/api/sessions/asks/moment?at={}", "/inspector/api/sessions/asks/events?since={}",
    "/inspector/api/sessions/asks/compare?before={}&after={}", "/v1/sessions?limit={}",
    "/v1/stream/asks?offset={}", "/v1/stream/asks?offset=-1&cursor={}&live=long-poll",
])
@pytest.mark.parametrize("number", [2**63 - 1, 2**64, "9" * 5_000, "NaN"])
def test_C_no_number_of_a_query_is_a_500(ana, path, number):
    assert ana.get(path.format(number, number)).status_code < 500


def test_C_a_stream_takes_json_of_any_depth_or_says_no(ana):
    kind = {"content-type": "application/json"}
    ana.put("/v1/stream/json", headers=kind).raise_for_status()
    for wrong in WRONG.values():
        assert ana.post("/v1/stream/json", content=wrong, headers=kind).status_code < 500
    assert ana.get("/v1/stream/json").status_code == 200


MANY = {
    "arrays": "[" + "[]," * VALUES_MAX + "[]]",
    "objects": "[" + '{"a":{}},' * (VALUES_MAX // 2) + "{}]",
    "numbers": "[" + "1," * VALUES_MAX + "1]",
    "texts": "[" + '"\\"",' * VALUES_MAX + '""]',
    "names": "{" + ",".join(f'"{n}":0' for n in range(VALUES_MAX + 1)) + "}",
}


@pytest.mark.parametrize("many", MANY)
def test_C_a_body_of_very_many_values_is_refused_before_they_are_made(ana, many):
    """Eight megabytes of `[],` held the loop, and so every user, for more than a second."""
    with pytest.raises(Invalid, match=f"more than {VALUES_MAX:,} "):
        read_json(MANY[many].encode())
    kind = {"content-type": "application/json"}
    ana.put("/v1/stream/many", headers=kind).raise_for_status()
    body = json.dumps(BODIES["/v1/sessions"]).replace('"a"', MANY[many])
    for path in ("/v1/sessions", "/api/chat", "/agui", "/v1/stream/many"):
        answer = ana.post(path, content=body, headers=kind)
        assert (answer.status_code, answer.json()["code"]) == (400, "too_many_values"), path


@pytest.mark.parametrize("text", [
    "1.5,-2,\"three\"\r\n" * 400_000, "[{,\\" * 1_600_000, "QUJD" * 2_000_000, "\\\"" * 2_000_000,
    "He said, \"it's [so]\". " * 330_000,
])
def test_what_a_text_holds_are_no_values(text):
    assert read_json(json.dumps({"text": text, "n": [text[:9]] * 9}).encode())["text"] == text


def test_as_many_values_as_are_allowed_are_read():
    value = [0] * VALUES_MAX
    assert len(read_json(json.dumps(value).encode())) == len(value)


@pytest.mark.parametrize("turn", [2**53, 2**63 - 1, -(2**63)])
def test_C_a_turn_that_no_event_can_name_is_a_400(ana, turn):
    """It fits in 64 bits and no field of an event."""
    for path in ("/v1/sessions/asks/cancel", "/api/chat/asks/stop"):
        answer = ana.post(path, json={"turn": turn})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_turn"), path


def test_json_is_read_as_ever_where_nothing_is_wrong():
    value = {"text": "\u00fc \U0001f600 \\ud800 no escape", "n": [2**63 - 1, -(2**63), 1.5, None]}
    for ascii_only in (True, False):
        assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value
    assert read_json(b'"\\ud83d\\ude00"') == "\U0001f600"
    deep = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert read_json(deep) is not None
    with pytest.raises(Invalid, match="UTF-8"):
        read_json(b'"\xff"')
