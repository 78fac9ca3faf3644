"""The bytes of a request: which blocks are unchanged, which are omitted, and in which order they
are.

The requests must also pass the checks of the API's rules that the laws use.
"""

import json
from dataclasses import replace

import pytest

from foldlog.log.blobs import BlobMissing
from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.processors.request.build import BUILDER, raw_blocks, request_bytes, request_sha256
from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import AGENT, EDITED
from foldlog.tests.kit.answers import Use, thinking
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.kit.history import History, opened, with_calls

LOOK, POST = Use("look", "{}", "a"), Use("post", "{}", "b")
SERVER_USE = '{"type":"server_tool_use","id":"srv1","name":"web_search","input":{}}'
SERVER_RESULT = '{"type":"web_search_tool_result","tool_use_id":"srv1","content":[]}'


def answered(*blocks: "str | Use", stop: str = "end_turn") -> History:
    """A session with a turn that has this answer, and with the request of the next turn."""
    s = opened()
    s.say("go", "m1")
    s.answer(*blocks, stop=stop)
    s.say("next", "m2")
    s.work()
    assert not findings(s.request_bytes())
    return s


# -- unchanged blocks (law 12, constraint 7) -------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        thinking("hm", "c2lnbmF0dXJl+/=="),
        thinking("", "only-a-signature"),
        '{"type":"thinking","thinking":"\\u00fc \\/ \\ud83d\\ude00","signature":"a\\u002bb"}',
        '{"type":"redacted_thinking","data":"EuYB+/opaque=="}',
        '{"signature":"first","thinking":"other order","type":"thinking","unknown":[1.50,1e2]}',
        '{"type":"a_block_of_the_future","x":{"deep":[1.0,1E5,-0]}}',
    ],
)
def test_S1_C_constraint_7_blocks_are_sent_byte_for_byte(block):
    s = answered(block, "words")
    assert block.encode() in s.request_bytes()


def test_S1_C_the_arguments_of_a_call_are_sent_byte_for_byte():
    s = with_calls(Use("look", '{"where" :  "th\\u0065re"}', "a"))
    s.result("1.1.0")
    s.work()
    assert b'"input":{"where" :  "th\\u0065re"}' in s.request_bytes()


def test_a_call_with_invalid_arguments_is_sent_with_an_empty_object_and_its_error():
    s = with_calls(Use("look", '{"where":', "a", error="not a JSON object: cut"))
    s.work()
    (use,) = s.request()["messages"][1]["content"]
    assert use["input"] == {} and "cut" in s.messages()[2][1][0]


# -- omitted blocks --------------------------------------------------------------------------------


def test_a_refusal_is_in_the_transcript_and_not_in_requests():
    s = answered("I should not say th", stop="refusal")
    assert s.messages() == [("user", ["go", "next"])]
    assert s.lines("answer")[0].name == "refusal"
    assert s.lines("answer")[0].body.inline


@pytest.mark.parametrize(
    ("blocks", "stop", "sent"),
    [
        (["so", LOOK], "max_tokens", ["so"]),
        ([thinking("cut", ""), "so"], "end_turn", ["so"]),
        (["so", thinking("hm")], "max_tokens", ["so"]),
        ([thinking("hm"), "so"], "end_turn", ["thinking", "so"]),
        (["so", answers.text(" \n"), answers.text("")], "end_turn", ["so"]),
        (["so", SERVER_USE], "pause_turn", None),
        (["so", SERVER_USE, SERVER_RESULT], "end_turn",
         ["so", "server_tool_use", "web_search_tool_result"]),
        ([], "end_turn", []),
        ([thinking("alone")], "end_turn", []),
        ([thinking("alone"), LOOK], "max_tokens", []),
    ],
)
def test_the_next_request_is_valid_after_any_answer(blocks, stop, sent):
    if sent is None:  # a paused answer is continued, unless the turn is cancelled
        s = opened()
        s.say("go")
        s.answer(*blocks, stop=stop)
        s.cancel()
        s.discharge("A1")
        s.work().say("next")
        s.work()
        sent = ["so"]
    else:
        s = answered(*blocks, stop=stop)
    assert not findings(s.request_bytes())
    answers_sent = [words for role, words in s.messages() if role == "assistant"]
    assert answers_sent == ([sent] if sent else [])


