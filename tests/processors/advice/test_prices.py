"""Prices: a model is found by its name, sums are exact, and an unknown price is reported as
unknown."""

import json
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from foldlog.log import SettingsError
from foldlog.processors.advice.prices import (
    PICO_PER_USD,
    Cost,
    dollars,
    list_prices,
    load_prices,
    total,
    usd,
)
from foldlog.processors.fold.projections.ledger import Spent

DEFAULTS = {"cache_write_5m": "2", "cache_write_1h": "3", "cache_read": "0.1"}


def spent(model="claude-opus-5-5", read=0, cached=0, five=0, hour=0, written=0):
    tokens = (read, cached, five, hour, written)
    return Spent(1, 1, 1, "complete", model, *tokens, "msg_1", 5)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-opus-5-5", "opus-5-5"),
        ("claude-opus-5", "opus-5"),
        ("claude-opus-5-20260724", "opus-5"),
        ("anthropic.claude-opus-4-1-20250805-v1:0", "opus-4-1"),
        ("claude-opus-4@20250514", "opus-4"),
        ("claude-opus-4.8", "opus-4-8"),
        ("claude-3-5-sonnet-20241022", "3-5-sonnet"),
        ("fable-5-1", "fable-5-1"),
    ],
)
def test_a_model_is_found_by_its_name_despite_prefixes_and_suffixes(name, model):
    assert list_prices().of(name).model == model


@pytest.mark.parametrize("name", ["", "gpt-6", "claude-opus-7", "opus-5-7", "claude-fable-5-2"])
def test_the_cost_of_an_unknown_model_is_unknown_and_not_zero(name):
    table = list_prices()
    assert table.of(name) is None and table.cost(spent(name, read=10)) is None
    both = total([spent(name, read=10), spent(written=50_000)], table)
    assert both == Cost(PICO_PER_USD, 1)
    assert str(both) == "$1.00 and an unknown cost of 1 attempt"
    assert str(total([spent(name)] * 2, table)) == "an unknown cost of 2 attempts"


def test_each_kind_of_token_has_its_own_price():
    million = 1_000_000
    table, costs = list_prices(), {}
    for kind in ("read", "cached", "five", "hour", "written"):
        costs[kind] = usd(table.cost(spent(**{kind: million})))
    assert costs == {"read": "4", "cached": "0.2", "five": "5", "hour": "8", "written": "20"}


def test_the_price_for_long_prompts_applies_to_every_token():
    table, name = list_prices(), "claude-haiku-5-5"
    assert table.cost(spent(name, read=40_000, cached=60_000, written=10)) == (
        40_000 * 100_000 + 60_000 * 10_000 + 10 * 500_000
    )
    assert table.cost(spent(name, read=40_000, cached=60_001, written=10)) == (
        40_000 * 500_000 + 60_001 * 50_000 + 10 * 2_500_000
    )


rows = st.builds(
    spent,
    st.sampled_from(["claude-haiku-5-5", "sonnet-5-5", "no-such-model"]),
    *[st.integers(0, 10**7)] * 5,
)


@given(st.lists(rows, max_size=20))
def test_a_sum_is_exact_and_independent_of_order(spents):
    table = list_prices()
    whole = total(spents, table)
    assert whole == total(reversed(spents), table)
    known = [table.cost(row) for row in spents if table.cost(row) is not None]
    assert whole.picodollars == sum(known) and whole.unpriced == len(spents) - len(known)
    assert Decimal(whole.usd) * PICO_PER_USD == whole.picodollars


def test_amounts_are_rounded_for_display():
    assert [dollars(n) for n in (0, 1, PICO_PER_USD // 1000, 1_234_567_890_123)] == [
        "$0.0000", "under $0.0001", "$0.0010", "$1.23",
    ]


def price_file(tmp_path, content):
    path = tmp_path / "prices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_a_users_table_takes_precedence_over_the_list_prices(tmp_path):
    mine = {"model": "haiku-5-5", "input": 7, "output": 2.5, **DEFAULTS}
    table = load_prices(price_file(tmp_path, {"version": "ours-3", "prices": [mine]}))
    assert table.version == f"ours-3 over {list_prices().version}"
    assert usd(table.cost(spent("claude-haiku-5-5", read=1_000_000, written=2))) == "7.000005"
    assert table.of("claude-opus-5") == list_prices().of("claude-opus-5")
    assert load_prices(None) is list_prices()


ROW = {"model": "x", "input": "1", "output": "1", **DEFAULTS}
INVALID = {
    "invalid JSON": "{",
    "no version": {"prices": []},
    "no prices": {"version": "1"},
    "a list": [],
    "a row is a string": {"version": "1", "prices": ["x"]},
    "a misspelt field": {"version": "1", "prices": [{**ROW, "cache_hit": "1"}]},
    "a missing field": {"version": "1", "prices": [{"model": "x"}]},
    "a negative price": {"version": "1", "prices": [{**ROW, "input": "-1"}]},
    "not a number": {"version": "1", "prices": [{**ROW, "input": "NaN"}]},
    "true": {"version": "1", "prices": [{**ROW, "input": True}]},
    "too many decimals": {"version": "1", "prices": [{**ROW, "input": "0.0000001"}]},
    "more than a dollar a token": {"version": "1", "prices": [{**ROW, "input": "1e9"}]},
    "an invalid model name": {"version": "1", "prices": [{**ROW, "model": "*"}]},
    "half a token": {"version": "1", "prices": [{**ROW, "prompt_over": 0.5}]},
}


@pytest.mark.parametrize("case", INVALID)
def test_the_error_for_an_invalid_table_names_the_file(tmp_path, case):
    path = price_file(tmp_path, INVALID[case])
    with pytest.raises(SettingsError, match=r"prices: .*prices\.json"):
        load_prices(path)


def test_an_unreadable_or_oversized_table_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        load_prices(tmp_path / "none.json")
    huge = price_file(tmp_path, " " * (1024 * 1024 + 1))
    with pytest.raises(SettingsError, match="larger than"):
        load_prices(huge)
