"""Content is printed as data: nothing in it controls the terminal."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.cli.terminal import clean_text, printing
from foldlog.tests.cli.harness import UNSAFE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nä", "plain\ttext\nä"),
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("yes\rno", "yes\\x0dno"),
        ("a\r\nb", "a\nb"),
        ("rm \u202egnp.exe", "rm \\u202egnp.exe"),
        ("a\x00b\x7f", "a\\x00b\\x7f"),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_what_could_control_a_terminal_becomes_visible(text, shown):
    assert clean_text.clean(text) == shown


@given(text=st.text())
def test_no_text_keeps_a_character_that_controls_a_terminal(text):
    assert not UNSAFE.search(clean_text.clean(text))
    assert "\n" not in printing.brief(text) and len(printing.brief(text)) <= 160
    assert clean_text.clean(clean_text.clean(text)) == clean_text.clean(text)


@given(text=st.text(st.characters()))
def test_json_is_one_equivalent_line_that_controls_nothing(text):
    line = printing.json_line({"text": text})
    assert not UNSAFE.search(line) and "\n" not in line
    assert json.loads(line) == {"text": text} == json.loads(printing.pretty({"text": text}))
    assert not UNSAFE.search(printing.pretty({"text": text}))
    line.encode()


@pytest.mark.parametrize(
    ("text", "column", "shown", "after"),
    [
        ("one two three", 0, "one two \nthree", 5),
        ("one two", 9, "\none two", 7),
        ("one\ntwo", 3, "one\ntwo", 3),
        ("see `a b c` now", 0, "see \n`a b c` \nnow", 3),
        ("0123456789abc de", 0, "0123456789abc de", 6),
    ],
)
def test_text_is_wrapped_at_words(text, column, shown, after):
    assert printing.wrapped(text, 10, column) == (shown, after)


def test_a_table_is_aligned(capsys):
    rows = [{"a": 1, "long_name": "x"}, {"a": 22, "long_name": None}]
    printing.table(rows, ("a", "long_name"))
    assert capsys.readouterr().out == "a   long name\n1   x\n22  -\n"
