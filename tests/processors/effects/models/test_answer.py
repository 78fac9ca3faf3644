"""The answer is rebuilt from its deltas byte for byte, wherever these were cut and whatever unknown
events lie between.

Rows: S1.C, constraint 7.
"""

import json
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.effects.models.answer import ANSWER_CHARS_MAX, Answer
from foldlog.processors.effects.models.blocks import DEPTH_MAX, why_no_arguments
from foldlog.processors.effects.models.errors import AttemptFailed
from foldlog.processors.effects.models.json_bytes import Malformed
from foldlog.schemas.enums import ChunkKind

START = {"id": "msg_1", "model": "m-1", "usage": {"input_tokens": 3, "output_tokens": 1}}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def wire(event, escaped=False):
    """An event in the form in which it is sent. `escaped`: whether non-ASCII characters are
    escaped; surrogate halves always are."""
    text = json.dumps(event, ensure_ascii=escaped)
    return text.encode("utf-8", "backslashreplace").decode()


def answer_of(*events, escaped=False):
    answer, shown = Answer(), []
    for event in events:
        shown += answer.feed("", event if isinstance(event, str) else wire(event, escaped))
    return answer, shown


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


def finish(reason="end_turn", **usage):
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def call_events(index, raw, *, id="toolu_1", name="read", given="{}", pieces=None):
    block = f'{{"type":"tool_use","id":{json.dumps(id)},"name":{json.dumps(name)},"input":{given}}}'
    begin = f'{{"type":"content_block_start","index":{index},"content_block":{block}}}'
    parts = [raw] if pieces is None else pieces
    return [begin, *(delta(index, "input_json_delta", partial_json=p) for p in parts), stop(index)]


# blocks cut anywhere ----------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.builds(
    lambda value, ascii_, indent: json.dumps(value, ensure_ascii=ascii_, indent=indent),
    st.dictionaries(texts, json_values, max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
)


