"""Durable Streams without HTTP: offsets sort like places, pages that were read never change, and
the log's order decides on requests."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.consumers.protocols.durable import reading as durable
from foldlog.consumers.protocols.durable.session import SessionStream
from foldlog.consumers.protocols.durable.writing import WrittenStream, encoded
from foldlog.tests.consumers.protocols.shown_histories import golden_session
from foldlog.tests.golden import golden

PLACES = st.integers(0, 2**63 - 1)


@given(PLACES, PLACES, st.integers(0, 99_999))
def test_offsets_sort_like_the_places_that_they_name(one, other, partition):
    texts = [durable.offset_of(partition, place) for place in (one, other)]
    assert (texts[0] < texts[1]) == (one < other)
    assert durable.place_of(texts[0], partition, 0) == one
    with pytest.raises(durable.BadOffset):
        durable.place_of(texts[0], partition + 1, 0)


@pytest.mark.parametrize("text", ["", "0", "1_2", "-2", "0000_1", "00000_" + "9" * 20, "a" * 999])
def test_a_text_that_is_not_an_offset_is_refused(text):
    with pytest.raises(durable.BadOffset):
        durable.place_of(text, 0, 0)


@pytest.mark.parametrize("name", golden.names())
@pytest.mark.parametrize("bytes_max", [1, 300])
def test_S2_pages_read_at_any_time_make_the_same_stream(name, bytes_max):
    watched = golden_session(name)
    read, place = [], 0
    for moment in watched.moments:
        stream = SessionStream(moment.views, watched.read)
        up_to_date = False
        while not up_to_date:
            page = durable.page(stream, place, bytes_max)
            read += [frame for _, frames in page.appends for frame in frames]
            place, up_to_date = page.place, page.up_to_date
        assert page.place == stream.tail
        whole = durable.page(stream, 0, 2**40).appends
        assert read == [frame for _, frames in whole for frame in frames]
    lines = watched.moments[-1].views.transcript.lines if watched.moments else ()
    assert [json.loads(frame)["offset"] for frame in read] == [line.offset for line in lines]


def test_a_terminated_session_is_a_closed_stream():
    closed = [SessionStream(m.views, None).closed for m in golden_session("terminate").moments]
    assert closed[-1] and not any(closed[:-1])


def create(**more):
    return {"op": "create", "type": "text/plain", "ttl": None, "expires": None,
            "expires_ms": None, **more}


def append(text, **more):
    return {"op": "append", "type": "text/plain", **encoded("text/plain", [text]), **more}


def test_requests_are_judged_in_log_order_and_a_refusal_changes_nothing():
    stream = WrittenStream()
    ops = [
        (append(b"early"), 404),
        (create(), 201),
        (create(), 200),
        (create(type="image/png"), 409),
        (append(b"a", producer=["p", 0, 0]), 200),
        (append(b"a", producer=["p", 0, 0]), 204),
        (append(b"c", producer=["p", 0, 2]), 409),
        (append(b"b", producer=["p", 1, 0], seq="5"), 200),
        (append(b"zombie", producer=["p", 0, 1]), 403),
        (append(b"x", producer=["p", 2, 3]), 400),
        (append(b"x", seq="5"), 409),
        (append(b"x") | {"type": "image/png"}, 409),
        (append(b"end", close=True), 204),
        (append(b"late"), 409),
        ({"op": "append", "type": "", "close": True}, 204),
        ({"op": "delete"}, 204),
        (append(b"gone"), 404),
        (create(ttl="1"), 201),
    ]
    statuses = [stream.take(op, offset, 0).status for offset, (op, _) in enumerate(ops)]
    assert statuses == [status for _, status in ops]
    assert stream.verdicts[6].gap == (1, 2) and stream.verdicts[8].epoch == 1
    assert stream.alive(999) is not None and stream.alive(1_000) is None
    earlier = WrittenStream()
    for offset, (op, _) in enumerate(ops[:14]):
        earlier.take(op, offset, 0)
    text = b"".join(m for _, messages in earlier.life.since(0) for m in messages)
    assert text == b"abend" and earlier.life.closed


@given(st.binary(), st.sampled_from(["text/plain", "image/png", "application/json"]))
def test_an_item_preserves_the_bytes_of_its_messages(data, kind):
    messages = [b'{"a": 1}'] if kind == "application/json" else [data]
    op = json.loads(json.dumps({"op": "append", "type": kind, **encoded(kind, messages)}))
    stream = WrittenStream()
    stream.take(create(type=kind), 0, 0)
    stream.take(op, 1, 0)
    assert [m for _, several in stream.life.since(0) for m in several] == messages


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_data_with_line_breaks_survives_the_round_trip_in_one_event(text):
    wire = durable.data_event("text/plain", [text.encode()])
    assert wire.startswith(b"event: data\n") and wire.endswith(b"\n\n")
    lines = wire[:-1].split(b"\n")[1:-1]
    assert all(line.startswith(b"data:") for line in lines)
    read = b"\n".join(line[5:].removeprefix(b" ") for line in lines).decode()
    assert read == text.replace("\r\n", "\n").replace("\r", "\n")


def test_a_cursor_always_increases():
    now = 1_000_000.0
    first = durable.cursor_of(None, now, 1)
    assert int(durable.cursor_of(first, now, 1)) > int(first)
    assert durable.cursor_of("nonsense", now, 1) == first
