"""The token estimate, for any text. Budgets and truncation rely on it."""

import pytest
from hypothesis import given, strategies as st

from foldlog.processors import token_count
from foldlog.schemas.tokens import (
    FAMILIES,
    NEW,
    OLD,
    estimate,
    estimate_size,
    family_of,
    prefix,
    raised,
    recounted,
)

texts = st.text(max_size=80) | st.from_regex(r"[ -~\n]{0,80}", fullmatch=True)
families = st.sampled_from(FAMILIES)


@given(texts, texts, families)
def test_the_estimate_is_monotonic_and_subadditive(a, b, family):
    both, one, other = (estimate(text, family) for text in (a + b, a, b))
    assert max(one, other) <= both <= one + other


@given(texts, families)
def test_every_character_counts_and_a_text_counts_as_its_bytes(text, family):
    assert (estimate(text * 20, family) >= len(text)) or not text
    assert estimate(text, family) == estimate(text.encode("utf-8", "replace"), family)


@given(st.text(max_size=30), st.integers(1, 400), st.integers(0, 200), families)
def test_a_prefix_is_the_longest_within_its_tokens(part, times, room, family):
    text = part * times
    found = prefix(text, room, family)
    assert text.startswith(found) and estimate(found, family) <= room
    assert found == text or estimate(text[: len(found) + 1], family) > room


def test_the_family_of_a_model_follows_from_its_name():
    old = "claude-3-5-sonnet-20241022 claude-sonnet-4-20250514 claude-opus-4-1 claude-haiku-4-5"
    new = "claude-opus-4-7 claude-opus-4-8-20260101 claude-sonnet-5-5 fable-5-2 something-else"
    assert {family_of(model) for model in old.split() + ["claude-opus-4-6"]} == {OLD}
    assert {family_of(model) for model in new.split()} == {NEW}
    with pytest.raises(KeyError, match="no model family 'newest'"):
        estimate("x", "newest")


def test_a_size_without_text_is_estimated_as_prose():
    assert estimate_size(2_600) == 1_001 and estimate_size(3_400, OLD) == 1_001
    assert estimate_size(0) == 1, "an empty block still has its frame"


@given(texts, st.integers(0, 5_000))
def test_recounting_a_message_changes_its_text_tokens_only(text, images):
    tokens, data = estimate(text) + images, text.encode("utf-8", "replace")
    assert recounted(tokens, data, NEW) == tokens
    if text:
        assert recounted(tokens, data, OLD) == estimate(text, OLD) + images
    assert 0 <= recounted(images, data, OLD) <= max(images, recounted(tokens, data, OLD))


def test_a_message_without_its_text_keeps_its_tokens():
    assert recounted(3_400, b"", OLD) == 3_400


def test_a_count_is_raised_for_a_family_that_counts_more_and_never_lowered():
    assert raised(2_600, OLD, NEW) == 3_400
    assert raised(3_400, NEW, OLD) == raised(3_400, NEW, NEW) == 3_400


def test_a_count_reports_its_method(monkeypatch):
    monkeypatch.setattr(token_count, "_ctok", lambda: None)
    counted = token_count.count("how many tokens are these?", "claude-opus-4-6")
    assert counted == (estimate("how many tokens are these?", OLD), "estimate")


def test_a_count_is_exact_if_the_counter_is_installed():
    pytest.importorskip("ctok", reason="the extra `tokens` needs Python 3.12")
    assert token_count.count("hello, world", "claude-opus-4-6") == (3, "ctok")
    assert token_count.count("hello, world", "claude-sonnet-5") == (4, "ctok")
    assert token_count.count("", "claude-sonnet-5") == (0, "ctok")
