"""Snippets: they are bounded, have whole words, surround the match, and mark the matches."""

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.search.full_text import Stems
from foldlog.processors.search.snippet import (
    CUT,
    SNIPPET_TOKENS,
    Snippets,
)
from foldlog.processors.search.words import query_of
from foldlog.schemas.tokens import estimate

SNIPPETS = Snippets(Stems())
LONG = " ".join(f"word{n}" for n in range(2000))


def cut(text, query, **more):
    return SNIPPETS.cut(text, query_of(query), **more)


def marked(snippet):
    return [snippet.text[start:end] for start, end in snippet.marks]


def test_S3_3_a_long_text_is_cut_around_the_match():
    snippet = cut(LONG.replace("word1234 ", "the walrus "), "walrus")
    assert estimate(snippet.text) <= SNIPPET_TOKENS == 200
    assert estimate(snippet.text) > 0.9 * SNIPPET_TOKENS
    assert snippet.text.startswith(CUT + " word") and snippet.text.endswith(CUT)
    assert marked(snippet) == ["walrus"]
    before, after = snippet.text.split("walrus")
    assert 0.7 < len(before) / len(after) < 1.4


def test_a_short_text_is_returned_whole():
    text = "  The walrus\nswims,\tslowly.  "
    snippet = cut(text, "walrus")
    assert snippet.text == text.strip() and marked(snippet) == ["walrus"]


def test_a_snippet_is_taken_where_most_words_of_the_query_occur():
    filler = "and so on " * 300
    text = f"walrus walrus walrus {filler} a walrus met a penguin {filler} penguin"
    assert marked(cut(text, "walrus penguin")) == ["walrus", "penguin"]


def test_stems_prefixes_and_identifiers_are_marked():
    assert marked(cut("He ran, he runs, running", "run")) == ["runs", "running"]
    assert marked(cut("ראיתי את הבית שלו", "בית")) == ["הבית"]
    assert marked(cut("call getUserName(x) or get_user_name", "user")) == [
        "getUserName",
        "get_user_name",
    ]
    assert marked(cut("東京都の京都", "京都")) == ["京都", "京都"]


def test_matches_that_overlap_or_touch_are_one_mark():
    assert marked(cut("新しい価格を決める予定です", "価格を決める")) == ["価格を決める"]
    assert marked(cut("価格、価格価格", "価格")) == ["価格", "価格価格"]
    assert marked(cut("東京のtower", "東京の tower")) == ["東京のtower"]


def test_without_a_matching_word_a_snippet_shows_a_similar_word_or_the_beginning():
    text = LONG.replace("word1500 ", "certificate ")
    assert marked(cut(text, "cetificat")) == ["certificate"]
    snippet = cut(LONG, "nothing")
    assert snippet.text.startswith("word0 word1") and snippet.marks == ()


def test_unspaced_text_is_cut_between_characters():
    text = "東京都の天気は晴れです。" * 100
    snippet = cut(text + "銀行" + text, "銀行")
    assert marked(snippet) == ["銀行"] and estimate(snippet.text) <= SNIPPET_TOKENS


def test_text_without_word_boundaries_is_cut():
    text = "A" * 50_000
    assert estimate(cut(text, "walrus").text) <= SNIPPET_TOKENS
    assert marked(cut(text + " walrus", "walrus")) == ["walrus"]
    assert estimate(cut("🦭" * 5000, "walrus").text) <= SNIPPET_TOKENS


def test_the_snippet_of_blanks_is_empty():
    assert cut(" \n ", "walrus").text == ""


@given(
    st.text(st.sampled_from("ab walrus東京ב \n_/.\x00\u0301🦭A"), max_size=900),
    st.integers(170, 300),
)
def test_a_snippet_is_a_part_of_its_text_within_the_token_limit(text, tokens):
    snippet = cut(text, "walrus ב 東京", tokens=tokens)
    body = snippet.text.removeprefix(CUT + " ").removesuffix(" " + CUT)
    assert body in text
    assert estimate(body) <= tokens
    edges = [edge for mark in snippet.marks for edge in mark]
    assert edges == sorted(set(edges)), "marks neither overlap nor touch"
    assert all(0 <= edge <= len(snippet.text) for edge in edges)


@pytest.mark.parametrize("query", ["", "?"])
def test_an_empty_query_marks_nothing(query):
    assert cut("walrus", query).marks == ()
