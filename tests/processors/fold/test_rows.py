"""Rows to which the same row is appended twice: first ahead of the log, then when it is read from
the log."""

from foldlog.processors.fold.rows import Rows


def test_appending_the_same_rows_again_reuses_their_list():
    old = Rows("ab", key=str)
    ahead = old.append("c", "d")
    repeated = old.append("c")
    assert list(repeated) == ["a", "b", "c"] and repeated._list is old._list, "nothing is copied"
    assert repeated.last("d") is None and ahead.last("d") == "d" and repeated.last("c") == "c"
    assert list(repeated.append("d")) == list(ahead) == ["a", "b", "c", "d"]


def test_appending_other_rows_copies_the_list():
    old = Rows("ab", key=str)
    ahead = old.append("c", "d")
    other = old.append("x")
    assert list(other) == ["a", "b", "x"] and list(ahead) == ["a", "b", "c", "d"]
    assert other.last("c") is None and ahead.last("x") is None
    assert list(old.append("c", "d", "e")) == ["a", "b", "c", "d", "e"]
    assert list(ahead) == ["a", "b", "c", "d"] and len(old) == 2


def test_rows_extend_their_own_earlier_versions_only():
    old = Rows("ab")
    grown = old.append("c")
    assert grown.extends(old) and old.extends(old) and not old.extends(grown)
    assert not old.append("x").extends(grown) and not Rows("abc").extends(old)
