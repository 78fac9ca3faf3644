"""The laws of Rows, compared with a plain list: a version never changes, however often it is
extended."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.fold.rows import Rows

KEYS = st.sampled_from("abc")
ROW = st.tuples(KEYS, st.integers(0, 9))
# (number of a version, modulo their count; rows to append to it, or the length to cut it to).
OPS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.one_of(st.lists(ROW, max_size=3), st.integers(0, 12)),
    ),
    max_size=25,
)


def key_of(row: tuple[str, int]) -> str:
    return row[0]


def check(rows: Rows, model: list[Any]) -> None:
    """Check that every method returns what a list would return."""
    assert list(rows) == model and len(rows) == len(model)
    for place in range(-len(model), len(model)):
        assert rows[place] == model[place]
    for start in range(len(model) + 1):
        assert rows.since(start) == model[start:]
    for key in "abc":
        assert rows.last(key) == next((r for r in reversed(model) if r[0] == key), None)
    assert rows == Rows(model, key=key_of) and hash(rows) == hash(Rows(model, key=key_of))
    assert rows != Rows([*model, ("x", 0)]) and rows != model


@given(OPS)
def test_every_version_is_immutable(ops):
    versions: list[tuple[Rows, list[Any]]] = [(Rows(key=key_of), [])]
    for number, operand in ops:
        rows, model = versions[number % len(versions)]
        if isinstance(operand, int):
            length = operand % (len(model) + 1)
            versions.append((rows.upto(length), model[:length]))
        else:
            versions.append((rows.append(*operand), [*model, *operand]))
        for version, expected in versions:
            check(version, expected)


@given(st.lists(ROW, max_size=20))
def test_rows_made_at_once_and_one_by_one_are_equal(model):
    grown = Rows(key=key_of)
    for row in model:
        grown = grown.append(row)
    check(grown, model)
    check(Rows(model, key=key_of), model)


def test_the_newest_version_shares_and_an_older_one_copies():
    first = Rows(["a"])
    second = first.append("b")
    assert second._list is first._list, "the newest version is extended in place"
    other = first.append("c")
    assert other._list is not first._list, "an older one is not"
    assert list(second) == ["a", "b"] and list(other) == ["a", "c"]


@pytest.mark.parametrize("place", [0, -1, 3, -4])
def test_an_index_outside_of_a_version_is_an_error_even_if_a_newer_one_has_it(place):
    rows = Rows()
    rows.append("a", "b", "c", "d")
    with pytest.raises(IndexError):
        rows[place]


def test_a_key_is_not_found_beyond_the_end_of_a_version():
    rows = Rows([("a", 1)], key=key_of)
    rows.append(("a", 2), ("b", 3))
    assert rows.last("a") == ("a", 1) and rows.last("b") is None
