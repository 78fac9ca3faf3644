"""Random streamed answers: their blocks are cut anywhere, attempts are lost, and the final content
may differ from what was streamed.

The client ends up with the final content, even if the streamed content was different.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from foldlog.client.transcript_stream import (
    Attempt,
    Dropped,
    LineAdded,
    Settled,
    Token,
    rest,
    spoken,
)
from foldlog.processors.fold.projections.transcript import Line
from foldlog.schemas import events as ev
from foldlog.web.protocols.ai_sdk.messages import assembled
from foldlog.web.protocols.ai_sdk.stream import begin, encode

CLIENT = Path(__file__).with_name("ai_sdk_client.mjs")
KINDS = {"text": "text", "thinking": "thinking"}

texts = st.text(min_size=0, max_size=12)
blocks = st.lists(
    st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        texts.map(lambda text: {"type": "thinking", "thinking": text, "signature": "sig"}),
        st.just({"type": "redacted_thinking", "data": "x"}),
        st.sampled_from(["tool_use", "server_tool_use"]).flatmap(
            lambda kind: texts.map(
                lambda text: {"type": kind, "id": "t", "name": "look", "input": {"a": text}}
            )
        ),
    ),
    max_size=5,
)


@pytest.fixture(scope="module")
def client(talk):
    return talk(CLIENT)


def line(kind, step, name="", content=None, **more):
    body = None if content is None else ev.Body(inline=json.dumps(content).encode())
    return Line(kind, 1, step, 0, 0, name, body=body, **more)


def pieces(draw, of, content):
    """The tokens of an answer: every block in order, cut anywhere."""
    out = []
    for number, block in enumerate(content):
        text, kind = block.get(block["type"], ""), block["type"]
        if kind.endswith("tool_use"):
            out.append(Token(of, number, "tool_name", block["name"]))
            text, kind = json.dumps(block["input"]), "tool_input"
        elif kind not in KINDS:
            continue
        while text:
            cut = draw(st.integers(1, len(text)))
            out.append(Token(of, number, kind, text[:cut]))
            text = text[cut:]
    return out


@st.composite
def turns(draw):
    """What is shown of a turn, and the turn's settled answers: the last answer of each step."""
    shown, settled = [], []
    for step in range(1, draw(st.integers(1, 3)) + 1):
        for number in range(1, draw(st.integers(0, 2)) + 1):  # attempts that failed
            of = Attempt(1, step, number)
            tokens = pieces(draw, of, draw(blocks))
            tokens = tokens[: draw(st.integers(0, len(tokens)))]
            if tokens:
                shown += [*tokens, Dropped(of, "lost")]
            shown.append(LineAdded(line("attempt", step, "failed", note="lost")))
        of, content = Attempt(1, step, 9), draw(blocks)
        tokens = pieces(draw, of, content)
        tokens = tokens[: draw(st.integers(0, len(tokens)))]  # the rest was lost
        final = [Token(of, *piece) for piece in spoken(content)]
        if draw(st.integers(0, 9)) == 0 and tokens:
            shown += [*tokens, Dropped(of, "its chunks differ from its answer"), *final]
        else:
            counts = {k: sum(len(t.text) for t in tokens if t.kind == k) for k in KINDS}
            shown += [*tokens, *rest(final, counts)]
        calls = any(block["type"] == "tool_use" for block in content)
        reason = draw(st.sampled_from(["tool_use" if calls else "pause_turn", "max_tokens"]))
        settled.append(Settled(of, line("answer", step, reason, content)))
        shown.append(settled[-1])
    return shown, settled


def encoded(things):
    state, chunks = begin("s", 1)
    for thing in things:
        state, more = encode(state, thing, lambda ref: b"", lambda _message, _turn: False)
        chunks += more
    return chunks


@settings(max_examples=80)
@given(turn=turns())
def test_P6_the_client_ends_up_with_the_final_content(client, turn):
    shown, settled = turn
    end = LineAdded(line("ended", settled[-1].line.step, "end_turn"))
    response = client.ask({"each": encoded([*shown, end])})
    assert "error" not in response, response["error"]
    assert response["message"] == json.loads(json.dumps(assembled(encoded([*settled, end]))))


def test_streamed_text_that_agrees_with_the_final_content_is_sent_once():
    of = Attempt(1, 1, 1)
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}},
    ]
    shown = [
        Token(of, 0, "thinking", "h"), Token(of, 0, "thinking", "m"), Token(of, 1, "text", "I "),
        Token(of, 1, "text", "look."), Token(of, 2, "tool_name", "look"),
        Token(of, 2, "tool_input", '{"at":'), Token(of, 2, "tool_input", "1}"),
        Settled(of, line("answer", 1, "tool_use", content)),
    ]
    ids = {"toolCallId": "1.1.0", "toolName": "look", "dynamic": True}
    signed = {"anthropic": {"signature": "sig"}}
    assert encoded(shown)[1:] == [
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "1.1.0"},
        {"type": "reasoning-delta", "id": "1.1.0", "delta": "h"},
        {"type": "reasoning-delta", "id": "1.1.0", "delta": "m"},
        {"type": "text-start", "id": "1.1.1"},
        {"type": "text-delta", "id": "1.1.1", "delta": "I "},
        {"type": "text-delta", "id": "1.1.1", "delta": "look."},
        {"type": "text-end", "id": "1.1.1"},
        {"type": "tool-input-start", **ids},
        {"type": "tool-input-delta", "toolCallId": "1.1.0", "inputTextDelta": '{"at":'},
        {"type": "tool-input-delta", "toolCallId": "1.1.0", "inputTextDelta": "1}"},
        {"type": "reasoning-end", "id": "1.1.0", "providerMetadata": signed},
        {"type": "tool-input-available", **ids, "input": {"at": 1}},
    ]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("plain", "plain"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ('{"__proto__": 1}', '{"__proto__": 1}'),
        ('{"x": {"constructor": {"prototype": 1}}}', '{"x": {"constructor": {"prototype": 1}}}'),
        ('"\\ud800"', "\ud800"),
    ],
)
def test_any_output_of_a_tool_reaches_the_client(client, output, shown):
    content = [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]
    result = Line(
        "result", 1, 1, 0, 0, "look", "1.1.0", body=ev.Body(inline=output.encode()), code="ok"
    )
    answer = Settled(Attempt(1, 1, 1), line("answer", 1, "tool_use", content))
    response = client.ask({"chunks": encoded([answer, LineAdded(result)])})
    assert "error" not in response, response["error"]
    assert response["message"]["parts"][1]["output"] == shown
