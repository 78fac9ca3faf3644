"""Compact JSON always has the same bytes, because old logs contain sha256s of these bytes."""

import math

import pytest

from foldlog.schemas import canonical
from foldlog.tests.structure.tree import demand_none, room_sources

VALUE = {"b": "é\u2028", "a": [1, 1.5, None, True], "": {}}


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (canonical.compact, '{"b":"é\u2028","a":[1,1.5,null,true],"":{}}'),
        (canonical.compact_strict, '{"b":"é\u2028","a":[1,1.5,null,true],"":{}}'),
        (canonical.compact_strict_sorted, '{"":{},"a":[1,1.5,null,true],"b":"é\u2028"}'),
        (canonical.compact_ascii, '{"b":"\\u00e9\\u2028","a":[1,1.5,null,true],"":{}}'),
        (canonical.compact_ascii_sorted, '{"":{},"a":[1,1.5,null,true],"b":"\\u00e9\\u2028"}'),
    ],
)
def test_each_writer_has_its_fixed_bytes(write, text):
    assert write(VALUE) == text


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_strict_writers_refuse_a_number_that_json_lacks(number):
    for write in (canonical.compact_strict, canonical.compact_strict_sorted):
        with pytest.raises(ValueError, match="JSON"):
            write([number])


def test_only_ascii_writers_write_half_of_a_surrogate_pair():
    assert canonical.compact_ascii("\ud83d") == '"\\ud83d"'
    with pytest.raises(UnicodeEncodeError):
        canonical.compact("\ud83d").encode()


def test_compact_json_is_written_in_one_place():
    demand_none(
        f"{source.path}: write compact JSON with schemas/canonical.py"
        for source in room_sources()
        if "separators=(" in source.text and source.path != "schemas/canonical.py"
    )
