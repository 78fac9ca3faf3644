"""Markdown at a terminal: how it is shown, and that streaming does not change what is shown."""

import re
from collections import Counter
from itertools import count

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from foldlog.cli.terminal import markdown
from foldlog.cli.terminal.markdown import Markdown
from foldlog.docs.terminal_svg import Screen
from foldlog.tests.cli.harness import UNSAFE

BOLD, ITALIC, CODE, RESET = (f"\x1b[{n}m" for n in (1, 3, 36, 0))
STYLES = re.compile("\x1b\\[[0-9;]*m")


class Window(Screen):
    """A terminal with wide characters. `gone`: the rows that have left it."""

    def __init__(self, columns: int = 80, rows: int = 200) -> None:
        super().__init__(columns, rows)
        self.gone: list[str] = []
        self.wrote: list[str] = []

    def write(self, text: str) -> None:
        self.wrote.append(text)
        shown = "".join(char if char.isprintable() or char in "\n\r\x1b" else "?" for char in text)
        self.feed(STYLES.sub("", shown).replace("\n", "\r\n"))

    def shown(self) -> str:
        return "\n".join([*self.gone, self.text()]).rstrip()

    def _put(self, character: str) -> None:
        if cell_len(character) == 2 and self._column == self.columns - 1:
            self._column += 1
        super()._put(character)
        if cell_len(character) == 2:
            super()._put(" ")
            self._rows[self._row][self._column - 1] = self._rows[self._row][0]._replace(text="")

    def _line_feed(self) -> None:
        if self._row == self.height - 1:
            self.gone.append("".join(cell.text for cell in self._rows[0]).rstrip())
        super()._line_feed()


@pytest.fixture(autouse=True, scope="module")
def every_piece_is_drawn():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "DRAWS_PER_S", float("inf"))
        patch.setattr(markdown, "COST_MAX", float("inf"))
        yield


def drawn(*pieces: str, columns: int = 80, rows: int = 200) -> Window:
    """A window in which these pieces were drawn."""
    window = Window(columns, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("LINES", str(rows))
        streamed = Markdown(window.write)
        for piece in pieces:
            streamed.feed(piece)
        streamed.end()
    return window


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("**bold** text", f"{BOLD}bold{RESET} text"),
        ("an *italic* and _another_", f"an {ITALIC}italic{RESET} and {ITALIC}another{RESET}"),
        ("`a * b`", f"{CODE}a * b{RESET}"),
        ("~~gone~~", f"\x1b[9mgone{RESET}"),
        ("# Title", f"\x1b[1;4mTitle{RESET}"),
        ("[docs](https://x.y)", f"\x1b[94mdocs{RESET} (\x1b[2mhttps://x.y{RESET})"),
        ("[ö](https://x.y/ö)", f"\x1b[94mö{RESET} (\x1b[2mhttps://x.y/ö{RESET})"),
        ("[a](https://x.y/&#x202e;b)", "[a](https://x.y/&#x202e;b)"),
        (r"\*not italic\*", "*not italic*"),
        ("**\x1b[2J**", f"{BOLD}\\x1b[2J{RESET}"),
        ("```\n\x1b]0;x\x07\n```", "\\x1b]0;x\\x07"),
    ],
)
def test_what_is_styled(text, wanted):
    assert drawn(text).wrote == [wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- a\n  * b\n\nend", " • a\n    • b\n\nend"),
        ("12. twelve", " 12. twelve"),
        ("> said", "▌ said"),
        ("```python\nx = 1\n\n# no title\n```\nend", "python\nx = 1\n\n# no title\n\nend"),
        ("one\ntwo", "one\ntwo"),
        ("1. one\n2. two\n   more", " 1. one\n 2. two\n    more"),
        ("9) nine\n10) ten", "  9) nine\n 10) ten"),
        ("| name | n |\n|---|:-:|\n| `x` | 1 |\n| 日本 | **22** |\nafter",
         " name   n\n ─────────\n x      1\n 日本   22\n after"),
    ],
)
def test_what_blocks_look_like(text, wanted):
    assert drawn(text).shown() == wanted.rstrip()


@pytest.mark.parametrize(
    "text",
    ["snake_case_name", "2 * 3 * 4", "2*3*4", "a ** b", "#17 is open", "-5 degrees", "1.5 apples",
     "[1] says", "*", "42.", "a\n42", "[bold]no markup[/bold]",
     ":smile:", "an **unclosed start", "a `tick", "5 > 3",
     "~5 ms", "", "x\n\ny", "C:\\dir", "x__init__ here", "| not a table", "<b>tag</b>", "&lt;",
     "[x](javascript:alert)", "[x]: https://x.y", "title\n---x"],
)
def test_what_is_no_markdown_stays_as_it_is(text):
    assert drawn(text).shown() == text


def test_text_that_is_added_to_a_row_is_all_that_is_written():
    assert drawn("Hel", "lo **wo", "rld** and", "\n\n-", " item").wrote == [
        "Hel", "lo **wo", f"\r\x1b[KHello {BOLD}world{RESET} and",
        f"\n\n{BOLD} • {RESET}item",
    ]


def test_an_unclosed_marker_does_not_hold_back_an_answer():
    assert drawn("a **" + "b" * 5_000, "").wrote[0].startswith("a\n**bb")