@st.composite
def cut(draw, text):
    """The pieces of a text; some may be empty, and a piece may end between two surrogate halves."""
    utf16 = text.encode("utf-16-le")
    places = draw(st.lists(st.integers(0, len(utf16) // 2), max_size=5))
    ends = [0, *sorted(places), len(utf16) // 2]
    return [utf16[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(ends)]


@st.composite
def blocks(draw, index):
    """The (events, JSON, visible text) of one block: the events that stream it, and the JSON that
    must result from them."""
    kind = draw(st.sampled_from(["text", "thinking", "redacted", "tool", "server", "unknown"]))
    text = draw(texts)
    if kind == "text":
        pieces = [delta(index, "text_delta", text=p) for p in draw(cut(text))]
        block = {"type": "text", "text": text}
        return [start(index, {**block, "text": ""}), *pieces, stop(index)], compact(block), text
    if kind == "thinking":
        signature = draw(texts)
        block = {"type": "thinking", "thinking": text, "signature": signature}
        events = [start(index, {**block, "thinking": "", "signature": ""})]
        events += [delta(index, "thinking_delta", thinking=p) for p in draw(cut(text))]
        events += [delta(index, "signature_delta", signature=signature), stop(index)]
        return events, compact(block), text
    if kind == "redacted":
        block = {"type": "redacted_thinking", "data": text}
        begin = start(index, block)
        return [begin, stop(index)], compact(block), ""
    if kind in ("tool", "server"):
        raw = draw(arguments)
        type_ = "tool_use" if kind == "tool" else "server_tool_use"
        name = draw(texts)
        head = {"type": type_, "id": draw(texts), "name": name}
        events = [start(index, {**head, "input": {}})]
        events += [delta(index, "input_json_delta", partial_json=p) for p in draw(cut(raw))]
        return [*events, stop(index)], compact(head)[:-1] + f',"input":{raw}}}', name + raw
    block = {"type": "future", "payload": draw(json_values), "empty": None}
    pretty = json.dumps(block, ensure_ascii=False, indent=1)
    begin = f'{{"type":"content_block_start","index":{index},"content_block":{pretty}}}'
    return [begin, stop(index)], compact(block), ""


noise = st.lists(
    st.sampled_from(
        [
            {"type": "future_event", "index": 0, "x": [1]},
            delta(0, "future_delta", future="x"),
            delta(99, "text_delta", text="for a block that never began"),
            {"type": "message_start", "message": {"id": "msg_2", "model": "other"}},
            '{"x": 1}',
        ]
    ),
    max_size=3,
)


@given(st.data(), st.booleans())
def test_S1_C_constraint_7_blocks_are_rebuilt_byte_for_byte_from_any_deltas(data, escaped):
    made = [data.draw(blocks(index)) for index in range(data.draw(st.integers(0, 4)))]
    events = [{"type": "message_start", "message": START}]
    for of_block, _, _ in made:
        for event in of_block:
            events += [event, *data.draw(noise)]
    events += [finish(), {"type": "message_stop"}, finish("max_tokens"), stop(0)]
    answer, shown = answer_of(*events, escaped=escaped)
    if not escaped:  # else ids and signatures keep their escapes, and only the values are equal
        assert answer.content() == ("[" + ",".join(block for _, block, _ in made) + "]").encode()
    assert json.loads(answer.content()) == [json.loads(block) for _, block, _ in made]
    for index, (_, _, expected) in enumerate(made):
        text = "".join(piece.text for piece in shown if piece.block == index)
        assert text.encode("utf-16", "surrogatepass").decode("utf-16") == expected
    assert (answer.response_id, answer.model, answer.stop_reason) == ("msg_1", "m-1", "end_turn")


odd = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([2**31, 0.0, {}, []])
half_texts = st.text(st.characters() | st.characters(categories=("Cs",)), max_size=3)
kinds = st.sampled_from(["text_delta", "thinking_delta", "input_json_delta", "citations_delta"])
of_text = st.sampled_from(["text", "thinking", "partial_json"])


def mostly(usual):
    return st.integers(0, 9).flatmap(lambda n: usual if n else odd)


@given(
    index=mostly(st.integers(0, 1)),
    kind=mostly(kinds),
    fields=st.dictionaries(of_text, mostly(half_texts), max_size=3),
    escaped=st.booleans(),
)
def test_a_delta_decoded_at_once_has_the_effect_of_one_read_field_by_field(
    index, kind, fields, escaped
):
    """Without its type, an event is read field by field, and its name has the type."""

    def effect(event):
        answer, _ = answer_of(start(0, {"type": "text"}), start(1, {"type": "tool_use"}))
        try:
            shown = answer.feed("content_block_delta", wire(event, escaped))
        except Malformed:
            shown = None
        return shown, answer.content()

    event = {"index": index, "delta": {"type": kind, **fields}}
    assert effect({"type": "content_block_delta", **event}) == effect(event)


def test_S1_C_unknown_fields_numbers_and_escapes_are_unchanged():
    block = (
        r'{"type": "future", "n": [1.10, 1e400, -0.0, 12345678901234567890123], "s": "\u00e9\/"}'
    )
    answer, _ = answer_of(f'{{"type":"content_block_start","index":0,"content_block":{block}}}')
    assert answer.content() == (
        rb'[{"type":"future","n":[1.10,1e400,-0.0,12345678901234567890123],"s":"\u00e9\/"}]'
    )


def test_S1_C_the_initial_text_of_a_block_is_shown_and_kept():
    answer, shown = answer_of(
        start(0, {"type": "text", "text": "He", "citations": [{"n": 1}]}),
        delta(0, "text_delta", text="llo"),
        delta(0, "citations_delta", citation={"n": 2}),
    )
    assert answer.content() == b'[{"type":"text","text":"Hello","citations":[{"n":1},{"n":2}]}]'
    assert "".join(piece.text for piece in shown) == "Hello"


def test_S1_C_omitted_thinking_keeps_its_empty_block_and_signature():
    answer, _ = answer_of(
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "signature_delta", signature="EqQB+/=="),
        stop(0),
        finish(),
    )
    assert answer.content() == b'[{"type":"thinking","thinking":"","signature":"EqQB+/=="}]'


def test_a_compaction_delta_sets_the_fields_of_its_block():
    fields = {"content": "short", "encrypted_content": "e"}
    begin = start(0, {"type": "compaction", "content": None})
    answer, _ = answer_of(begin, delta(0, "compaction_delta", **fields), stop(0))
    assert json.loads(answer.content()) == [{"type": "compaction", **fields}]


def test_events_of_a_closed_or_known_block_are_ignored():
    answer, shown = answer_of(
        start(0, {"type": "text", "text": ""}),
        delta(0, "text_delta", text="a"),
        stop(0),
        delta(0, "text_delta", text="b"),
        start(0, {"type": "text", "text": "c"}),
        *call_events(1, "", given='{"n":1}', pieces=[]),
        stop(1),
    )
    assert json.loads(answer.content())[0] == {"type": "text", "text": "a"}
    assert "".join(piece.text for piece in shown) == 'aread{"n":1}'


def test_blocks_are_ordered_by_their_index():
    answer, _ = answer_of(
        start(1, {"type": "text", "text": "b"}), start(0, {"type": "text", "text": "a"})
    )
    assert [block["text"] for block in json.loads(answer.content())] == ["a", "b"]


@pytest.mark.parametrize("field", ["text", "signature", "tool", "unknown"])
def test_half_a_surrogate_pair_is_replaced(field):
    half = "a\\ud83d!"
    begin = {
        "text": f'{{"type":"text","text":"{half}"}}',
        "signature": f'{{"type":"thinking","thinking":"","signature":"{half}"}}',
        "tool": f'{{"type":"tool_use","id":"{half}","name":"{half}","input":{{}}}}',
        "unknown": f'{{"type":"future","x":["{half}",1]}}',
    }[field]
    answer, _ = answer_of(
        f'{{"type":"content_block_start","index":0,"content_block":{begin}}}', finish("tool_use")
    )
    assert "a\ufffd!" in answer.content().decode()
    assert "\\ud83d" not in answer.content().decode()
    assert all(call.call_id == call.name == "a\ufffd!" for call in answer.calls())


# calls ------------------------------------------------------------------------------------------


def test_calls_are_numbered_over_tool_use_blocks_and_keep_their_raw_text():
    raw = '{ "path" : "\\u00e9", "n": 1.0 }'
    answer, _ = answer_of(
        start(0, {"type": "server_tool_use", "id": "srv", "name": "search", "input": {}}),
        *call_events(1, raw, pieces=[raw[:9], raw[9:]]),
        *call_events(2, "", id="toolu_2", name="now", pieces=[""]),
        finish("tool_use"),
    )
    first, second = answer.calls()
    assert (first.index, first.call_id, first.name) == (0, "toolu_1", "read")
    assert first.args == raw.encode() and first.error is None
    assert first.args_sha256 == sha256(raw.encode()).hexdigest()
    assert (second.index, second.args, second.error) == (1, b"{}", None)
    assert b'"input":' + raw.encode() in answer.content()


def test_a_call_id_used_twice_in_a_response_is_two_calls():
    answer, _ = answer_of(*call_events(0, "{}"), *call_events(1, "{}"), finish("tool_use"))
    assert [(c.index, c.call_id) for c in answer.calls()] == [(0, "toolu_1"), (1, "toolu_1")]


def test_a_call_id_is_cut_at_128_characters_except_in_the_content():
    answer, _ = answer_of(*call_events(0, "{}", id="i" * 300), finish("tool_use"))
    assert answer.calls()[0].call_id == "i" * 128
    assert json.loads(answer.content())[0]["id"] == "i" * 300


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "pause_turn", "refusal", "odd"])
def test_only_tool_use_proposes_calls(reason):
    assert answer_of(*call_events(0, '{"a":1}'), finish(reason))[0].calls() == []


def test_an_input_without_deltas_is_kept_and_shown():
    answer, shown = answer_of(
        *call_events(0, "", given='{"a": 1.0}', pieces=[]), finish("tool_use")
    )
    assert answer.calls()[0].args == b'{"a": 1.0}'
    assert [(piece.kind, piece.text) for piece in shown] == [
        (ChunkKind.TOOL_NAME, "read"),
        (ChunkKind.TOOL_INPUT, '{"a": 1.0}'),
    ]


BAD_ARGUMENTS = [
    '{"a": 1',
    '{"path": "a", oops',
    "[1]",
    '"text"',
    "null",
    "12",
    '{"a": NaN}',
    '{"a": "\x01"}',
    '{"a": "\\ud83d"}',
    '{"a": "\ud83d"}',
    '{"a": "\\\ud800"}',
    "\ufeff{}",
    '{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1),
    '{"a":[' + "9" * 5_000 + "]}",
    '{"a":' + "[" * 50_000 + "]" * 50_000 + "}",
]


@pytest.mark.parametrize("raw", BAD_ARGUMENTS, ids=lambda raw: ascii(raw[:20]))
def test_arguments_that_are_not_an_object_keep_their_raw_text_in_the_call_only(raw):
    answer, _ = answer_of(*call_events(0, raw), finish("tool_use"))
    (call,) = answer.calls()
    assert call.error and "\n" not in call.error
    assert call.args == raw.encode("utf-8", "backslashreplace")
    assert json.loads(answer.content())[0]["input"] == {}


def test_arguments_within_the_depth_limit_are_accepted():
    assert why_no_arguments('{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX) is None
    assert why_no_arguments('{"a": "' + "[" * 500 + '"}') is None


def test_S2_9_content_so_far_has_text_but_no_incomplete_calls():
    whole = call_events(0, '{"a":1}')
    open_call = call_events(1, '{"b":', id="toolu_2")[:-1]
    answer, _ = answer_of(
        *whole,
        *open_call,
        start(2, {"type": "text", "text": ""}),
        delta(2, "text_delta", text="hal"),
    )
    kept = json.loads(answer.content_so_far())
    assert [block["type"] for block in kept] == ["tool_use", "text"]
    assert kept[1]["text"] == "hal"
    assert answer.stop_reason is None


# usage, errors, malformed events ----------------------------------------------------------------


def test_usage_totals_overwrite_each_other_and_are_split_into_four_inputs():
    first = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    answer, _ = answer_of(
        {"type": "message_start", "message": {**START, "usage": first}},
        finish(output_tokens=5, input_tokens=None),
        finish(output_tokens=9, input_tokens=11),
        finish(output_tokens=9, input_tokens=None),
    )
    usage = answer.usage()
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (11, 7, 9)
    assert (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens) == (60, 40)
    assert usage.raw == compact({**first, "input_tokens": 11, "output_tokens": 9}).encode()


FIRST_USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 7,
    "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
    "output_tokens": 5,
    "iterations": [{"type": "compaction", "input_tokens": 3, "output_tokens": 2}],
}


@pytest.mark.parametrize("nothing", [0, 0.0, None, -5, "0", True, {}, []])
def test_a_later_zero_never_overwrites_an_earlier_count(nothing):
    """Some gateways send all totals again with the end of the answer, as zeros."""
    begun = {"type": "message_start", "message": {**START, "usage": FIRST_USAGE}}
    expected = answer_of(begun)[0].usage()
    flat = {**dict.fromkeys(FIRST_USAGE, nothing), "iterations": []}
    split = dict.fromkeys(FIRST_USAGE["cache_creation"], nothing)
    answer, _ = answer_of(begun, finish(**flat), finish(cache_creation=split))
    assert answer.usage() == expected
    assert expected.counts == (13, 7, 60, 40, 7)


def test_a_later_zero_in_the_split_of_cache_writes_leaves_the_other_part():
    begun = {"type": "message_start", "message": {**START, "usage": FIRST_USAGE}}
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 50}
    usage = answer_of(begun, finish(cache_creation=split, output_tokens=9))[0].usage()
    assert usage.counts == (13, 7, 60, 50, 11)


def test_cache_writes_without_a_split_have_the_default_lifetime():
    usage = answer_of(finish(cache_creation_input_tokens=5, cache_creation=None))[0].usage()
    assert (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens) == (5, 0)


def test_missing_usage_is_unknown_and_invalid_numbers_are_zero():
    assert Answer().usage() is None
    odd = finish(input_tokens=-1, output_tokens="7", cache_read_input_tokens=True)
    usage = answer_of(odd)[0].usage()
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (0, 0, 0)


LONG = "9" * 5_000  # Python cannot read it


@pytest.mark.parametrize(
    "usage",
    ['{"input_tokens":LONG}', '{"iterations":[{"type":"compaction","output_tokens":LONG}]}',
     '{"cache_creation":{"ephemeral_1h_input_tokens":LONG}}', '{"other":LONG}',
     '{"iterations":[5,null,{"type":LONG}]}'],
)
def test_S1_no_number_in_the_usage_prevents_an_outcome(usage):
    """The defect: the count was read with the outcome, which raised, and so did the failure."""
    answer = Answer()
    raw = usage.replace("LONG", LONG)
    answer.feed("", f'{{"type":"message_start","message":{{"usage":{raw}}}}}')
    assert answer.usage().counts == (0, 0, 0, 0, 0)
    assert json.loads(raw, parse_int=str) == json.loads(answer.usage().raw, parse_int=str)


def refused(**delta):
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}}


