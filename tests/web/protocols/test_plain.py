"""The gateway's own stream: a token's frame is encoded like every other frame."""

import pytest
from hypothesis import given, strategies as st

from foldlog.client.history import Frame
from foldlog.client.transcript_stream import Attempt, Dropped, Token
from foldlog.schemas.canonical import compact
from foldlog.schemas.enums import ChunkKind
from foldlog.web.protocols.plain import frame_json, frame_text, name_of

NUMBERS = st.integers(0, 2**31)
ATTEMPTS = st.builds(Attempt, NUMBERS, NUMBERS, NUMBERS)


def read(_ref):
    raise AssertionError("no frame here has a blob")


@given(ATTEMPTS, NUMBERS, st.sampled_from([*ChunkKind, *map(str, ChunkKind)]), st.text(),
       st.booleans())
def test_the_short_way_of_a_token_gives_the_same_text(attempt, block, kind, text, live):
    frame = Frame("MS4w", Token(attempt, block, kind, text), live)
    assert frame_text(frame, read) == compact(frame_json(frame, read))


@pytest.mark.parametrize("thing", [Token(Attempt(1, 1, 1), 0, "text", "x"),
                                   Dropped(Attempt(1, 1, 1), "it failed")])
def test_an_event_has_the_name_that_its_json_has(thing):
    frame = Frame("MS4w", thing, True)
    assert name_of(frame) == frame_json(frame, read)["type"]
