"""Durable Streams without HTTP: offsets sort like places, and pages that were read never change."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.schemas.canonical import compact
from foldlog.tests.golden import golden
from foldlog.tests.web.protocols.shown_histories import golden_session
from foldlog.web.protocols.durable import reading as durable
from foldlog.web.protocols.durable.reading import SessionStream

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


@given(st.lists(st.text()))
def test_an_append_is_one_event_whatever_line_breaks_are_in_its_messages(texts):
    wire = durable.data_event([compact(text).encode() for text in texts])
    head, data, *rest = wire.splitlines()
    assert (head, rest) == (b"event: data", [b""])
    assert json.loads(data.removeprefix(b"data:")) == texts


def test_a_cursor_always_increases():
    now = 1_000_000.0
    first = durable.cursor_of(None, now, 1)
    assert int(durable.cursor_of(first, now, 1)) > int(first)
    assert durable.cursor_of("nonsense", now, 1) == first
