"""Markdown at a terminal: how it is shown, and that streaming does not change the output."""

import re

import pytest
from hypothesis import given, strategies as st

from foldlog.cli.terminal.markdown import (
    BOLD,
    CODE,
    DIM,
    ITALIC,
    RESET,
    STRIKE,
    UNDERLINE,
    Markdown,
)
from foldlog.tests.cli.harness import UNSAFE

CODES = re.compile("\x1b\\[[0-9]m|\x1b\\[36m")


def shown(*pieces: str) -> str:
    markdown = Markdown()
    return "".join([markdown.feed(piece) for piece in pieces]) + markdown.end()


def plain(text: str) -> str:
    return CODES.sub("", shown(text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("**bold** text", f"{BOLD}bold{RESET} text"),
        ("an *italic* and _another_", f"an {ITALIC}italic{RESET} and {ITALIC}another{RESET}"),
        ("`a * b`", f"{CODE}a * b{RESET}"),
        ("``a ` b``", f"{CODE}a ` b{RESET}"),
        ("~~gone~~", f"{STRIKE}gone{RESET}"),
        ("# Title", f"{BOLD}{UNDERLINE}Title{RESET}"),
        ("## Part ##\ntext", f"{BOLD}Part{RESET}\ntext"),
        ("[docs](https://x.y)", f"{UNDERLINE}docs{RESET}{DIM} (https://x.y){RESET}"),
        ("- a\n  * b", "• a\n  • b"),
        ("12. twelve", "12. twelve"),
        ("> said", f"{DIM}│ {RESET}{ITALIC}said{RESET}"),
        ("```python\nx = 1\n\n# no title\n```\nend",
         f"{DIM}python{RESET}\n{CODE}x = 1{RESET}\n\n{CODE}# no title{RESET}\nend"),
        ("***\n", f"{DIM}{'─' * 40}{RESET}\n"),
    ],
)
def test_what_is_styled(text, wanted):
    assert shown(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["snake_case_name", "2 * 3 * 4", "a ** b", "#17 is open", "-5 degrees", "1.5 apples",
     "[1] says", "an **unclosed start", "a `tick", "5 > 3", "~5 ms", "*", "", "x\n\ny\n",
     "C:\\dir", "x__init__ here", "| not a table"],
)
def test_what_is_no_markdown_stays_as_it_is(text):
    assert shown(text) == text


def test_a_backslash_escapes_a_marker():
    assert shown(r"\*not italic\*") == "*not italic*"


def test_a_table_is_aligned_by_what_is_visible():
    text = "| name | n |\n|---|:-:|\n| `x` | 1 |\n| 日本 | **22** |\nafter"
    lines = plain(text).split("\n")
    assert lines == ["name  n", "────────", "x     1", "日本  22", "after"]


def test_a_piece_is_printed_as_soon_as_it_is_certain():
    markdown = Markdown()
    assert markdown.feed("Hel") == "Hel"
    assert markdown.feed("lo **wo") == "lo "
    assert markdown.feed("rld*") == ""
    assert markdown.feed("* and") == f"{BOLD}world{RESET} and"
    assert markdown.feed("\n-") == "\n"
    assert markdown.feed(" item") == "• item"
    assert markdown.end() == ""


def test_an_unclosed_marker_does_not_hold_back_an_answer():
    markdown = Markdown()
    held = markdown.feed("a **" + "b" * 5_000)
    assert held.startswith("a **bb") and len(held) == 5_004


def test_the_end_of_an_attempt_starts_anew():
    markdown = Markdown()
    markdown.feed("```\ncode **")
    markdown.end()
    assert markdown.feed("**b** ") + markdown.end() == f"{BOLD}b{RESET} "


MARKS = st.text(
    st.sampled_from("ab1 .\n*_`~[]()!#>-|\\é😀👨❤\u200d\ufe0f\u20e3\u06cc\u200c\xa0\u3164"),
    max_size=60,
)


@given(text=MARKS, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_how_the_text_is_cut_into_tokens_changes_nothing(text, cuts):
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert CODES.sub("", shown(*pieces)) == plain(text)


@given(text=st.text())
def test_no_text_controls_the_terminal(text):
    assert not UNSAFE.search(plain(text))


def test_an_escape_sequence_of_the_model_is_visible():
    assert shown("**\x1b[2J**") == f"{BOLD}\\x1b[2J{RESET}"
    assert shown("```\n\x1b]0;x\x07\n```") == f"{CODE}\\x1b]0;x\\x07{RESET}\n"


def test_a_long_line_takes_linear_time():
    """A regular expression that backtracks would hang the chat."""
    for text in ("*a " * 20_000, "[" * 20_000, "`" * 20_000, "_a_" * 10_000, "\\" * 20_000):
        shown(text)
