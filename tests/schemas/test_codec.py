"""The codec: foldlog and an independent Avro reader can read the events that foldlog writes."""

import dataclasses
import io
import json
from typing import Any

import avro.io
import avro.schema
import pytest
from hypothesis import given, settings, strategies as st

from foldlog.schemas import codec, events as ev
from foldlog.schemas.codec import (
    BY_NAME,
    HEAD_BYTES,
    MAGIC,
    ROWS,
    ChunkSeen,
    Undecodable,
    decode,
    digest,
    encode,
    entry_of,
    headers_for,
)
from foldlog.schemas.memory import MEMORY_TYPES
from foldlog.schemas.record import Record
from foldlog.schemas.topics import MEMORY_EVENTS, SESSION_EVENTS
from foldlog.tests.schemas.arbitrary import any_event, events_of, example_of
from foldlog.tests.schemas.shapes import shapes

# The heads of the first shapes. With other heads, records of that time could not be read.
HEADS = {
    "SESSION_OPENED": "c301cb0b002d932c1ae8",
    "MESSAGE_RECEIVED": "c30119f86099f2702772",
    "GEN_CHUNK": "c30150998a8617f8bf0c",
    "GEN_COMPLETE": "c3017ddabb0a8ecee35b",
    "TOOL_RESULT": "c301ea11872599bd98b0",
    "PARTITION_TAKEN": "c301cc7e82f6b3563545",
}

MEMORIES = {row.cls for row in MEMORY_TYPES}


def record_of(event: Any, writer: str = "sessions", **changes: Any) -> Record:
    headers = tuple(headers_for(event, writer))
    topic = MEMORY_EVENTS if type(event) in MEMORIES else SESSION_EVENTS
    record = Record(topic, 2, 7, 1_700_000_000_000, b"s1", encode(event), headers)
    return record._replace(**changes)


@pytest.mark.parametrize("name", BY_NAME)
def test_constraint_7_any_event_is_read_as_it_was_written(name):
    @settings(max_examples=25)
    @given(events_of(name))
    def law(event):
        value = encode(event)
        assert decode(value) == event
        assert encode(decode(value)) == value
        entry = entry_of(record_of(event, "x"), chunks=True)
        assert entry == codec.Entry("s1", 2, 7, 1_700_000_000_000, "x", event)

    law()