@pytest.mark.parametrize(
    ("blocks", "stop", "sent"),
    [
        (["so", answers.text(" \n"), thinking("hm"), "then"], "end_turn", ["so", "then"]),
        (["so", LOOK, thinking("hm"), "then"], "max_tokens", ["so", "then"]),
        ([thinking("a"), SERVER_USE, thinking("hm"), "then"], "pause_turn", ["thinking", "then"]),
    ],
)
def test_S1_C_thinking_after_an_omitted_block_is_omitted(blocks, stop, sent):
    """The signature of the thinking covers the omitted block. The defect: the API rejected every
    later request."""
    s = opened()
    s.say("go")
    s.answer(*blocks, stop=stop)
    s.cancel()
    s.discharge("A1") if stop == "pause_turn" else None
    s.work().say("next")
    s.work()
    assert s.messages()[1] == ("assistant", sent)


def test_S1_C_thinking_after_a_renamed_call_is_omitted():
    s = with_calls(LOOK)
    s.result("1.1.0")
    s.answer(thinking("a"), LOOK, thinking("b"), POST)
    s.result("1.2.0")
    s.result("1.2.1")
    s.work()
    assert s.messages()[3] == ("assistant", ["thinking", "use look", "use post"])


@pytest.mark.parametrize(
    ("blocks", "sent"),
    [
        ([thinking("signed"), "half a sent", LOOK, SERVER_USE], ["thinking", "half a sent"]),
        (
            [SERVER_USE, SERVER_RESULT, "half a sent", SERVER_USE.replace("srv1", "srv2")],
            ["server_tool_use", "web_search_tool_result", "half a sent"],
        ),
    ],
)
def test_S2_9_a_partial_answer_is_sent_without_its_incomplete_blocks(blocks, sent):
    s = opened()
    s.say("go")
    s.work()
    s.cancel()
    s.stopped(*blocks)
    s.work().say("on")
    s.work()
    assert s.messages()[1] == ("assistant", sent)
    assert not findings(s.request_bytes())


def test_a_partial_answer_of_a_retried_attempt_is_not_sent():
    s = opened()
    s.say("go")
    s.work()
    s.stopped("half a sent", why="the worker is ending")
    s.answer("whole").say("on")
    s.work()
    assert s.messages()[1] == ("assistant", ["whole"]) and not s.lines("partial")


def test_results_are_first_and_in_the_order_of_their_calls():
    s = with_calls(LOOK, POST, LOOK)
    s.say("by the way", when_busy="steer")
    for call in ("1.1.2", "1.1.0", "1.1.1"):
        s.result(call, call)
    s.work()
    assert s.messages()[2][1] == ["result: 1.1.0", "result: 1.1.1", "result: 1.1.2", "by the way"]


def test_bad_input_a_repeated_call_id_is_replaced():
    s = with_calls(Use("look", "{}", "x"), Use("look", "{}", "x"))
    s.result("1.1.0", "one")
    s.result("1.1.1", "two")
    s.answer(Use("look", "{}", "x"))
    s.result("1.2.0", "three")
    s.work()
    messages = s.request()["messages"]
    uses = [b["id"] for m in messages for b in m["content"] if b["type"] == "tool_use"]
    results = [
        (b["tool_use_id"], b["content"])
        for m in messages
        for b in m["content"]
        if b["type"] == "tool_result"
    ]
    assert len(set(uses)) == 3 and uses[0] == "x"
    assert results == list(zip(uses, ["one", "two", "three"], strict=True))


