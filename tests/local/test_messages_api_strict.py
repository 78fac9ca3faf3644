"""The server rejects the requests that the real API rejects, with the API's wording."""

import json

import anthropic
import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text, tool_use
from foldlog.local.messages_api.conversation import PREFILL_TEXT
from foldlog.tests.local.scripted_client import (
    MODEL,
    ask,
    assistant,
    call,
    client,
    post,
    refused,
    request,
    results,
)

TEXT = {"type": "text", "text": "a"}
CALLED = ("look at it", assistant(call("t1"), call("t2")))
ERROR_WITHOUT_CONTENT = {
    "type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": ""
}
PAUSED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(Reply([text("ok")])) as server:
        yield server


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


# pairing of calls and results ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((*CALLED, "never mind"), id="no result at all"),
        pytest.param((*CALLED, results("t1")), id="one of two"),
        pytest.param(
            (*CALLED, user(TEXT, *results("t1", "t2")["content"])), id="text before the results"
        ),
        pytest.param(
            (*CALLED, {"role": "system", "content": "hurry"}, results("t1", "t2")),
            id="a system message between",
        ),
    ],
)
def test_a_call_needs_its_result_in_the_next_message(server, messages):
    message = refused(server, *messages)
    assert message.startswith("messages.1: `tool_use` ids were found without `tool_result` blocks")
    assert "t2" in message
    assert message.endswith(
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def test_calls_at_the_end_lack_their_results(server):
    assert "without `tool_result` blocks immediately after: t1, t2" in refused(server, *CALLED)


SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            (results("t9"),),
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t9. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
            "message.",
        ),
        (
            (*CALLED, results("t1", "t2"), assistant(TEXT), results("t1")),
            "messages.4.content.0: unexpected `tool_use_id`",
        ),
        (
            (*CALLED, results("t1", "t2", "t1")),
            "messages.2.content.2: each tool_use must have a single result",
        ),
        (
            (*CALLED, results("t1", "t2"), assistant(call("t1")), results("t1")),
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        (
            ("go", assistant(call("t1"), call("t1")), results("t1")),
            "messages.1.content.1: `tool_use` ids must be unique",
        ),
        (
            ("go", assistant(SEARCH_RESULT), "and?"),
            "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` "
            "blocks: srvtoolu_1. Each `web_search_tool_result` block must have a corresponding "
            "`server_tool_use` block before it.",
        ),
        (
            ("go", assistant(call("t1", "fly")), results("t1")),
            "messages.1.content.0: Tool 'fly' not found in provided tools",
        ),
        (
            ("go", assistant(*results("t1")["content"]), "and?"),
            "messages.1.content.0: `tool_result` blocks can only be in `user` messages",
        ),
        (
            (*CALLED, user(*results("t1")["content"], ERROR_WITHOUT_CONTENT)),
            "messages.2.content.1: content cannot be empty if `is_error` is true",
        ),
        ((assistant(TEXT), "go"), 'messages: first message must use the "user" role'),
        (({"role": "tool", "content": "a"},), 'messages: Unexpected role "tool"'),
        (("go", assistant(TEXT)), PREFILL_TEXT),
    ],
)
def test_an_invalid_conversation_is_refused(server, messages, message):
    assert refused(server, *messages).startswith(message)


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ((*CALLED, user(*results("t1", "t2")["content"], {"type": "text", "text": "hurry"})), {}),
        ((*CALLED, results("t1"), results("t2")), {}),  # consecutive messages are one turn
        (("go", assistant(TEXT)), {"model": "claude-haiku-4-5"}),  # older models allow a prefill
        (("go", {"role": "system", "content": "be short"}), {}),
        (("go", assistant(TEXT, PAUSED)), {}),  # a paused turn is sent back unchanged
    ],
)
def test_an_unusual_conversation_is_accepted(server, messages, fields):
    assert ask(server, *messages, **fields).stop_reason == "end_turn"


def test_a_tool_that_the_model_invented_may_be_answered():
    """The model may call a tool that was not declared, and the client must be able to return a
    result for this call."""
    with ScriptedServer([Reply([tool_use("fly", {})])]) as server:
        content = ask(server, "go").content
        server.add(Reply([text("sorry")]))
        result = results(content[0].id, is_error=True)
        message = ask(server, "go", assistant(*content), result)
    assert message.content[0].text == "sorry"


# roles and content -------------------------------------------------------------------------------


def test_a_prefill_that_ends_in_white_space_is_refused(server):
    ending = assistant({"type": "text", "text": "so "})
    message = refused(server, "go", ending, model="claude-haiku-4-5")
    assert message == "messages: final assistant content cannot end with trailing whitespace"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (("go", assistant(), "and?"), "messages.1: all messages must have non-empty content"),
        ((user({"type": "text", "text": ""}),), "messages: text content blocks must be non-empty"),
        (({"role": "user", "content": ""},), "messages.0: all messages must have non-empty"),
        (
            (user({"type": "text", "text": " \n"}),),
            "messages: text content blocks must contain non-whitespace text",
        ),
        (
            (
                *CALLED,
                user(
                    *results("t1")["content"],
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": ""}],
                    },
                ),
            ),
            "messages: text content blocks must be non-empty",
        ),
    ],
)
def test_empty_content_is_refused(server, messages, message):
    assert refused(server, *messages).startswith(message)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"type": "tool_use", "id": "t", "name": "look"}, "messages.1.content.0.tool_use.input"),
        (
            {"type": "tool_use", "id": "t", "name": "look", "input": "{}"},
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            {"type": "tool_use", "id": "t.1", "name": "look", "input": {}},
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            {"type": "thinking", "thinking": "hm"},
            "messages.1.content.0.thinking.signature: Field required",
        ),
        ({"type": "image", "source": {}}, "messages.1.content.0: `image` blocks can only be in"),
        ({"type": "odd"}, "messages.1.content.0: Input tag 'odd' found using 'type' does not"),
        ({"text": "a"}, "messages.1.content.0.type: Field required"),
    ],
)
def test_the_fields_of_a_block_are_checked(server, block, message):
    assert refused(server, "go", assistant(block), "and?").startswith(message)


