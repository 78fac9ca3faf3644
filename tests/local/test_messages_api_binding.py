"""Preserved thinking and compaction: blocks must come back unchanged and in the same place."""

import anthropic
import pytest

from foldlog.local.messages_api import (
    Reply,
    ScriptedServer,
    compaction,
    redacted_thinking,
    text,
    thinking,
    tool_use,
)
from foldlog.tests.local.scripted_client import (
    MODEL,
    TOOLS,
    ask,
    assistant,
    client,
    refused,
    request,
    results as answers,
)

BINDING = "thinking-binding-controls-2026-08-01"
COMPACT = "compact-2026-09-04"
BOUND = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."


def script(request):
    """Replies as the model: thinks before each of two calls, then answers."""
    count = len(request.turn_results)
    if count < 2:
        return Reply([thinking(f"thought {count}"), tool_use("look", {"n": count})])
    return Reply([thinking("at last"), text("done")])


@pytest.fixture
def server():
    with ScriptedServer(script) as server:
        yield server


def conversation(server, **fields):
    """The messages of a whole turn: user, call, result, call, result, answer."""
    messages = [{"role": "user", "content": "go"}]
    for _ in range(10):
        answer = ask(server, *messages, **fields)
        messages.append(assistant(*answer.content))
        if answer.stop_reason == "end_turn":
            return messages
        messages.append(answers(answer.content[-1].id))
    raise AssertionError("the turn did not end")


def test_a_history_that_is_sent_back_unchanged_is_accepted(server):
    messages = conversation(server)
    assert ask(server, *messages, "and now?").stop_reason == "tool_use"


def test_blocks_are_compared_by_value(server):
    """Key order, cache marks, effort and max_tokens do not affect the comparison."""
    first, *rest = conversation(server, system="be kind")
    marked = [{"cache_control": {"type": "ephemeral"}, "text": "go", "type": "text"}]
    first = {"content": marked, "role": "user"}
    same = [{"type": "text", "text": "be kind"}]
    ask(server, first, *rest, "and now?", system=same, max_tokens=9)


def test_a_restarted_server_recognizes_its_signatures(server):
    messages = conversation(server)
    with ScriptedServer(script) as other:
        assert ask(other, *messages, "and now?")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"system": "changed"}, "The `system` prompt differs from the one this block was created"),
        ({"tools": TOOLS[:1]}, "The `tools` differ from those this block was created with."),
    ],
)
def test_a_changed_prefix_is_refused(server, fields, sentence):
    message = refused(server, *conversation(server), "and now?", **fields)
    assert message.startswith(f"messages.1.content.0: {BOUND}")
    assert f"That setting requires the `{BINDING}` value" in message
    assert sentence in message


def test_an_edited_message_is_refused_from_there_on(server):
    messages = conversation(server)
    edited = answers(messages[3]["content"][-1]["id"])
    messages[2] = answers(messages[1]["content"][-1]["id"], content="something else")
    assert messages[4] == edited
    message = refused(server, *messages, "and now?")
    assert message.startswith(f"messages.3.content.0: {BOUND}")
    assert message.endswith("The messages before this block differ from those it was created with.")


def test_thinking_may_be_removed_from_the_front_only(server):
    messages = conversation(server)

    def without(*places):
        return [
            {**m, "content": m["content"][1:]} if i in places else m for i, m in enumerate(messages)
        ]

    for removed in ((1,), (1, 3), (1, 3, 5)):
        assert ask(server, *without(*removed), "and now?")
    message = refused(server, *without(3), "and now?")
    assert message.startswith(f"messages.5.content.0: {BOUND}")
    assert message.endswith(
        "The `thinking` block that preceded this one when it was created is missing from this "
        "request."
    )


@pytest.mark.parametrize("change", [{"thinking": "other"}, {"signature": "c2lnbmF0dXJl"}])
def test_a_changed_block_has_an_invalid_signature(server, change):
    messages = conversation(server)
    block, *others = messages[1]["content"]
    messages[1] = assistant({**block, **change}, *others)
    message = refused(server, *messages, "and now?")
    assert message == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_empty_thinking_is_sent_back_too(server):
    fields = {"thinking": {"type": "adaptive"}}
    messages = conversation(server, **fields)
    assert messages[1]["content"][0]["thinking"] == ""
    ask(server, *messages, "and now?", **fields)
    messages[1]["content"][0]["thinking"] = "filled in"
    assert "Invalid `signature`" in refused(server, *messages, "and now?", **fields)


