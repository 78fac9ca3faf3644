"""No part of a text is hidden from a person, least of all in arguments that they approve."""

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from foldlog.client.visible import clean, exact, exact_json, is_hidden, settled

HIDDEN = (
    "\x00\x08\x0d\x1b\x7f\x85\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u180b\u180e\u180f"
    "\u2000\u200a\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2061\u2064"
    "\u2065\u206a\u2800\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\ufff9\ufffc\U0001bca0\U0001d159"
    "\U0001d173\U000e0001\U000e0072\U000e007f\U000e0080\U000e0100\U000e01ef\U000e0fff"
)
SPACES = "\xa0\u202f\u3000"  # ordinary text keeps one of these between words
TEXTS = st.text(st.sampled_from(f"ab \t\n\\\"n⟨{HIDDEN}{SPACES}❤👨🏽س日"), max_size=60)


@pytest.mark.parametrize("show", [clean, exact, exact_json])
@pytest.mark.parametrize("char", HIDDEN, ids=ascii)
def test_a_character_that_draws_nothing_is_escaped_everywhere(show, char):
    text = show(json.dumps({"command": f"ls {char}rm{char}{char}"}, ensure_ascii=False))
    assert char not in text
    assert f"{ord(char):x}" in text or char in "\x08\x0d", text


def test_every_character_of_the_hidden_categories_is_hidden():
    categories = {"Cc", "Cf", "Zl", "Zp", "Zs", "Cs", "Co", "Cn"}
    for code in range(0x110000):
        char = chr(code)
        if char != " " and unicodedata.category(char) in categories:
            assert is_hidden(char), ascii(char)
    assert not any(map(is_hidden, " aä日س😀❤é─█�")), "what can be seen is not"


@pytest.mark.parametrize("text", [
    "👨‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ ❤︎ 1️⃣ 👍🏽 🏳️‍🌈 🧑🏽‍💻", "می‌خواهم", "क्‍ष",
    "«\xa0oui\xa0» 10\u202f000", "東京\u3000大阪", "tab\tand\nline", "\ue0b0 \U0001faea",
])  # fmt: skip
def test_ordinary_text_keeps_what_emoji_and_scripts_need(text):
    assert clean(text) == text
    for char in filter(is_hidden, set(text) - {"\t", "\n"}):
        assert char not in exact(text), "a person who approves sees all of it"


@pytest.mark.parametrize(
    "text", ["a\u200db", "a\ufe0f", "a \xa0b", "\xa0\xa0", "🏴\U000e0072\U000e007f"]
)
def test_ordinary_text_keeps_them_nowhere_else(text):
    assert clean(text).isascii() or clean(text)[1:].isascii()


@pytest.mark.parametrize(("value", "shown"), [
    ("echo ok;" + " " * 12_990 + "rm", "echo ok;⟨␠×12990⟩rm"),
    ("a" + "\n" * 500 + "b", "a⟨␊×500⟩b"),
    ("a" + "\n \t" * 500 + "b", "a⟨␊×500 ␠×500 ␉×500⟩b"),
    ("a" + " \n" * 5 + "b", "a⟨␠×5 ␊×5⟩b"),
    ("a" + "\u3164" * 300 + "b", "a⟨\\u3164×300⟩b"),
    ("def f():\n\n\n    return 1\t# one", "def f():\n\n\n    return 1\t# one"),
    ("⟨␠×12⟩", "\\u27e8␠×12⟩"),
    ("─" * 50 + "\ud83d", "─" * 50 + "\\ud83d"),
])  # fmt: skip
def test_long_runs_are_counted_and_no_text_can_pose_as_a_count(value, shown):
    assert exact(value) == shown


@pytest.mark.parametrize(("text", "shown"), [
    ('{"a":"\\u0072\\u006d \\ud83d\\ude00 \\u00e4"}', '{"a":"rm 😀 ä"}'),
    ('{"a":"\\u200b\\u001b"}', '{"a":"\\u200b\\u001b"}'),
    ('{"a":"x' + "\\n" * 500 + 'y"}', '{"a":"x⟨␊×500⟩y"}'),
    ('{"a":"' + "\\u0020" * 40 + 'y"}', '{"a":"⟨␠×40⟩y"}'),
    ('{"a":"' + "\\\\n" * 40 + '"}', '{"a":"' + "\\\\n" * 40 + '"}'),
    ('{' + "\n" * 40 + '"a":1}', '{⟨␊×40⟩"a":1}'),
    ('{"a":1,"a":1.0,"b":12345678901234567891}', '{"a":1,"a":1.0,"b":12345678901234567891}'),
    ('{"a":"\\q', '{"a":"\\q'),
])  # fmt: skip
def test_json_is_shown_as_it_was_sent_but_readable(text, shown):
    assert exact_json(text) == shown


@given(text=TEXTS)
def test_nothing_hidden_remains(text):
    for show in (exact, exact_json):
        assert not any(is_hidden(char) for char in show(text) if char not in "\t\n")
    assert clean(clean(text)) == clean(text)


@given(text=TEXTS, cut=st.integers(0, 60))
def test_a_stream_is_shown_like_the_whole_text(text, cut):
    """Spaces of other scripts excepted: at a cut they are kept, as nothing is hidden by them."""
    text = text.translate(dict.fromkeys(map(ord, f"\r{SPACES}"), "."))
    sure = settled(text[:cut])
    assert clean(text[:sure]) + clean(text[sure:]) == clean(text)


def test_a_long_text_takes_linear_time():
    for piece in (" ", "\n ", "日", "\\", "\u3164", '"'):
        for show in (clean, exact, exact_json):
            show(piece * 300_000)