def test_the_end_of_an_attempt_starts_anew():
    window = Window()
    streamed = Markdown(window.write)
    streamed.feed("```\ncode **")
    streamed.end()
    streamed.feed("**b**")
    streamed.end()
    assert window.wrote == ["code **", f"{BOLD}b{RESET}"]


MARKS = st.text(
    st.sampled_from("ab1 .\n*_`~[]()!#>-|\\é😀👨❤日\u200d\ufe0f\u20e3\u06cc\u200c\xa0\u3164"),
    max_size=60,
)


@given(text=MARKS, cuts=st.lists(st.integers(0, 60), max_size=8), columns=st.integers(8, 40))
def test_how_the_text_is_cut_into_tokens_changes_nothing(text, cuts, columns):
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert drawn(*pieces, columns=columns).shown() == drawn(text, columns=columns).shown()


HIDES = st.lists(st.sampled_from(
    ["a", "b c", "é", "\n", "\n\n", "|", "| a ",
     "|---|---|\n", "> ", "- ", "  ", "1. ", "2. ", "```", "# ",
     "[a](", "https://x.y/", '"title"', ")", "![b]", "<b>", "**", "`", "&nbsp;", "[^a]: ", "日本"]
), max_size=40).map("".join)


@given(text=HIDES, columns=st.integers(4, 40))
def test_nothing_is_hidden(text, columns):
    shown = Counter(drawn(text, columns=columns).shown())
    assert Counter(filter(str.isalnum, text)) <= shown


@pytest.mark.parametrize("text", [
    ">" * 300 + " deep", "".join("  " * n + "- a\n" for n in range(99)), "> - " * 99 + "deep",
    "| a |\n|---|\n| b | hidden |", '[a](https://x.y "hidden")', "```sh hidden words\nx\n```",
    "| a " * 300 + "|\n" + "|---" * 300 + "|\n| deep |",
])
def test_nothing_of_an_odd_text_is_hidden(text):
    test_nothing_is_hidden.hypothesis.inner_test(text, 40)


@given(text=st.text())
def test_no_text_controls_the_terminal(text):
    assert not UNSAFE.search(STYLES.sub("", "".join(drawn(text).wrote)))


LONG = "".join(
    f"## Part {n}\n\nSome **bold** words, `code` and 日本語の文字, which are a line or two.\n\n"
    + "".join(f"- item {k} with *emphasis* that is long enough to be wrapped\n" for k in range(9))
    + "\n```\n" + "".join(f"line {k}\n" for k in range(40)) + "```\n\n"
    for n in range(3)
)


@pytest.mark.parametrize("columns", [40, 41, 80])
def test_a_long_answer_scrolls_away_whole_and_once(columns):
    pieces = re.findall("(?s).{1,25}", LONG)
    small = drawn(*pieces, columns=columns, rows=10)
    assert small.shown() == drawn(LONG, columns=columns, rows=500).shown()
    far = [text for text in small.wrote if "\x1b[J" in text]
    assert len(far) < len(small.wrote) / 4, "most tokens redraw nothing above their row"


def test_a_comment_that_is_longer_than_the_window_is_not_held_back_until_it_ends():
    lines = [f" * line {n}" for n in range(30)]
    text = "\n".join(["```c", "/*", *lines, " */", "```"])
    small = drawn(*text.splitlines(keepends=True), rows=8)
    assert small.shown() == drawn(text).shown()


def test_a_table_that_leaves_the_window_while_it_widens_is_drawn_again_when_it_is_whole():
    rows = "".join(f"| {'x' * n} | {n} |\n" for n in range(20))
    text = f"| a | b |\n|---|---|\n{rows}"
    small = drawn(*text.splitlines(keepends=True), "\nend", rows=6)
    assert small.shown().endswith(drawn(text + "\nend").shown())


@pytest.mark.parametrize("sizes", [(40, 60, 80), (80, 60, 40)])
def test_a_window_that_changes_while_an_answer_streams_loses_nothing(monkeypatch, sizes):
    window = Window(sizes[0], 12)
    monkeypatch.setenv("COLUMNS", str(sizes[0]))
    monkeypatch.setenv("LINES", "12")
    streamed = Markdown(window.write)
    streamed.feed("before\n\n")
    words = [f"word{n}" for n in range(90)]
    for n, word in enumerate(words):
        window.columns = sizes[n // 30]
        monkeypatch.setenv("COLUMNS", str(window.columns))
        streamed.feed(f"{word} ")
    streamed.end()
    shown = window.shown().split()
    assert shown[0] == "before" and shown[-90:] == words
    assert len(shown) == 91 or sizes[0] > sizes[1], "only a narrower window begins the block again"


def test_a_long_line_takes_linear_time():
    """A parser that backtracks would hang the chat."""
    for text in ("*a " * 9_000, "[" * 9_000, "`" * 9_000, "_a_" * 9_000, "\\" * 9_000):
        drawn(text)


def test_a_long_answer_in_small_pieces_is_drawn_less_often_than_it_arrives(monkeypatch):
    monkeypatch.setattr(markdown, "DRAWS_PER_S", 15)
    monkeypatch.setattr(markdown, "COST_MAX", 0.1)
    monkeypatch.setattr(markdown.time, "monotonic", count(0, 0.001).__next__)
    assert len(drawn(*["word "] * 2_000).wrote) < 40
