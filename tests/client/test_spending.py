"""The cost of a session: per attempt, per turn and in total, and attempts of unknown cost."""

import pytest

from foldlog.client.spending import ledger_json, ledger_lines, saving_of
from foldlog.processors.advice.prices import list_prices, usd
from foldlog.processors.fold.projections.ledger import BACKGROUND, LedgerView, Spent, initial
from foldlog.schemas.value import replace


def ledger(*rows) -> LedgerView:
    return LedgerView(initial().spent.append(*rows))


def answer(turn, attempt=1, model="claude-sonnet-5-5", read=1_000_000):
    return Spent(turn, 1, attempt, "complete", model, read, 0, 0, 0, 0, "msg", turn)


def background(upto):
    tokens = (1_000_000, 0, 0, 0, 0)
    model = "claude-haiku-4-5"
    return Spent(0, 0, 1, "complete", model, *tokens, "", upto, BACKGROUND, "context", upto)


def test_costs_are_listed_per_attempt_per_turn_and_in_total():
    ledger_view = ledger(answer(1), background(9), answer(1, 2), answer(2), background(12))
    result = ledger_json(ledger_view, list_prices())
    assert [row["usd"] for row in result["spent"]] == ["2", "1", "2", "2", "1"]
    turns = [(row["turn"], row["attempts"], row["usd"]) for row in result["turns"]]
    assert turns == [(1, 2, "4"), (2, 1, "2"), (None, 2, "2")]
    assert (result["total"]["usd"], result["total"]["unpriced"]) == ("8", 0)
    assert result["total"]["input_tokens"] == 5_000_000
    assert result["prices"] == list_prices().version and result["unpriced_models"] == []


def test_an_unknown_price_is_null_and_named_never_zero():
    result = ledger_json(ledger(answer(1, model="local"), answer(2)), list_prices())
    assert result["spent"][0]["usd"] is None
    assert [row["usd"] for row in result["turns"]] == [None, "2"]
    assert (result["total"]["usd"], result["total"]["unpriced"]) == ("2", 1)
    assert result["unpriced_models"] == ["local"]


def cached(turn, fresh, read, write_5m=0, write_1h=0, model="claude-sonnet-5-5"):
    tokens = (fresh, read, write_5m, write_1h, 1_000_000)
    return Spent(turn, 1, 1, "complete", model, *tokens, "msg", turn)


def test_S3_7_the_saving_by_caching_is_computed_from_the_ledger():
    """The expected values are calculated by hand. claude-sonnet-5-5 costs $2 for a million input
    tokens; a write to the 5m cache costs 1.25 times that price, a read from the cache at most a
    tenth. Output does not count."""
    price = list_prices().of("claude-sonnet-5-5")
    ledger_view = ledger(cached(1, 0, 0, 1_000_000), cached(2, 100_000, 900_000, 0))
    paid = 1_000_000 * price.cache_write_5m + 100_000 * price.input + 900_000 * price.cache_read
    result = ledger_json(ledger_view, list_prices())["caching"]
    assert result["input_usd"] == usd(paid) and result["input_uncached_usd"] == "4"
    assert result["saved"] == pytest.approx(1 - paid / (2_000_000 * price.input), abs=1e-4)
    assert 0.3 < result["saved"] < 0.5
    assert str(saving_of(ledger_view, list_prices())).startswith("prompt caching saved 3")


def test_S3_7_a_cache_that_is_never_read_is_a_loss():
    result = saving_of(ledger(cached(1, 0, 0, 0, 1_000_000)), list_prices())
    assert result.saved == pytest.approx(-1) and "added 100% of the input cost" in str(result)


def test_S3_7_models_without_a_price_are_left_out_of_the_saving():
    unknown = cached(1, 5, 1_000_000, model="local")
    known = cached(2, 1_000_000, 0)
    assert saving_of(ledger(unknown, known), list_prices()).saved == 0
    assert ledger_json(ledger(unknown), list_prices())["caching"]["saved"] is None
    assert ledger_json(ledger(), list_prices())["caching"]["saved"] is None


def test_the_printed_table_has_the_same_costs():
    lines = list(ledger_lines(ledger(answer(1), answer(2, model=""), background(7)), list_prices()))
    shown = [(line["step"], line["cost"]) for line in lines]
    assert shown == [
        ("1.1", "$2.00"), ("turn 1", "$2.00"),
        ("2.1", "unknown"), ("turn 2", "an unknown cost of 1 attempt"),
        ("context to 7", "$1.00"), ("background", "$1.00"),
        ("total", "$3.00 and an unknown cost of 1 attempt"),
    ]
    again = replace(background(7), request=2)
    lines = ledger_lines(ledger(background(7), again), list_prices())
    assert [line["attempt"] for line in lines] == ["1", "1, request 2", "all 2", "all 2"]
    assert next(ledger_lines(ledger(), list_prices()))["cost"] == "$0.0000"