def test_S1_the_reason_of_a_refusal_survives_a_later_event_without_it():
    details = {"category": "cyber", "explanation": " why "}
    begun = refused(stop_reason="refusal", stop_details=details)
    for later in ({}, {"stop_reason": "refusal"}, {"stop_reason": None, "stop_details": None}):
        assert answer_of(begun, refused(**later))[0].refusal == ("cyber", "why")
    assert answer_of(refused(stop_details=details), begun)[0].refusal == ("cyber", "why")
    assert answer_of(begun, refused(stop_reason="end_turn"))[0].refusal == ("", "")
    blank = refused(stop_reason="refusal", stop_details={"category": " "})
    assert answer_of(blank)[0].refusal == ("unspecified", "")


def test_an_error_event_fails_the_attempt_with_its_type_and_code():
    error = {"type": "overloaded_error", "message": "full", "details": {"error_code": "c"}}
    with pytest.raises(AttemptFailed) as raised:
        answer_of({"type": "error", "error": error, "request_id": "req_1"})
    trouble = raised.value.trouble
    assert (trouble.type, trouble.code, trouble.status) == ("overloaded_error", "c", 200)
    assert (trouble.message, trouble.request_id) == ("full", "req_1")
    with pytest.raises(AttemptFailed):
        Answer().feed("error", '{"error": "odd"}')


