"""A recorded terminal as an SVG: the picture shows what the screen showed, at the same times."""

import re
from xml.etree import ElementTree

import pytest

from foldlog.docs.terminal_svg import HOLD_S, Recording, Screen, pieces, shortened, svg


def after(*outputs, columns=10, rows=3):
    """A screen, and its content after each of these outputs, one second apart."""
    screen, moments = Screen(columns, rows), []
    for at, output in enumerate(outputs):
        screen.feed(output)
        moments.append((float(at), screen.rows()))
    return screen, moments


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("one\r\ntwo", "one\ntwo\n"),
        ("123456789012", "1234567890\n12\n"),
        ("one\rtwo!", "two!\n\n"),
        ("ab\bc", "ac\n\n"),
        ("abc\r\x1b[K", "\n\n"),
        ("abc\x1b[2Dx", "axc\n\n"),
        ("1\r\n2\r\n3\x1b[1A\x1b[Jx", "1\n2x\n"),
        ("1\r\n2\r\n3\r\n4", "2\n3\n4"),
        ("\x1b[?2004h\x1b[2m[dim]\x1b[0m", "[dim]\n\n"),
    ],
)
def test_a_screen_shows_what_a_terminal_shows(output, shown):
    assert after(output)[0].text() == shown


@pytest.mark.parametrize("output", ["\x1b[2J", "\x1b[3;4H", "\x1b[31m", "a\tb"])
def test_what_is_not_drawn_raises(output):
    with pytest.raises(ValueError, match="cannot be drawn"):
        Screen(10, 3).feed(output)


def test_text_that_is_added_to_a_row_is_one_piece_more():
    _, moments = after("one", " two")
    found = [(p.column, "".join(c.text for c in p.cells), p.since) for p in pieces(moments)]
    assert found == [(0, "one", 0.0), (3, " two", 1.0)]


def test_a_row_that_changes_is_gone_when_the_new_one_appears():
    _, moments = after("one", "\rtwo", rows=1)
    found = [("".join(c.text for c in p.cells), p.since, p.until) for p in pieces(moments)]
    assert found == [("one", 0.0, 1.0), ("two", 1.0, None)]


def test_long_pauses_are_shortened_by_the_clock_of_all_screens():
    rows = Screen(1, 1).rows()
    first = shortened([(10.0, rows), (30.0, rows)], [10.0, 11.0, 30.0], 2.0)
    assert [at for at, _ in first] == [0.0, 3.0]


def test_the_picture_is_one_file_that_plays_by_itself():
    _, moments = after("$ a < b", "\r\n\x1b[2mgone\x1b[0m", "\r\x1b[K", columns=20)
    picture = svg([Recording("one", 20, 3, moments)], "what it shows", "made by x")
    root = ElementTree.fromstring(picture)
    drawn = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert drawn == ["one", "$ a < b", "gone"]
    assert not re.search(r"<script|href|url\(|@import", picture)
    length = 2 + HOLD_S
    assert f"{100 * 1 / length:.2f}%{{visibility:visible}}" in picture
    assert f"{100 * 2 / length:.2f}%{{visibility:hidden}}" in picture
