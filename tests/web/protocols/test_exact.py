"""Arguments and results of tools reach every reader unchanged.

A number that a double cannot represent, and invalid JSON, arrive as a string, and bytes that are
not UTF-8 arrive as base64.
"""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.fold.projections.transcript import Line
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.web.protocols.ai_sdk import parts as ai_sdk_parts
from foldlog.web.protocols.exact import value_of
from foldlog.web.protocols.plain import line_json

READER = """
import { createInterface } from 'node:readline'
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify([JSON.parse(line)]))
}
"""


def line(data, kind="call", name=""):
    return Line(kind, 1, 1, 0, 0, name, "1.1.0", ev.Body(inline=data))


def content(data, kind="call"):
    return line_json(line(data, kind), lambda _ref: b"")["content"]


@pytest.fixture(scope="module")
def javascript(talk, tmp_path_factory):
    script = tmp_path_factory.mktemp("reader") / "reader.mjs"
    script.write_text(READER)
    return talk(script)


NUMBERS = {
    b'{"id":9007199254740993}': {"id": "9007199254740993"},
    b'{"id":-12345678901234567890}': {"id": "-12345678901234567890"},
    b'{"id":9007199254740991}': {"id": 9007199254740991},
    b'{"much":1e400,"less":-1e400}': {"much": "1e400", "less": "-1e400"},
    b'{"little":1e-400}': {"little": "1e-400"},
    b'{"odd":1e-99999999999999999999}': {"odd": "1e-99999999999999999999"},
    b'{"pi":3.14159265358979323846}': {"pi": "3.14159265358979323846"},
    b'{"usd":1.10,"big":1E5,"third":0.1}': {"usd": 1.1, "big": 100000.0, "third": 0.1},
    b'[["' + b"9" * 5000 + b'",' + b"9" * 5000 + b"]]": [["9" * 5000] * 2],
}


@pytest.mark.parametrize("data", NUMBERS)
def test_a_number_that_no_double_represents_is_a_string(javascript, data):
    assert content(data) == NUMBERS[data]
    (read,) = javascript.ask(json.loads(compact(content(data))))
    assert read == NUMBERS[data], "JavaScript reads the same value"
    assert ai_sdk_parts.value_of(data) == NUMBERS[data]


def test_the_input_of_a_call_is_exact_in_the_ai_sdk():
    block = '{"type":"tool_use","id":"t","name":"pay","input":{"to":9007199254740993,"n":1e400}}'
    answer = line(f"[{block}]".encode(), "answer", "tool_use")
    (part,) = ai_sdk_parts.final_parts(answer, lambda _ref: b"")
    assert part.input == {"to": "9007199254740993", "n": "1e400"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":"half \\ud800"}', b"{", b"",
        b"[" * 200 + b"]" * 200, b"[" * 99_999 + b"]" * 99_999,
    ],
)
def test_invalid_json_is_a_string_that_can_be_encoded(data):
    assert content(data) == data.decode()
    assert json.loads(compact(content(data)).encode()) == data.decode()


def test_bytes_that_are_not_text_are_base64():
    assert content(b"\xff\xfe1\x00") == {"base64": "//4xAA=="}


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.text(), st.integers(-(2**53) + 1, 2**53 - 1),
              st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
))
def test_a_value_that_doubles_represent_is_unchanged(value):
    assert value_of(json.dumps(value).encode()) == value
