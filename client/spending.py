"""Computes the cost of a session from its ledger and a table of prices, for people and machines.

A cost is an exact decimal number of USD as text, or null if the model has no price. `unpriced`
counts the attempts that a sum leaves out because their price is unknown.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ..processors.advice.prices import Cost, InputCost, PriceTable, dollars, input_cost, total, usd
from ..processors.fold.projections.ledger import BACKGROUND, LedgerView, Spent
from .printable import plain

TOKENS = tuple(
    f"{part}_tokens" for part in "input cache_read cache_write_5m cache_write_1h output".split()
)


def ledger_json(ledger: LedgerView, table: PriceTable) -> dict[str, Any]:
    """The ledger with the cost per request, per turn, of background work and in total."""
    rows = list(ledger.spent)
    whole = total(rows, table)
    return {
        "spent": [_attempt(row, table) for row in rows],
        "turns": [
            {"turn": turn, **sum_json(of_turn), **cost_json(total(of_turn, table))}
            for turn, of_turn in turns(rows)
        ],
        "total": {**sum_json(rows), **cost_json(whole)},
        "caching": caching_json(saving_of(ledger, table)),
        "unpriced_models": sorted({row.model for row in rows if table.cost(row) is None}),
        "prices": table.version,
    }


def turns(rows: Iterable[Spent]) -> Iterator[tuple[int | None, list[Spent]]]:
    """Each turn with its attempts, in order; background work comes last, with None as the turn."""
    for (is_background, turn), of_turn in groupby(sorted(rows, key=_turn_of), key=_turn_of):
        yield (None if is_background else turn), list(of_turn)


def session_cost(ledger: LedgerView, table: PriceTable) -> Cost:
    """The cost of a session so far."""
    return total(ledger.spent, table)


def saving_of(ledger: LedgerView, table: PriceTable) -> InputCost:
    """The cost of a session's input so far, with and without prompt caching."""
    return input_cost(ledger.spent, table)


def caching_json(cost: InputCost) -> dict[str, Any]:
    """The share of the input cost that prompt caching saved. It is below 0 if caching cost more,
    and null if no input has a known price.
    """
    return {
        "input_usd": usd(cost.paid),
        "input_uncached_usd": usd(cost.uncached),
        "saved": None if cost.saved is None else round(cost.saved, 4),
    }


def ledger_lines(ledger: LedgerView, table: PriceTable) -> Iterator[dict[str, Any]]:
    """A row for each request and each turn, for a printed table; the total comes last."""
    for turn, rows in turns(ledger.spent):
        for row in rows:
            place = f"{row.work} to {row.upto}" if turn is None else f"{row.turn}.{row.step}"
            cost = table.cost(row)
            shown = "unknown" if cost is None else dollars(cost)
            again = f", request {row.request}" if row.request > 1 else ""
            yield {
                "step": place,
                "attempt": f"{row.attempt}{again}",
                "outcome": row.outcome,
                "model": row.model or "unknown",
                **{_short(name): getattr(row, name) for name in TOKENS},
                "cost": shown,
            }
        yield _line("background" if turn is None else f"turn {turn}", rows, table)
    yield _line("total", list(ledger.spent), table)


def _line(what: str, rows: list[Spent], table: PriceTable) -> dict[str, Any]:
    sums = {_short(name): number for name, number in sum_json(rows).items() if name in TOKENS}
    return {"step": what, "attempt": f"all {len(rows)}", **sums, "cost": str(total(rows, table))}


def _short(name: str) -> str:
    return name.removesuffix("_tokens").removeprefix("cache_")


def _turn_of(row: Spent) -> tuple[bool, int]:
    return row.kind == BACKGROUND, row.turn


def _attempt(row: Spent, table: PriceTable) -> dict[str, Any]:
    cost = table.cost(row)
    return {**plain(row), "usd": None if cost is None else usd(cost)}


def sum_json(rows: list[Spent]) -> dict[str, int]:
    """The number of requests, and the sums of their tokens."""
    tokens = {name: sum(getattr(row, name) for row in rows) for name in TOKENS}
    return {"attempts": len(rows), **tokens}


def cost_json(cost: Cost) -> dict[str, Any]:
    """A cost as `usd` (null if no attempt has a price), and the number of attempts that it leaves
    out.
    """
    known = cost.picodollars or not cost.unpriced
    return {"usd": cost.usd if known else None, "unpriced": cost.unpriced}
