"""Whatever bytes are in the log, decode raises nothing but Undecodable, and entry_of never
raises."""

import io

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given, settings, strategies as st

from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.schemas import codec, events as ev
from foldlog.schemas.codec import BY_NAME, HEAD_BYTES, ROWS, Undecodable, decode, encode, entry_of
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.schemas.arbitrary import any_event, example_of

HEADS = [encode(example_of(row.cls))[:HEAD_BYTES] for row in ROWS]
NAMES = [row.name.encode() for row in ROWS]
# The length 2^62 as a varint: longer than any record.
GIANT = b"\xfe" + b"\xff" * 7 + b"\xff\x01"


def event_or_undecodable(value: bytes) -> None:
    """Check that decode returns an event that can be encoded, or raises Undecodable."""
    try:
        event = decode(value)
    except Undecodable as error:
        assert str(error)
        return
    assert decode(encode(event)) == event


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x00")
@example(b"\xc3\x01")
@example(b"\x00\x00\x00\x00\x01framed by a registry")
def test_random_bytes_are_undecodable(value):
    event_or_undecodable(value)


@settings(max_examples=400)
@given(st.sampled_from(HEADS), st.binary(max_size=120))
def test_a_known_head_before_random_bytes_is_an_event_or_undecodable(head, body):
    event_or_undecodable(head + body)


@settings(max_examples=60)
@given(any_event(), st.data())
def test_a_truncated_record_is_undecodable(event, data):
    value = encode(event)
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(Undecodable):
        decode(value[:cut])


@pytest.mark.parametrize("cls", [row.cls for row in ROWS], ids=lambda cls: cls.__name__)
def test_the_reason_is_the_same_in_every_process(cls):
    """It is in the view of a frozen session, so the address of an object would make views differ.
    """
    value = encode(example_of(cls))
    for end in range(HEAD_BYTES, len(value)):
        with pytest.raises(Undecodable) as caught:
            decode(value[:end])
        assert "0x" not in str(caught.value)


@settings(max_examples=60)
@given(any_event(), st.binary(min_size=1, max_size=5))
def test_a_record_with_trailing_bytes_is_undecodable(event, more):
    with pytest.raises(Undecodable, match="left over"):
        decode(encode(event) + more)


@settings(max_examples=200)
@given(any_event(), st.data())
def test_a_record_with_a_flipped_bit_is_an_event_or_undecodable(event, data):
    value = bytearray(encode(event))
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    event_or_undecodable(bytes(value))


@pytest.mark.parametrize("head", HEADS, ids=[row.name for row in ROWS])
@pytest.mark.parametrize("times", [1, 4, 40])
def test_a_giant_length_is_undecodable_at_once(head, times):
    with pytest.raises(Undecodable):
        decode(head + GIANT * times)
    with pytest.raises(Undecodable):
        decode(head + b"\x02" * 12 + GIANT * times)


def test_a_future_shape_is_undecodable():
    schema = codec.schema_of("GEN_SENT")
    schema["fields"].append({"name": "new", "type": "string", "default": "", "doc": "x"})
    out = io.BytesIO()
    out.write(codec.MAGIC + codec.fingerprint_of(schema))
    values = {"turn": 1, "step": 1, "channel": "sse", "new": "thing"}
    schemaless_writer(out, parse_schema(schema), values)
    with pytest.raises(Undecodable, match="unknown schema fingerprint"):
        decode(out.getvalue())


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["t", "w", "m", "g", "traceparent", ""]),
        st.one_of(
            st.sampled_from([*NAMES, b"models", b"1", b"1.1.1", b"1.1", b"x.1.1", b"-1.1.1"]),
            st.binary(max_size=12),
        ),
    ),
    max_size=5,
).map(tuple)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(bytes.__add__, st.sampled_from(HEADS), st.binary(max_size=40)),
    any_event().map(encode),
)
KEYS = st.one_of(st.none(), st.just(b"s1"), st.just(b"#partition"), st.binary(max_size=20))


@settings(max_examples=400)
@given(HEADERS, VALUES, KEYS, st.booleans())
def test_any_record_becomes_an_entry_that_folds(headers, value, key, chunks):
    record = Record(SESSION_EVENTS, 0, 5, 1_700_000_000_000, key, value, headers)
    entry = entry_of(record, chunks=chunks)
    assert (entry.partition, entry.offset) == (0, 5)
    views, ruling = fold(initial(entry.session_id), entry)
    if views.frozen is not None:
        assert isinstance(entry.event, codec.Unreadable) and entry.event.must_understand
    assert ruling.verdict in ("accepted", "ignored", "refused")


@pytest.mark.parametrize("name", BY_NAME)
def test_bad_input_the_table_rules_whether_an_unreadable_known_type_must_be_understood(name):
    for headers in ((("t", name.encode()),), (("t", name.encode()), ("w", b"x"), ("g", b"1.1"))):
        entry = entry_of(Record(SESSION_EVENTS, 0, 5, 0, b"s1", b"garbage", headers), chunks=True)
        assert isinstance(entry.event, codec.Unreadable)
        assert entry.event.must_understand == BY_NAME[name].must_understand


def test_law_13_the_header_rules_whether_an_unknown_type_must_be_understood():
    for more, must in (((), False), ((("m", b"1"),), True), ((("m", b"0"),), False)):
        headers = (("t", b"NEWER_EVENT"), ("w", b"sessions"), *more)
        entry = entry_of(Record(SESSION_EVENTS, 0, 5, 0, b"s1", b"\xc3\x01newer!!!", headers))
        assert entry.event.must_understand == must
        assert entry.event.type == "NEWER_EVENT"


@pytest.mark.parametrize("place", [b"", b"1", b"1.1", b"1.1.1.1", b"1.x.1", b"-1.1.1", b"\xff"])
def test_a_chunk_with_an_invalid_header_is_unreadable_and_freezes_nothing(place):
    for order in (1, -1):
        headers = (("t", b"GEN_CHUNK"), ("w", b"models"), ("g", place))[::order]
        entry = entry_of(Record(SESSION_EVENTS, 0, 5, 0, b"s1", b"", headers))
        assert isinstance(entry.event, codec.Unreadable) and not entry.event.must_understand


def test_a_tombstone_is_unreadable():
    entry = entry_of(Record(SESSION_EVENTS, 0, 5, 0, b"s1", None, ()))
    assert isinstance(entry.event, codec.Unreadable) and not entry.event.must_understand
    assert not isinstance(entry.event, ev.SessionOpened)
