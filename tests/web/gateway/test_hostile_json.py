"""C: the response to every body is a status and a sentence, and never a 500.

Each row is one mistake. The tests send it to every route that takes JSON, in every place of the
route's body.
"""

import json
from itertools import islice

import pytest

from foldlog.producers.checks import Invalid
from foldlog.tests.web.inspector.sessions import asking
from foldlog.web.gateway.json_bodies import DEPTH_MAX, VALUES_MAX, read_json

PLACE = '"HERE"'
JSON = {"content-type": "application/json"}

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
    "/v1/sessions/asks/rerun": {"text": "t", "message_id": "m", "call": "1.1.0", "at": 1,
                                "error": True, "reason": "r", "name": "n"},
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
    "a duplicate name": '{"a": 1, "a": 2}',
    "a lone surrogate": '"half \\ud83d of one"',
    "the other half": '"\\uDE00"',
}
ODD = {
    "a large number": str(2**63 - 1), "a negative number": "-1", "zero": "0", "a fraction": "0.5",
    "null": "null", "a boolean": "true", "an empty text": '""', "a NUL": '"\\u0000"',
    "not an id": '"a/b"', "a long text": json.dumps("x" * 70_000), "an empty array": "[]",
    "an empty object": "{}", "an array of arrays": "[[[]]]", "a deep value": "[" * 60 + "]" * 60,
}


@pytest.fixture(scope="module", autouse=True)
def asks(place):
    return asking(place)


def variants(value, whole=lambda inner: inner):
    """One variant of a body for each of its values: HERE replaces that value."""
    yield whole("HERE")
    if isinstance(value, dict):
        for name in value:
            yield from variants(value[name], lambda v, n=name: whole({**value, n: v}))
    elif isinstance(value, list) and value:
        yield from variants(value[0], lambda v: whole([v, *value[1:]]))


def post(http, path, body):
    """The status of the response, and its text if it is an error."""
    with http.stream("POST", path, content=body, headers=JSON) as response:
        return response.status_code, response.read() if response.status_code >= 300 else b"{}"


@pytest.mark.parametrize("path", BODIES)
def test_C_ambiguous_json_is_refused_with_a_reason(ana, path):
    for body in islice(variants(BODIES[path]), 1, 2):
        for name, wrong in WRONG.items():
            status, text = post(ana, path, json.dumps(body).replace(PLACE, wrong))
            assert status == 400, (path, body, name, text[:200])
            error = json.loads(text)
            assert error["code"].startswith("invalid") and len(error["detail"]) > 20, error


@pytest.mark.parametrize("path", [path for path in BODIES if "terminate" not in path])
def test_C_no_value_anywhere_in_a_body_is_a_500(ana, path):
    for number, body in enumerate(variants(BODIES[path])):
        for name, odd in list(ODD.items())[number % 7 :: 7]:
            status, text = post(ana, path, json.dumps(body).replace(PLACE, odd))
            assert status < 500, (path, body, name, text[:200])


@pytest.mark.parametrize("path", [
    "/inspector/api/sessions/asks/moment?at={}", "/inspector/api/sessions/asks/events?since={}",
    "/inspector/api/sessions/asks/compare?before={}&after={}", "/v1/sessions?limit={}",
    "/v1/stream/asks?offset={}", "/v1/stream/asks?offset=-1&cursor={}&live=long-poll",
])
@pytest.mark.parametrize("number", [2**63 - 1, 2**64, "9" * 5_000, "NaN"])
def test_C_no_number_in_a_query_is_a_500(ana, path, number):
    assert ana.get(path.format(number, number)).status_code < 500


MANY = {
    "arrays": "[" + "[]," * VALUES_MAX + "[]]",
    "objects": "[" + '{"a":{}},' * (VALUES_MAX // 2) + "{}]",
    "numbers": "[" + "1," * VALUES_MAX + "1]",
    "texts": "[" + '"\\"",' * VALUES_MAX + '""]',
    "names": "{" + ",".join(f'"{n}":0' for n in range(VALUES_MAX + 1)) + "}",
}


@pytest.mark.parametrize("many", MANY)
def test_C_a_body_of_too_many_values_is_refused_before_it_is_parsed(ana, many):
    """The defect: eight megabytes of `[],` blocked the loop, and so every user, for more than a
    second."""
    with pytest.raises(Invalid, match=f"more than {VALUES_MAX:,} "):
        read_json(MANY[many].encode())
    body = json.dumps(BODIES["/v1/sessions"]).replace('"a"', MANY[many])
    for path in ("/v1/sessions", "/api/chat", "/agui"):
        response = ana.post(path, content=body, headers=JSON)
        assert (response.status_code, response.json()["code"]) == (400, "too_many_values"), path


@pytest.mark.parametrize("text", [
    "1.5,-2,\"three\"\r\n" * 400_000, "[{,\\" * 1_600_000, "QUJD" * 2_000_000, "\\\"" * 2_000_000,
    "He said, \"it's [so]\". " * 330_000,
])
def test_characters_of_a_text_do_not_count_as_values(text):
    assert read_json(json.dumps({"text": text, "n": [text[:9]] * 9}).encode())["text"] == text


def test_a_body_with_the_allowed_number_of_values_is_read():
    value = [0] * VALUES_MAX
    assert len(read_json(json.dumps(value).encode())) == len(value)


@pytest.mark.parametrize("turn", [2**53, 2**63 - 1, -(2**63)])
def test_C_a_turn_that_no_event_can_contain_is_refused(ana, turn):
    """The number fits in 64 bits, but in no field of an event."""
    for path in ("/v1/sessions/asks/cancel", "/api/chat/asks/stop"):
        response = ana.post(path, json={"turn": turn})
        assert (response.status_code, response.json()["code"]) == (400, "invalid_turn"), path


def test_unambiguous_json_is_read_as_usual():
    value = {"text": "\u00fc \U0001f600 \\ud800 no escape", "n": [2**63 - 1, -(2**63), 1.5, None]}
    for ascii_only in (True, False):
        assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value
    assert read_json(b'"\\ud83d\\ude00"') == "\U0001f600"
    deep = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert read_json(deep) is not None
    with pytest.raises(Invalid, match="UTF-8"):
        read_json(b'"\xff"')