# fields ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.5}, "temperature: Extra inputs are not permitted"),
        ({"compaction": {"type": "summarize"}}, "compaction: Extra inputs are not permitted"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"max_tokens": "9"}, "max_tokens: Input should be a valid integer"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks must be non-e"),
        ({"metadata": {"user": "u"}}, "metadata.user: Extra inputs are not permitted"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools.0.custom.name"),
        ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, "tools.0.custom.input_schema.type"),
        (
            {"tools": [{"name": "a", "input_schema": {"type": "object"}}] * 2},
            "tools: Tool names must be unique.",
        ),
        (
            {"tool_choice": {"type": "tool", "name": "fly"}},
            "tool_choice: Tool 'fly' not found in provided tools",
        ),
        ({"tools": [], "tool_choice": {"type": "any"}}, "tool_choice: tool_choice may only be"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1000}},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
        (
            {"thinking": {"type": "adaptive", "block_binding": {}}},
            "thinking.adaptive.block_binding: Extra inputs are not permitted",
        ),
    ],
)
def test_the_fields_of_a_request_are_checked(server, fields, message):
    status, _, body = post(server, body={**request("go"), **fields})
    assert status == 400
    assert body["type"] == "error"
    assert body["error"]["message"].startswith(message)


def test_required_fields_are_named(server):
    for name in ("model", "max_tokens", "messages"):
        body = {key: value for key, value in request("go").items() if key != name}
        assert post(server, body=body)[2]["error"]["message"] == f"{name}: Field required"


def test_there_are_at_most_four_breakpoints(server):
    marked = {**TEXT, "cache_control": {"type": "ephemeral"}}
    assert refused(server, user(*[marked] * 5)) == (
        "A maximum of 4 blocks with cache_control may be provided. Found 5."
    )
    message = refused(server, user(*[marked] * 4), cache_control={"type": "ephemeral"})
    assert message.endswith("Found 5.")


def test_a_one_hour_mark_after_a_five_minute_mark_is_refused(server):
    short = {**TEXT, "cache_control": {"type": "ephemeral"}}
    long = {**TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    message = refused(server, user(short, long))
    assert message.startswith("messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control")
    assert ask(server, user(long, short)).stop_reason == "end_turn"


def test_the_number_of_messages_is_limited(server):
    body = request(*[{"role": "user", "content": "a"}] * 100_001)
    status, _, answer = post(server, body=body)
    assert status == 400
    assert "at most 100000 items" in answer["error"]["message"]


def test_with_a_fixed_budget_an_open_turn_starts_with_thinking(server):
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    message = refused(server, *CALLED, results("t1", "t2"), model="claude-haiku-4-5", **fields)
    assert message.startswith(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
    )


# the transport -----------------------------------------------------------------------------------


def test_a_body_that_is_not_json_is_refused(server):
    status, headers, body = post(server, body=b'{"model": "x", ')
    assert status == 400
    assert body["error"]["message"].startswith("The request body is not valid JSON")
    assert headers["request-id"] == body["request_id"]


@pytest.mark.parametrize("body", [b"[]", b"null", b'"a"', b"\xff\xfe"])
def test_a_body_that_is_not_an_object_is_refused(server, body):
    status, _, answer = post(server, body=body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_too_large_is_read_and_refused():
    with ScriptedServer("echo", body_bytes_max=10_000) as server:
        with pytest.raises(anthropic.APIStatusError) as caught:
            client(server).messages.create(**request("a" * 20_000))
        assert caught.value.status_code == 413
        assert caught.value.type == "request_too_large"
        assert ask(server, "small").content[0].text == "You said: small"


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        (
            {"authorization": "Bearer ", "anthropic-version": "2026-10-21"},
            401,
            "authentication_error",
        ),
        ({"x-api-key": "k", "anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        ({"authorization": "Bearer k"}, 400, "invalid_request_error"),
        (
            {"authorization": "Bearer k", "anthropic-version": "1999-01-01"},
            400,
            "invalid_request_error",
        ),
    ],
)
def test_headers_are_required(server, headers, status, kind):
    found, _, body = post(server, body=request("go"), headers=headers)
    assert (found, body["error"]["type"]) == (status, kind)


def test_keys_can_be_checked():
    with ScriptedServer("echo", api_keys=["other"]) as server:
        with pytest.raises(anthropic.AuthenticationError):
            ask(server)


def test_other_paths_and_methods(server):
    assert post(server, "/v1/nothing", {})[0] == 404
    assert post(server, "/v1/nothing", {})[2]["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        client(server).models.retrieve(MODEL)


def test_a_refused_request_is_not_counted_as_a_call(server):
    before = server.calls()
    refused(server, "go", assistant(TEXT))
    assert server.calls() == before
    entry = server.journal.entries("refused")[-1]
    assert entry["status"] == 400
    assert entry["error"] == PREFILL_TEXT


def test_the_received_body_is_kept(server):
    ask(server, "exactly this é")
    n = server.journal.entries("accepted")[-1]["n"]
    assert json.loads(server.body(n))["messages"][0]["content"] == "exactly this é"
