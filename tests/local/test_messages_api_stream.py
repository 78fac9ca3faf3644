"""Complete answers, as the real client reads them."""

import asyncio

import anthropic
import pytest

from foldlog.local.messages_api import (
    Reply,
    ScriptedServer,
    block,
    redacted_thinking,
    server_tool_use,
    text,
    thinking,
    tool_use,
)
from foldlog.tests.local.scripted_client import (
    MODEL,
    ask,
    client,
    events,
    post,
    raw_chunks,
    request,
)

WORDS = 'Größe: 12 µm, naïve façade, 日本語のテキスト, 😀👩‍👩‍👧 and \\ " \n\t end. ' * 4
INPUT = {"path": 'a/\u20ac\U0001f600"\\\n.txt', "n": [1, {"deep": None}], "s": "x" * 200}
FULL = Reply([thinking("First I think. " * 5), text(WORDS), tool_use("look", INPUT)])


def test_a_stream_arrives_byte_for_byte():
    with ScriptedServer(FULL) as server:
        message = ask(server, "go", thinking={"type": "adaptive", "display": "summarized"})
    thought, answer, called = message.content
    assert thought.thinking == "First I think. " * 5
    assert thought.signature
    assert answer.text == WORDS
    assert called.input == INPUT
    assert called.id.startswith("toolu_01")
    assert message.stop_reason == "tool_use"
    assert message.id.startswith("msg_01")


def test_the_scripted_json_of_a_tool_input_is_streamed_unchanged():
    raw = '{"b": 1,  "a": "\\u00e9\\ud83d\\ude00"}'
    with ScriptedServer(Reply([tool_use("look", raw)])) as server:
        sent = events(server, "go")
    parts = [e["delta"]["partial_json"] for e in sent if e["type"] == "content_block_delta"]
    assert parts[0] == ""
    assert "".join(parts) == raw


def test_the_events_come_in_the_order_of_the_protocol():
    with ScriptedServer(FULL) as server:
        sent = events(server, "go")
    kinds = [event["type"] for event in sent]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    open_block = None
    for event in sent:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        elif event["type"] == "content_block_delta":
            assert event["index"] == open_block
        elif event["type"] == "content_block_stop":
            assert event["index"] == open_block
            open_block = None
    starts = [e["index"] for e in sent if e["type"] == "content_block_start"]
    assert starts == [0, 1, 2]


def test_the_signature_comes_just_before_its_block_stops():
    with ScriptedServer(FULL) as server:
        sent = events(server, "go")
    stop = next(i for i, e in enumerate(sent) if e["type"] == "content_block_stop")
    assert sent[stop - 1]["delta"]["type"] == "signature_delta"


def _breaks_a_character(chunk):
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_writes_end_inside_events_and_inside_characters():
    with ScriptedServer(FULL) as server:
        headers, chunks = raw_chunks(server)
    assert b"text/event-stream" in headers
    assert b"request-id: req_01" in headers
    assert any(not chunk.endswith(b"\n\n") for chunk in chunks)
    assert any(_breaks_a_character(chunk) for chunk in chunks)
    whole = b"".join(chunks).decode()
    assert whole.count("event: ping") == 1


def test_writes_are_whole_events_when_splitting_is_off():
    with ScriptedServer(FULL, split=False) as server:
        _, chunks = raw_chunks(server)
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)


@pytest.mark.parametrize("chunk", [1, 7, "word", "whole", None])
def test_the_size_of_the_deltas_does_not_change_the_text(chunk):
    with ScriptedServer(Reply([text(WORDS)], chunk=chunk)) as server:
        sent = events(server, "go")
    deltas = [e["delta"]["text"] for e in sent if e["type"] == "content_block_delta"]
    assert "".join(deltas) == WORDS
    if chunk == "whole":
        assert len(deltas) == 1
    if chunk == 1:
        assert len(deltas) == len(WORDS)


def test_the_same_request_is_cut_at_the_same_places():
    with ScriptedServer(FULL) as server:
        deltas = [
            [e["delta"] for e in events(server, "go") if e["type"] == "content_block_delta"]
            for _ in range(2)
        ]
    for first, second in zip(*deltas, strict=True):
        assert first == second


