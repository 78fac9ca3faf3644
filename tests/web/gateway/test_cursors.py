"""Cursors: a place survives encoding and decoding, and every other text is refused."""

import base64

import pytest
from hypothesis import example, given, strategies as st

from foldlog.client.history import KINDS, Place, ShownText
from foldlog.client.transcript_stream import Attempt
from foldlog.web.gateway.cursors import NUMBER_MAX, BadCursor, cursor_of, place_of

numbers = st.integers(0, NUMBER_MAX)
places = st.builds(lambda offset, lines: Place(offset, lines=lines), numbers, numbers) | st.builds(
    Place,
    numbers,
    st.builds(Attempt, numbers, numbers, numbers),
    st.tuples(*[st.builds(ShownText, numbers, numbers) for _ in KINDS]),
    numbers,
)


LONGEST = Place(
    NUMBER_MAX,
    Attempt(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX),
    tuple(ShownText(NUMBER_MAX, NUMBER_MAX) for _ in KINDS),
    NUMBER_MAX,
)


@given(places)
@example(LONGEST)
def test_a_place_survives_the_round_trip(place):
    assert place_of("s1", cursor_of("s1", place)) == place


@given(st.text(max_size=300) | st.binary(max_size=100).map(lambda b: base64.b64encode(b).decode()))
def test_a_text_that_is_not_a_cursor_is_refused(text):
    with pytest.raises(BadCursor):
        place_of("s1", text)


def test_a_cursor_of_another_session_or_version_is_refused():
    cursor = cursor_of("s1", Place(7))
    with pytest.raises(BadCursor, match="another session"):
        place_of("s2", cursor)
    text = base64.urlsafe_b64decode(cursor + "==").decode()
    other = base64.urlsafe_b64encode(text.replace("1.", "9.", 1).encode()).decode()
    with pytest.raises(BadCursor, match="another version"):
        place_of("s1", other)
