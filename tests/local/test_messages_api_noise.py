"""Faults that do not break the connection: noise in the stream, and unusual answers."""

import json

import anthropic
import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, Stage, fault, text, tool_use
from foldlog.tests.local.scripted_client import (
    SENTENCE,
    ask,
    assistant,
    by_stage,
    events,
    results,
    serving,
    text_of,
)

# noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(by_stage(Stage.NOISE)) - {"bad_event_json"}))
def test_noise_leaves_the_answer_unchanged(name):
    with serving(name) as server:
        kinds = [event["type"] for event in events(server)]
        message = ask(server)
    assert text_of(message) == SENTENCE
    assert message.content[2].input == {"path": "a" * 40}
    assert message.stop_reason == "tool_use"
    assert kinds[0] == "message_start"


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("duplicate_message_stop", "message_stop", 2),
        ("duplicate_message_delta", "message_delta", 2),
        ("unknown_event", "future_event", 1),
    ],
)
def test_noise_is_in_the_stream(name, kind, count):
    with serving(name) as server:
        assert [event["type"] for event in events(server)].count(kind) == count


def test_events_after_the_end_reach_a_reader_that_continues():
    """The client adds such events to its message, so a reader has to stop at message_stop."""
    with serving("events_after_message_stop", [text(SENTENCE)]) as server:
        kinds = [event["type"] for event in events(server)]
        assert kinds[-2:] == ["message_stop", "content_block_delta"]
        assert text_of(ask(server)) == SENTENCE + "said after the end"


def test_unknown_deltas_and_fields_reach_the_reader():
    with serving("unknown_delta") as server:
        found = [e.get("delta", {}).get("type") for e in events(server)]
        assert "future_delta" in found
    with serving("unknown_fields") as server:
        start = next(e for e in events(server) if e["type"] == "content_block_start")
        assert start["content_block"]["future_field"] == "kept"


def test_data_that_is_not_json_raises_in_the_client():
    with serving("bad_event_json") as server:
        with pytest.raises(json.JSONDecodeError):
            events(server)


def test_an_unknown_block_must_be_sent_back_unchanged():
    with serving("unknown_block", [text("a")]) as server:
        raw = events(server)
        block = [e for e in raw if e["type"] == "content_block_start"][-1]["content_block"]
        assert block["type"] == "future_block"
        assert ask(server, "go", assistant(block), "and?").stop_reason == "end_turn"
        changed = {**block, "payload": {"n": 2, "s": "é"}}
        with pytest.raises(anthropic.BadRequestError, match="Input tag 'future_block'"):
            ask(server, "go", assistant(changed), "and?")


# shape -------------------------------------------------------------------------------------------

STOPS = {
    "max_tokens_in_tool_use": "max_tokens",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
    "context_window_exceeded": "model_context_window_exceeded",
    "empty_content": "end_turn",
    "thinking_only": "end_turn",
    "compaction_null": "compaction",
    "invalid_tool_json": "tool_use",
    "repeated_tool_ids": "tool_use",
    "parallel_tool_calls": "tool_use",
}


@pytest.mark.parametrize("name", STOPS)
def test_every_shape_has_its_stop_reason(name):
    with serving(name) as server:
        reasons = [
            e["delta"]["stop_reason"] for e in events(server) if e["type"] == "message_delta"
        ]
    assert reasons == [STOPS[name]]
    assert set(by_stage(Stage.SHAPE)) == set(STOPS)


def test_a_refusal_has_details():
    with serving("refusal", category="bio", explanation="no") as server:
        details = ask(server).stop_details
    assert (details.category, details.explanation) == ("bio", "no")


def tool_input(server):
    """The streamed input of the tool calls of an answer."""
    deltas = [event["delta"] for event in events(server) if "delta" in event]
    return "".join(d["partial_json"] for d in deltas if d.get("type") == "input_json_delta")


def test_a_tool_input_cut_by_max_tokens_is_not_json():
    with serving("max_tokens_in_tool_use") as server, pytest.raises(ValueError):
        json.loads(tool_input(server))


def test_a_tool_input_that_is_not_json_is_streamed_unchanged():
    with serving("invalid_tool_json", raw='{"a": tru') as server:
        assert tool_input(server) == '{"a": tru'


def test_answers_without_content_with_only_thinking_and_with_many_calls():
    with serving("empty_content") as server:
        assert ask(server).content == []
    with serving("thinking_only") as server:
        assert [b.type for b in ask(server).content] == ["thinking"]
    with serving("parallel_tool_calls", count=10) as server:
        ids = [b.id for b in ask(server).content if b.type == "tool_use"]
        assert len(set(ids)) == len(ids) == 10


def test_ids_that_repeat_within_and_across_answers():
    with serving("repeated_tool_ids", [tool_use("look"), tool_use("touch")]) as server:
        first, second = ask(server), ask(server, "something else")
        ids = {block.id for message in (first, second) for block in message.content}
        assert len(ids) == 1
        # Sending them back unchanged is refused: the client has to make them unique.
        with pytest.raises(anthropic.BadRequestError, match="ids must be unique"):
            ask(server, "hi", assistant(*first.content), results(*ids))


def test_a_paused_turn_continues_when_it_is_sent_back():
    with ScriptedServer([Reply([text("done")])]) as server:
        server.add(Reply([text("searching")], fault="pause_turn"))
        paused = ask(server)
        assert [b.type for b in paused.content] == ["text", "server_tool_use"]
        server.add(Reply([text("found")]))
        assert text_of(ask(server, "hi", assistant(*paused.content))) == "found"


# the table ---------------------------------------------------------------------------------------


def test_an_unknown_fault_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown fault 'eofs'; known: .*eof"):
        Reply(fault="eofs")
    with pytest.raises(ValueError, match="'eof' has no parameter n; it has: k"):
        fault("eof", n=1)


def test_a_fault_that_does_not_fit_its_reply_is_reported_as_the_scripts_bug():
    with serving("invalid_tool_json", [text("a")]) as server:
        with pytest.raises(anthropic.InternalServerError, match="needs a tool_use block"):
            ask(server)
        assert server.wait_count("failed")