@pytest.mark.parametrize(
    "data",
    [
        '{"type":"content_block_start","index":',
        "[]",
        "null",
        '{"type":"ping","n":NaN}',
        '{"type":"content_block_start","index":"0","content_block":{}}',
        '{"type":"content_block_start","index":-1,"content_block":{}}',
        '{"type":"content_block_start","content_block":{}}',
        '{"type":"content_block_start","index":0,"content_block":[]}',
        '{"type":"message_start","message":7}',
        "[" * 100_000,
    ],
    ids=lambda data: data[:40],
)
def test_an_event_that_cannot_be_parsed_is_malformed(data):
    with pytest.raises(Malformed):
        answer_of(data)


@pytest.mark.parametrize(
    "block",
    [
        {"type": 5}, {"text": "a"}, {"type": None}, {"type": "text", "text": 5},
        {"type": "thinking", "thinking": ["a"], "signature": "s"},
        {"type": "thinking", "thinking": "a", "signature": 1},
    ],
    ids=str,
)
def test_S1_a_block_that_no_text_can_be_made_of_is_malformed(block):
    with pytest.raises(Malformed):
        answer_of(start(0, block))


@pytest.mark.parametrize("value", [5, ["a"], {"a": 1}, True])
@pytest.mark.parametrize(
    ("kind", "field"),
    [("text_delta", "text"), ("thinking_delta", "thinking"), ("input_json_delta", "partial_json")],
)
def test_S1_a_delta_without_text_is_malformed(kind, field, value):
    with pytest.raises(Malformed, match="not a JSON string"):
        answer_of(start(0, {"type": "text", "text": ""}), delta(0, kind, **{field: value}))