def plain(value: Any) -> Any:
    """A value in the form in which Apache Avro reads it."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", BY_NAME)
def test_an_independent_reader_reads_our_records(name):
    schema = avro.schema.parse(json.dumps(codec.schema_of(name)))

    @settings(max_examples=10)
    @given(events_of(name))
    def law(event):
        value = encode(event)
        assert value[:2] == b"\xc3\x01"
        assert int.from_bytes(value[2:HEAD_BYTES], "little") == crc_64_avro(schema)
        body = avro.io.BinaryDecoder(io.BytesIO(value[HEAD_BYTES:]))
        assert avro.io.DatumReader(schema).read(body) == plain(event)
        assert body.reader.read() == b""

    law()


def crc_64_avro(schema: Any) -> int:
    """The fingerprint, calculated by the formula in the Avro specification."""
    empty = 0xC15D213AA4D7A795
    table = []
    for n in range(256):
        fingerprint = n
        for _ in range(8):
            fingerprint = (fingerprint >> 1) ^ (empty & -(fingerprint & 1))
        table.append(fingerprint)
    result = empty
    for byte in canonical(json.loads(str(schema))).encode():
        result = (result >> 8) ^ table[(result ^ byte) & 0xFF]
    return result


def canonical(schema: Any, namespace: str = "") -> str:
    """The Parsing Canonical Form, made by the rules in the Avro specification."""
    if isinstance(schema, list):
        return f"[{','.join(canonical(branch, namespace) for branch in schema)}]"
    if isinstance(schema, str):
        primitive = schema in ("null", "boolean", "long", "bytes", "string")
        return f'"{schema if primitive or "." in schema else f"{namespace}.{schema}"}"'
    kind = schema["type"]
    if kind == "array":
        return f'{{"type":"array","items":{canonical(schema["items"], namespace)}}}'
    if kind not in ("record", "enum"):
        return canonical(kind, namespace)
    space = schema.get("namespace", namespace)
    head = f'{{"name":"{space}.{schema["name"]}","type":"{kind}",'
    if kind == "enum":
        return f'{head}"symbols":{json.dumps(schema["symbols"], separators=(",", ":"))}}}'
    fields = ",".join(
        f'{{"name":"{field["name"]}","type":{canonical(field["type"], space)}}}'
        for field in schema["fields"]
    )
    return f'{head}"fields":[{fields}]}}'


def test_the_head_of_a_record_is_the_magic_and_the_fingerprint():
    event = ev.PartitionTaken(role="models", owner="w1/1")
    value = encode(event)
    second = next(s for s in shapes() if (s.type, s.version) == ("PARTITION_TAKEN", 2))
    assert value[:HEAD_BYTES].hex() == f"c301{second.fingerprint}"
    # Two texts, each with its length as a zigzag varint, then an empty array.
    assert value[HEAD_BYTES:] == b"\x0cmodels" + b"\x08w1/1" + b"\x00"


@pytest.mark.parametrize("name", HEADS)
def test_the_heads_of_the_first_shapes_never_change(name):
    first = next(shape for shape in shapes() if (shape.type, shape.version) == (name, 1))
    assert (MAGIC + codec.fingerprint_of(first.schema)).hex() == HEADS[name]


def test_no_two_event_types_share_a_head():
    heads = {encode(example_of(row.cls))[:HEAD_BYTES] for row in ROWS}
    assert len(heads) == len(ROWS) and all(head[:2] == MAGIC for head in heads)


# -- headers and entries ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_headers_have_the_type_the_writer_and_must_understand(row):
    headers = headers_for(example_of(row.cls), "models")
    assert headers[:2] == [("t", row.name.encode()), ("w", b"models")]
    assert (("m", b"1") in headers) == row.must_understand
    assert [name for name, _ in headers].count("g") == (row.name == "GEN_CHUNK")


@pytest.mark.parametrize("row", MEMORY_TYPES, ids=lambda row: row.name)
def test_S0_8_a_memory_event_in_a_session_is_unreadable_and_freezes_nothing(row):
    record = record_of(example_of(row.cls), "tools", topic=SESSION_EVENTS)
    assert entry_of(record).event == codec.Unreadable(
        row.name, False, f"{row.name} belongs into memory-events, not into session-events"
    )


def test_a_chunk_is_decoded_only_on_request():
    chunk = ev.GenChunk(turn=3, step=2, attempt=1, seq=0, block=0, kind="text", delta="hi")
    record = record_of(chunk, "models")
    assert entry_of(record).event == ChunkSeen(3, 2, 1)
    assert entry_of(record._replace(value=b"not decoded")).event == ChunkSeen(3, 2, 1)
    assert entry_of(record, chunks=True).event == chunk


def test_a_chunk_is_recognized_with_its_headers_in_any_order():
    chunk = ev.GenChunk(turn=3, step=2, attempt=1, seq=0, block=0, kind="text", delta="hi")
    headers = tuple(reversed(headers_for(chunk, "models"))) + (("traceparent", b"00"),)
    entry = entry_of(record_of(chunk, headers=headers))
    assert entry.event == ChunkSeen(3, 2, 1) and entry.writer == "models"


def test_a_header_with_another_type_than_the_value_is_unreadable():
    cancel = ev.SessionTerminated(reason="x", by_user="ana")
    headers = (("t", b"GEN_COMPLETE"), ("w", b"models"))
    event = entry_of(record_of(cancel, headers=headers)).event
    assert isinstance(event, codec.Unreadable) and event.must_understand
    assert "SessionTerminated" in event.why


@given(any_event(), any_event())
@settings(max_examples=60)
def test_law_8_a_digest_depends_on_the_fields_only(one, other):
    assert len(digest(one)) == 8
    assert digest(decode(encode(one))) == digest(one)
    if type(one) is type(other):
        assert (digest(one) == digest(other)) == (one == other)


# -- events that cannot be written -----------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"turn": 2**63},
        {"turn": "1"},
        {"turn": None},
        {"channel": 5},
        {"channel": "half \ud800"},
    ],
)
def test_a_field_that_does_not_match_its_schema_is_not_written(fields):
    whole = {"turn": 1, "step": 1, "channel": "sse", **fields}
    with pytest.raises(ValueError):
        encode(ev.GenSent(**whole))


@given(st.sampled_from(["maybe", "", "OK"]))
@settings(max_examples=3)
def test_a_word_outside_its_enum_is_not_written(word):
    event = dataclasses.replace(example_of(ev.ToolResult), outcome=word)
    with pytest.raises(ValueError):
        encode(event)


def test_undecodable_values_raise_with_the_reason():
    with pytest.raises(Undecodable, match="unknown schema fingerprint 7061"):
        decode(b"\xc3\x01pappnase" + b"x" * 20)
    with pytest.raises(Undecodable, match="not Avro single-object encoding: 0 bytes"):
        decode(b"")


def test_a_record_in_confluent_framing_is_undecodable_and_the_reason_shows_its_head():
    framed = b"\0" + (7).to_bytes(4, "big") + encode(example_of(ev.ToolResult))[HEAD_BYTES:]
    with pytest.raises(Undecodable) as raised:
        decode(framed)
    assert str(raised.value) == (
        f"not Avro single-object encoding: {len(framed)} bytes {framed[:10]!r}"
    )