def test_usage_at_the_end_is_the_total():
    with ScriptedServer(FULL) as server:
        sent = events(server, "go")
    start, end = sent[0]["message"]["usage"], sent[-2]["usage"]
    assert start["output_tokens"] == 1
    assert end["output_tokens"] > end["output_tokens_details"]["thinking_tokens"] > 0
    assert end["input_tokens"] == start["input_tokens"] > 0


def test_usage_can_be_scripted():
    with ScriptedServer(Reply([text("a")], usage={"output_tokens": 777})) as server:
        assert ask(server).usage.output_tokens == 777


def test_an_answer_that_is_not_streamed_is_the_same_message():
    with ScriptedServer(FULL) as server:
        whole = client(server).messages.create(**request("go"))
        streamed = ask(server, "go")
    assert whole.content[1].text == streamed.content[1].text == WORDS
    assert whole.content[2].input == INPUT
    assert whole.stop_reason == "tool_use"
    assert whole.usage.output_tokens == streamed.usage.output_tokens


def test_the_async_client_reads_the_same_text():
    async def main(server):
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=server.base_url, max_retries=0
        ) as asking:
            async with asking.messages.stream(**request("go")) as stream:
                return [piece async for piece in stream.text_stream]

    with ScriptedServer(FULL) as server:
        assert "".join(asyncio.run(main(server))) == WORDS


@pytest.mark.parametrize(
    ("config", "model", "shown"),
    [
        (None, MODEL, True),
        ({"type": "adaptive"}, MODEL, False),
        ({"type": "adaptive", "display": "summarized"}, MODEL, True),
        ({"type": "adaptive", "display": "omitted"}, MODEL, False),
        ({"type": "adaptive"}, "claude-sonnet-4-6", True),
    ],
)
def test_thinking_is_shown_as_the_request_asks(config, model, shown):
    fields = {} if config is None else {"thinking": config}
    with ScriptedServer(Reply([thinking("hm"), text("a")])) as server:
        thought = ask(server, model=model, **fields).content[0]
    assert thought.thinking == ("hm" if shown else "")
    assert thought.signature


def test_thinking_that_is_switched_off_is_left_out():
    with ScriptedServer(Reply([thinking("hm"), text("a")])) as server:
        message = ask(server, thinking={"type": "disabled"})
    assert [b.type for b in message.content] == ["text"]


def test_blocks_of_other_kinds_are_complete_in_their_start_event():
    found = [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e"}]
    reply = Reply(
        [
            redacted_thinking(),
            server_tool_use("web_search", {"query": "q"}, id="srvtoolu_1"),
            block("web_search_tool_result", tool_use_id="srvtoolu_1", content=found),
            text("so"),
        ]
    )
    with ScriptedServer(reply) as server:
        message = ask(server)
    assert [b.type for b in message.content] == [
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    assert message.content[1].input == {"query": "q"}
    assert message.content[2].content[0].url == "u"
    assert message.stop_reason == "end_turn"


def test_ids_differ_between_answers_to_the_same_request():
    with ScriptedServer(FULL) as server:
        first, second = ask(server), ask(server)
    assert first.id != second.id
    assert first.content[2].id != second.content[2].id


def test_counting_tokens_gives_the_total_of_the_same_request():
    full = request("count me " * 50)
    counted = {key: full[key] for key in ("model", "messages", "tools")}
    with ScriptedServer("echo") as server:
        tokens = client(server).messages.count_tokens(**counted).input_tokens
        usage = ask(server, "count me " * 50).usage
        assert tokens == usage.input_tokens
        assert server.calls() == 1
        assert server.journal.count("counted") == 1


def test_counting_tokens_refuses_the_fields_of_a_call():
    with ScriptedServer("echo") as server:
        status, _, body = post(server, "/v1/messages/count_tokens", request("a"))
    assert status == 400
    assert body["error"]["message"] == "max_tokens: Extra inputs are not permitted"
