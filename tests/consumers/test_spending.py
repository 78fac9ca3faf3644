"""What a session cost: per attempt, per turn and in all, and what is not known."""

from foldlog.consumers.spending import ledger_json, ledger_lines
from foldlog.processors.prices import list_prices
from foldlog.processors.projections.ledger import BACKGROUND, LedgerView, Spent, initial
from foldlog.schemas.value import replace


def ledger(*rows) -> LedgerView:
    return LedgerView(initial().spent.append(*rows))


def answer(turn, attempt=1, model="claude-sonnet-5-5", read=1_000_000):
    return Spent(turn, 1, attempt, "complete", model, read, 0, 0, 0, 0, "msg", turn)


def aside(upto):
    tokens = (1_000_000, 0, 0, 0, 0)
    model = "claude-haiku-4-5"
    return Spent(0, 0, 1, "complete", model, *tokens, "", upto, BACKGROUND, "context", upto)


def test_money_is_told_per_attempt_per_turn_and_in_all_with_the_tables_version():
    held = ledger(answer(1), aside(9), answer(1, 2), answer(2), aside(12))
    told = ledger_json(held, list_prices())
    assert [row["usd"] for row in told["spent"]] == ["2", "1", "2", "2", "1"]
    turns = [(row["turn"], row["attempts"], row["usd"]) for row in told["turns"]]
    assert turns == [(1, 2, "4"), (2, 1, "2"), (None, 2, "2")]
    assert (told["total"]["usd"], told["total"]["unpriced"]) == ("8", 0)
    assert told["total"]["input_tokens"] == 5_000_000
    assert told["prices"] == list_prices().version and told["unpriced_models"] == []


def test_an_unknown_price_is_null_and_named_never_zero():
    told = ledger_json(ledger(answer(1, model="local"), answer(2)), list_prices())
    assert told["spent"][0]["usd"] is None
    assert [row["usd"] for row in told["turns"]] == [None, "2"]
    assert (told["total"]["usd"], told["total"]["unpriced"]) == ("2", 1)
    assert told["unpriced_models"] == ["local"]


def test_people_read_the_same():
    lines = list(ledger_lines(ledger(answer(1), answer(2, model=""), aside(7)), list_prices()))
    shown = [(line["step"], line["cost"]) for line in lines]
    assert shown == [
        ("1.1", "$2.00"), ("turn 1", "$2.00"),
        ("2.1", "unknown"), ("turn 2", "an unknown cost of 1 attempt"),
        ("context to 7", "$1.00"), ("background", "$1.00"),
        ("total", "$3.00 and an unknown cost of 1 attempt"),
    ]
    again = replace(aside(7), request=2)
    lines = ledger_lines(ledger(aside(7), again), list_prices())
    assert [line["attempt"] for line in lines] == ["1", "1, request 2", "all 2", "all 2"]
    assert next(ledger_lines(ledger(), list_prices()))["cost"] == "$0.0000"
