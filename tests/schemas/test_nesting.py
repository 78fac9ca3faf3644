"""Whether JSON in an event is accepted depends on its bytes, not on the stack of the caller."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.fold.cut_points import is_fixed
from foldlog.processors.fold.projections.delivery import text_of
from foldlog.processors.fold.rulings.items import item_added
from foldlog.processors.fold.views import initial
from foldlog.schemas import events as ev
from foldlog.schemas.nesting import NESTING_MAX, depth_of, parsed


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def from_below(frames: int, call):
    """The result of a call that starts this many frames deeper in the stack."""
    return call() if frames == 0 else from_below(frames - 1, call)


@pytest.mark.parametrize("levels", [100, 450, 500, 501, 700, *range(800, 1001, 5)])
def test_law_2_every_reader_accepts_the_same_nesting(levels):
    event = ev.ItemAdded(item_id="i-1", content=ev.Body(inline=nested(levels)), items=1)
    views = initial("s")
    rulings = {from_below(frames, lambda: item_added(views, event)) for frames in (0, 50, 100, 200)}
    assert [ruling.accepted for ruling in rulings] == [levels <= NESTING_MAX], rulings


def test_law_2_a_delivered_text_does_not_depend_on_the_stack():
    deep = b'[{"type":"text","text":"hello"},' + nested(950) + b"]"
    assert {from_below(frames, lambda: text_of(deep)) for frames in (0, 100, 200)} == {""}
    flat = b'[{"type":"text","text":"hello"},' + nested(100) + b"]"
    assert {from_below(frames, lambda: text_of(flat)) for frames in (0, 100, 200)} == {"hello"}


def test_law_2_request_parameters_do_not_depend_on_the_stack():
    deep = b'{"thinking":{"type":"enabled"},"x":%b}'
    assert is_fixed.__wrapped__(deep % nested(499))
    assert not from_below(0, lambda: is_fixed.__wrapped__(deep % nested(950)))


def test_brackets_in_strings_and_side_by_side_are_not_nesting():
    assert parsed(json.dumps(["[{" * 600, '"\\"' * 600]).encode()) == ["[{" * 600, '"\\"' * 600]
    assert parsed(b"[" + b"[]," * 5000 + b"0]")[-1] == 0
    assert parsed('["é\ud800"]'.encode("utf-8", "surrogatepass")) == ["é\ud800"]


@pytest.mark.parametrize("text", [b"", b"[", b'["', b'["\\', b'["\\"' * 900, b"]" * 900, b"\xff"])
def test_invalid_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parsed(text)


@given(
    st.recursive(
        st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_depth_of_a_text_is_the_depth_of_its_value(value):
    def deep(part) -> int:
        inner = part.values() if isinstance(part, dict) else part
        return 1 + max(map(deep, inner), default=0) if isinstance(part, dict | list) else 0

    assert depth_of(json.dumps(value, ensure_ascii=False)) == deep(value)


def test_an_unfinished_string_of_quotes_is_read_once():
    """A scan that started again at each escaped quote would take minutes for this megabyte."""
    assert depth_of('["' + '\\"' * 500_000) == 1
