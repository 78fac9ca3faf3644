"""Answers with odd blocks, names and ids: every later request is legal, and the log keeps them."""

import json
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.request.build import request_bytes
from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.kit.history import History, opened

NONE = object()


def replied(content: bytes, calls: int, stop: str) -> History:
    """A session whose log has an answer with this content and this number of calls, all of which
    have a result, and the next request."""
    s = opened()
    s.say("go")
    s.work()
    turn, step, attempt = s.place
    proposed = tuple(
        ev.ProposedCall(index=n, call_id="", name="gone", args=ev.Body(inline=b"{}"),
                        args_sha256=sha256(b"{}").hexdigest())
        for n in range(calls)
    )
    s.append(
        ev.GenComplete(turn=turn, step=step, attempt=attempt, content=ev.Body(inline=content),
                       calls=proposed, stop_reason=stop, response_id="r", model="m",
                       usage=answers.usage()),
        "models",
    )
    s.work()  # an unknown tool: its call ends with an error at once
    if not s.turn.open:
        s.say("next")
        s.work()
    return s


def use(id=NONE, name="t", given=NONE) -> dict:
    fields = {"type": "tool_use", "id": id, "name": name, "input": {} if given is NONE else given}
    return {key: value for key, value in fields.items() if value is not NONE}


def pairs(request: dict) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results in a request."""
    blocks = [block for message in request["messages"] for block in message["content"]]
    return (
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


@pytest.mark.parametrize(
    ("blocks", "ids"),
    [
        ([use()], ["call-1-1-0"]),
        ([use(None), use(None)], ["call-1-1-0", "call-1-1-1"]),
        ([use(5), use(["x"]), use("")], ["call-1-1-0", "call-1-1-1", "call-1-1-2"]),
        ([use("functions.Bash:0")], ["functions_Bash_0"]),
        ([use("a|1"), use("a:1"), use("a_1")], ["a_1", "a_1-1-1-1", "a_1-1-1-2"]),
        ([use("x" * 129)], ["x" * 128]),
        ([use("toolu_1"), use("toolu_1")], ["toolu_1", "toolu_1-1-1-1"]),
        ([use("ü")], ["_"]),
        ([use("a\n")], ["a_"]),
    ],
)
def test_S1_ids_are_legal_and_unique_and_their_results_follow(blocks, ids):
    s = replied(json.dumps(blocks).encode(), len(blocks), "tool_use")
    assert not findings(s.request_bytes())
    assert pairs(s.request()) == (ids, ids)
    stored = s.views.context.fragments[1].body
    assert stored is not None and json.loads(stored.inline or b"") == blocks


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("x" * 200, "x" * 200), ("x" * 201, "x" * 200), ("", "unnamed"), (None, "unnamed"),
        (7, "unnamed"), ("a b.c", "a_b_c"), ("mcp__x-Y_9", "mcp__x-Y_9"), ("\n", "_"),
    ],
)
def test_S1_names_of_tools_are_legal(name, sent):
    s = replied(json.dumps([use("toolu_1", name)]).encode(), 1, "tool_use")
    assert not findings(s.request_bytes())
    (call,) = [b for m in s.request()["messages"] for b in m["content"] if b["type"] == "tool_use"]
    assert (call["id"], call["name"]) == ("toolu_1", sent)


@pytest.mark.parametrize("given", [None, 5, "x", [1]])
def test_an_input_that_is_no_object_becomes_an_empty_one(given):
    s = replied(json.dumps([use("toolu_1", given=given)]).encode(), 1, "tool_use")
    assert not findings(s.request_bytes())


def sent(blocks: list | bytes, stop: str = "end_turn") -> list[dict]:
    """The answer in the next request."""
    content = blocks if isinstance(blocks, bytes) else json.dumps(blocks).encode()
    s = replied(content, int(stop == "tool_use"), stop)
    assert not findings(s.request_bytes())
    return [b for m in s.request()["messages"] if m["role"] == "assistant" for b in m["content"]]


@pytest.mark.parametrize("citations", ["x", 5, {}, [5], [None], [{"type": "a"}, []]])
def test_S1_a_text_with_citations_of_odd_form_is_sent_without_them(citations):
    odd = {"type": "text", "text": "a", "citations": citations}
    signed = {"type": "thinking", "thinking": "b", "signature": "s"}
    after = {"type": "text", "text": "c"}
    assert sent([odd, signed, after])[:1] == [{"type": "text", "text": "a"}]
    assert signed not in sent([odd, signed, after]), "its signature covers the citations"


@pytest.mark.parametrize("citations", [None, [], [{"type": "char_location", "cited_text": "a"}]])
def test_citations_of_the_form_of_the_api_are_sent_as_they_came(citations):
    text = {"type": "text", "text": "a", "citations": citations}
    assert text.items() <= sent([text])[0].items()


def test_S1_a_result_of_the_providers_tools_follows_its_own_call_once():
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    text = {"type": "text", "text": "a"}
    kinds = [block["type"] for block in sent([call, result, result, call, result, text])]
    assert kinds == [call["type"], result["type"], "text"]
    own = {**result, "tool_use_id": "toolu_1"}
    assert [b["type"] for b in sent([use("toolu_1"), own], "tool_use")] == ["tool_use"]


@pytest.mark.parametrize("field", ["name", "input", "id", "caller"])
def test_S1_half_a_surrogate_pair_in_an_old_log_gives_a_request(field):
    call = {**use("a b"), field: {"a": "\ud800"} if field == "input" else "\ud800"}
    (block,) = sent([call], "tool_use")
    assert "\ud800" not in json.dumps(block, ensure_ascii=False)


DEEP = b'[{"type":"new","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}]"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"5", b'"["', b"[", b'[{"type":"text"', b"\xff[]", b"[1,null,[]]", DEEP,
     b'[{"type":"text","text":NaN}]', b'[{"type":[]}]', b'[{"type":"image","source":{}}]',
     b'[{"type":"tool_result","tool_use_id":"a","content":"x"}]', b'[{}]',
     b'[{"type":"web_search_tool_result","tool_use_id":"gone","content":[]}]',
     b'[{"type":"server_tool_use","id":null,"name":"s","input":{}}]',
     b'[{"type":"thinking","thinking":null,"signature":"s"},{"type":"text","text":"a"}]'],
    ids=str,
)
@pytest.mark.parametrize("calls", [0, 1])
def test_S1_any_content_in_the_log_gives_a_legal_request(content, calls):
    s = replied(content, calls, "tool_use" if calls else "end_turn")
    assert not findings(s.request_bytes())


odd = st.none() | st.integers() | st.booleans() | st.text(max_size=4) | st.just([]) | st.just({})
kinds = st.sampled_from(
    ["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use",
     "web_search_tool_result", "mcp_tool_result", "tool_result", "image"]
)
fields = st.dictionaries(
    st.sampled_from("text thinking signature data id name input tool_use_id".split()),
    odd | st.sampled_from(["a", "s1", "toolu_1"]), max_size=8,
)
odd_blocks = st.lists(
    odd | st.builds(lambda kind, more: {"type": kind, **more}, kinds | odd, fields), max_size=5
)


@given(odd_blocks, st.sampled_from(["tool_use", "end_turn", "max_tokens"]))
def test_S1_any_blocks_give_a_legal_request(blocks, stop):
    uses = [b for b in blocks if isinstance(b, dict) and b.get("type") == "tool_use"]
    calls = len(uses) if stop == "tool_use" else 0
    content = json.dumps(blocks, ensure_ascii=False).encode("utf-8", "replace")
    s = replied(content, calls, stop)
    assert not findings(request_bytes(s.views, s.blobs.read))