# -- the static prefix (law 11) --------------------------------------------------------------------


def test_the_prefix_is_written_once_and_again_after_the_agent_is_edited():
    s = opened()
    s.say("go")
    s.answer("ok").say("more")
    s.answer("ok")
    assert sum(isinstance(step.entry.event, ev.ContextSet) for step in s.steps) == 1
    assert s.request()["system"][0]["text"] == AGENT.system
    s.agent = EDITED
    s.say("more")
    s.work()
    assert sum(isinstance(step.entry.event, ev.ContextSet) for step in s.steps) == 2
    assert s.request()["system"][0]["text"] == EDITED.system
    assert "forbidden" not in str(s.request()["tools"])


def test_a_decision_for_another_prefix_is_stale():
    s = opened()
    s.say("go")
    prefix, decision = s.in_flight("N3")
    s.agent = EDITED
    other, _ = s.in_flight("N3")
    assert s.land([prefix, other, decision]) == ["accepted", "accepted", "stale"]
    s.work()
    assert s.request()["system"][0]["text"] == EDITED.system


# -- the format of a request -----------------------------------------------------------------------


def test_law_11_a_request_is_compact_json_in_a_fixed_order_with_cache_marks():
    s = answered("ok")
    raw = s.request_bytes()
    body = json.loads(raw)
    assert list(body) == ["model", "max_tokens", "system", "tools", "messages"]
    assert b": " not in raw.replace(b": the", b"") or b'": ' not in raw
    assert raw.count(b'"cache_control":{"type":"ephemeral"}') == 2
    assert "cache_control" not in str(body["system"]), "too short to be cached"
    marked = [m["content"][-1] for m in body["messages"] if m["role"] == "user"]
    assert all("cache_control" in block for block in marked)
    assert "cache_control" in body["messages"][-1]["content"][-1]
    claim = next(e.entry.event for e in reversed(s.steps) if isinstance(e.entry.event, ev.GenStart))
    assert claim.request_sha256 == request_sha256(raw)


def test_S2_3_content_in_the_blob_store_is_sent_and_estimated_by_its_size():
    s = opened()
    words = "a long story " * 100
    s.say(words, "m1")
    body = s.views.messages.received.last("m1").content
    assert body.inline is None and body.ref.bytes == len(f'[{{"type":"text","text":"{words}"}}]')
    s.work()
    assert s.messages() == [("user", [words])]
    assert estimated_tokens(s.views.context) >= body.ref.bytes / 4


def test_a_missing_blob_fails_the_request_and_not_the_fold():
    s = opened()
    s.say("a long story " * 100, "m1")
    s.work(before=("S1",))
    s.blobs.held.clear()
    with pytest.raises(BlobMissing):
        request_bytes(s.views, s.blobs.read)
    assert s.views.frozen is None


def test_S2_5_a_decision_with_an_unknown_strategy_is_stale():
    s = opened()
    s.say("go")
    prefix, (called, role) = s.in_flight("N3")
    other = replace(called, strategy="sliding_window_0")
    assert s.land([prefix, (other, role), (called, role)]) == ["accepted", "stale", "accepted"]


def test_a_request_without_prompt_and_tools_has_neither_field():
    s = opened(agent=type(AGENT)(name="helper", model="claude-test"))
    s.say("go")
    s.work()
    assert list(s.request()) == ["model", "max_tokens", "messages"]


def test_raw_blocks_are_the_unchanged_text_of_their_array():
    text = ' [ {"a" : 1.50} ,{"b":"]}\\" [{"}\n,\t{"c":[{}, []]} ] '
    assert [raw for _, raw in raw_blocks(text.encode())] == [
        '{"a" : 1.50}', '{"b":"]}\\" [{"}', '{"c":[{}, []]}',
    ]
    assert raw_blocks(b"[]") == () and BUILDER.startswith("window-")