def test_redacted_thinking_is_bound_as_well():
    with ScriptedServer(Reply([redacted_thinking(), text("a")])) as server:
        answer = assistant(*ask(server, "go").content)
        ask(server, "go", answer, "and now?")
        assert BOUND.partition("The block")[2] in refused(server, "went", answer, "and now?")


def test_models_without_preserved_thinking_do_not_compare(server):
    messages = conversation(server, model="claude-sonnet-4-6")
    ask(server, *messages, "and now?", model="claude-sonnet-4-6", system="changed")


def test_another_models_thinking_is_dropped_silently(server):
    messages = conversation(server)
    ask(server, *messages, "and now?", model="claude-fable-5-1", system="changed")


def test_drop_block_drops_and_reports_it(server):
    messages = conversation(server)
    config = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    fields = request(*messages, "and now?", system="changed", thinking=config)
    message = client(server).beta.messages.create(**fields, betas=[BINDING])
    found = [(t.type, t.path, t.reason) for t in message.input_transformations]
    reason = "prefix_binding_mismatch"
    assert found == [("thinking_dropped", f"messages.{i}.content.0", reason) for i in (1, 3, 5)]


# compaction --------------------------------------------------------------------------------------


def beta(server, *messages, **fields):
    return client(server).beta.messages.create(**request(*messages, **fields), betas=[COMPACT])


def compacted(server, *messages):
    message = beta(server, *messages, compaction={"type": "summarize"})
    assert message.stop_reason == "compaction"
    (block,) = message.content
    assert block.type == "compaction"
    return block.to_dict()


def test_a_compaction_replaces_the_messages_that_it_covers(server):
    messages = conversation(server)
    block = compacted(server, *messages)
    assert block["content"] == "Summary of 6 messages."
    message = beta(server, assistant(block), "and now?")
    assert message.stop_reason == "tool_use"


def test_turns_kept_after_a_compaction_keep_their_thinking(server):
    messages = conversation(server)
    block = compacted(server, *messages[:2], answers(messages[1]["content"][-1]["id"]))
    kept = messages[3:]
    assert beta(server, assistant(block), *kept, "and now?")
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        beta(server, assistant(block), "a new one", *kept[2:], "and now?")


def test_a_compaction_is_streamed_and_may_be_scripted():
    with ScriptedServer(Reply([compaction("a summary")])) as server:
        fields = request("a", assistant({"type": "text", "text": "b"}), "c")
        with client(server).beta.messages.stream(
            **fields, betas=[COMPACT], extra_body={"compaction": {"type": "summarize"}}
        ) as stream:
            message = stream.get_final_message()
    (block,) = message.content
    assert block.content == "a summary"
    assert block.signature


def test_a_failed_compaction_covers_nothing():
    with ScriptedServer(Reply([compaction(None)])) as server:
        block = compacted(server, "a", assistant({"type": "text", "text": "b"}), "c")
    assert block["content"] is None


@pytest.mark.parametrize(
    ("arrange", "code"),
    [
        (lambda b: ("go", assistant(b), "so?"), "compaction_block_misplaced"),
        (lambda b: (assistant(b, b), "so?"), "compaction_block_ambiguous"),
        (lambda b: (assistant({**b, "signature": "eA=="}), "so?"), "compaction_signature_invalid"),
        (lambda b: (assistant({**b, "content": "better"}), "so?"), "compaction_content_mismatch"),
    ],
)
def test_compaction_blocks_are_checked(server, arrange, code):
    block = compacted(server, *conversation(server))
    with pytest.raises(anthropic.BadRequestError) as caught:
        beta(server, *arrange(block))
    assert caught.value.error_code == code


def test_a_conversation_that_cannot_be_compacted_is_refused(server):
    with pytest.raises(anthropic.BadRequestError) as caught:
        compacted(server, "alone")
    assert caught.value.error_code == "compaction_nothing_to_summarize"
    with pytest.raises(anthropic.BadRequestError) as caught:
        compacted(server, *conversation(server)[:2])
    assert caught.value.error_code == "compaction_incomplete_turn"


def test_a_compaction_needs_its_beta_header(server):
    block = compacted(server, *conversation(server))
    message = refused(server, assistant(block), "so?", model=MODEL)
    assert "Input tag 'compaction' found using 'type' does not match" in message