def test_S1_null_in_place_of_a_text_is_no_text():
    answer, _ = answer_of(
        start(0, {"type": "text", "text": None}), delta(0, "text_delta", text=None), stop(0),
        start(1, {"type": "thinking", "thinking": None, "signature": None}), stop(1), finish(),
    )
    text = {"type": "text", "text": ""}
    assert json.loads(answer.content()) == [
        text, {"type": "thinking", "thinking": "", "signature": ""}
    ]


@pytest.mark.parametrize(
    "call",
    [{}, {"id": None, "name": None}, {"id": 5, "name": [1]}, {"id": ""}, {"input": "x"}],
    ids=str,
)
def test_S1_a_call_of_odd_shape_is_a_call_whose_content_is_kept(call):
    answer, _ = answer_of(start(0, {"type": "tool_use", **call}), stop(0), finish("tool_use"))
    (made,) = answer.calls()
    assert (made.call_id, made.name) == ("", "")
    (kept,) = json.loads(answer.content())
    assert kept.items() >= {k: v for k, v in call.items() if k != "input"}.items()
    assert kept["input"] == {}


def test_S1_long_words_of_the_provider_are_cut_where_they_are_labels():
    """A record of more than 1 MB could never be written."""
    long = "x" * 2_000_000
    answer, _ = answer_of(
        {"type": "message_start", "message": {"id": long, "model": long}},
        start(0, {"type": "tool_use", "id": long, "name": long}), stop(0), finish("tool_use"),
    )
    (call,) = answer.calls()
    assert max(map(len, (answer.response_id, answer.model, call.call_id, call.name))) <= 1_000


def test_S1_a_block_nested_too_deeply_is_malformed():
    for levels, fits in ((DEPTH_MAX - 3, True), (DEPTH_MAX + 1, False), (200_000, False)):
        deep = f'{{"type":"new","x":{"[" * levels}{"]" * levels}}}'
        event = f'{{"type":"content_block_start","index":0,"content_block":{deep}}}'
        if fits:
            answer_of(event)
            continue
        with pytest.raises(Malformed):
            answer_of(event)


def test_an_answer_over_the_size_limit_is_malformed():
    answer = Answer()
    answer._chars = ANSWER_CHARS_MAX
    with pytest.raises(Malformed):
        answer.feed("", "{}")
