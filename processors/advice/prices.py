"""The cost of tokens: a versioned table of list prices, and exact sums.

Money is counted in whole picodollars (10**-12 USD). A price in USD per million tokens is a whole
number of picodollars per token, so no sum is ever rounded; only `dollars` rounds, for people. A
model that the table lacks has an unknown cost, which is None, is reported as unknown and never
counts as 0. The log has tokens and models; costs are computed from the log and the current table.
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ...log.errors import SettingsError
from ...schemas.value import replace
from ..fold.projections.ledger import Spent

PICO_PER_USD = 10**12
_PER_MILLION = PICO_PER_USD // 10**6  # USD per million tokens to picodollars per token
PARTS = ("input", "output", "cache_write_5m", "cache_write_1h", "cache_read")
TABLE_BYTES_MAX = 1024 * 1024  # a table of prices has a page; a megabyte is another kind of file
_PRICE_USD_MAX = 1_000_000  # per million tokens: more than a dollar per token is a typing error


class Price(NamedTuple):
    """Prices of a model in picodollars per token, for prompts with more than `prompt_over` tokens.

    model: the name of the model without vendor and date, such as opus-5-5.
    """

    model: str
    input: int
    output: int
    cache_write_5m: int
    cache_write_1h: int
    cache_read: int
    prompt_over: int = -1


class PriceTable:
    """Prices of models, with another table as the fallback for models that this table lacks."""

    def __init__(
        self, version: str, prices: Iterable[Price], below: "PriceTable | None" = None
    ) -> None:
        self.version: str = version if below is None else f"{version} over {below.version}"
        self.prices = tuple(prices)
        self._below = below
        self._known: dict[str, tuple[Price, ...]] = {}

    def __repr__(self) -> str:
        return f"PriceTable({self.version!r}, {len(self.prices)} prices)"

    @cached_property
    def _patterns(self) -> dict[str, re.Pattern[str]]:
        return {price.model: _pattern(price.model) for price in self.prices}

    def of(self, model: str, prompt_tokens: int = 0) -> Price | None:
        """The price of a model, or None if the table has none. `prompt_tokens`: all input tokens of
        the request, cached or not, because long prompts may cost more per token."""
        if model not in self._known:
            found = [p for p in self.prices if self._patterns[p.model].search(model)]
            nearest = [price for price in found if price.model == found[0].model]
            self._known[model] = tuple(sorted(nearest, key=lambda price: -price.prompt_over))
        tiers = self._known[model]
        if not tiers and self._below is not None:
            return self._below.of(model, prompt_tokens)
        return next((price for price in tiers if prompt_tokens > price.prompt_over), None)

    def cost(self, row: Spent) -> int | None:
        """The cost of a request in picodollars, or None if the model has no price."""
        price = self.of(row.model, row.read_tokens)
        if price is None:
            return None
        return (
            row.input_tokens * price.input
            + row.output_tokens * price.output
            + row.cache_write_5m_tokens * price.cache_write_5m
            + row.cache_write_1h_tokens * price.cache_write_1h
            + row.cache_read_tokens * price.cache_read
        )


class Cost(NamedTuple):
    """A sum of costs. picodollars: the cost of the attempts whose model has a price; unpriced: the
    number of attempts whose model has none."""

    picodollars: int
    unpriced: int = 0

    @property
    def usd(self) -> str:
        """The sum in exact decimal USD, for programs."""
        return usd(self.picodollars)

    def __str__(self) -> str:
        if not self.unpriced:
            return dollars(self.picodollars)
        attempts = f"{self.unpriced} attempt{'s' if self.unpriced > 1 else ''}"
        known = f"{dollars(self.picodollars)} and " if self.picodollars else ""
        return f"{known}an unknown cost of {attempts}"


def total(rows: Iterable[Spent], table: PriceTable) -> Cost:
    """The exact cost of attempts, and how many of them have no price."""
    costs = [table.cost(row) for row in rows]
    known = [cost for cost in costs if cost is not None]
    return Cost(sum(known), len(costs) - len(known))


class InputCost(NamedTuple):
    """The cost of input in picodollars: the cost that was paid, and the cost that would have been
    paid without a cache.
    """

    paid: int = 0
    uncached: int = 0

    @property
    def saved(self) -> float | None:
        """The share of the input cost that caching saved. It is negative if writing the cache cost
        more than reading it saved, and None if no input has a price."""
        return 1 - self.paid / self.uncached if self.uncached else None

    def __str__(self) -> str:
        if self.saved is None:
            return "no input with a known price"
        word = "saved" if self.saved >= 0 else "added"
        costs = f"{dollars(self.paid)} instead of {dollars(self.uncached)}"
        return f"prompt caching {word} {abs(self.saved):.0%} of the input cost: {costs}"


def input_cost(rows: Iterable[Spent], table: PriceTable) -> InputCost:
    """The cost of the input of these attempts, and the cost that it would have without a cache.

    Output is left out, because it costs the same with and without a cache. Attempts without a price
    are left out too.
    """
    paid = uncached = 0
    for row in rows:
        bare = replace(
            row, input_tokens=row.read_tokens, cache_read_tokens=0, cache_write_5m_tokens=0,
            cache_write_1h_tokens=0, output_tokens=0,
        )
        paid += table.cost(replace(row, output_tokens=0)) or 0
        uncached += table.cost(bare) or 0
    return InputCost(paid, uncached)


def usd(picodollars: int) -> str:
    """Exact decimal USD, as in 0.01234, without rounding and without an exponent."""
    return f"{(Decimal(picodollars) / PICO_PER_USD).normalize():f}"


def dollars(picodollars: int) -> str:
    """USD for people, as in $1.20 or $0.0034; rounded to cents from a dollar on."""
    if picodollars and picodollars < PICO_PER_USD // 10_000:
        return "under $0.0001"
    digits = 2 if picodollars >= PICO_PER_USD else 4
    return f"${Decimal(picodollars) / PICO_PER_USD:.{digits}f}"


@cache
def list_prices() -> PriceTable:
    """The table of list prices in this package."""
    data = files(__package__).joinpath("prices.json").read_bytes()
    return _table(json.loads(data, parse_float=Decimal), "prices.json")


def load_prices(path: Path | None) -> PriceTable:
    """The list prices, or the table in a user's file with the list prices as fallback.

    Raises SettingsError that names the file and the error.
    """
    if path is None:
        return list_prices()
    return _table(_read(path), str(path), list_prices())


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(TABLE_BYTES_MAX + 1)
        if len(data) > TABLE_BYTES_MAX:
            raise SettingsError(f"prices: {path} is larger than {TABLE_BYTES_MAX} bytes")
        return json.loads(data, parse_float=Decimal)
    except OSError as error:
        raise SettingsError(f"prices: {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"prices: {path} is not JSON: {error}") from error


def _table(given: Any, source: str, below: PriceTable | None = None) -> PriceTable:
    rows = given.get("prices") if isinstance(given, Mapping) else None
    version = given.get("version") if isinstance(given, Mapping) else None
    if not isinstance(version, str) or not version.strip() or not isinstance(rows, list):
        raise SettingsError(f"prices: {source} needs a `version` (a text) and a list of `prices`")
    return PriceTable(
        version.strip(),
        [_price(row, f"prices: {source}, row {number}") for number, row in enumerate(rows, 1)],
        below,
    )


def _price(row: Any, at: str) -> Price:
    if not isinstance(row, Mapping):
        raise SettingsError(f"{at} must be an object")
    unknown = sorted(set(row) - {"model", "prompt_over", *PARTS})
    if unknown:
        raise SettingsError(f"{at}: there is no `{unknown[0]}`, only {', '.join(PARTS)}")
    model, over = row.get("model"), row.get("prompt_over", -1)
    if not isinstance(model, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", model):
        raise SettingsError(f"{at}: `model` must be a name, as in opus-5-5")
    if not isinstance(over, int) or isinstance(over, bool):
        raise SettingsError(f"{at}: `prompt_over` must be a whole number of tokens")
    parts = {part: _picodollars(row.get(part), f"{at}: `{part}`") for part in PARTS}
    return Price(model, **parts, prompt_over=over)


def _picodollars(value: Any, at: str) -> int:
    """Converts USD per million tokens to picodollars per token, which must be a whole number."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            raise InvalidOperation
        exact = Decimal(value) * _PER_MILLION
        if not 0 <= exact <= _PRICE_USD_MAX * _PER_MILLION or exact != int(exact):
            raise InvalidOperation
    except InvalidOperation:
        raise SettingsError(
            f"{at} must be USD per million tokens, as in 2.50, with 6 decimals at most"
        ) from None
    return int(exact)


def _pattern(model: str) -> re.Pattern[str]:
    """A pattern that finds a model in a full name:
    opus-5 in claude-opus-5-20260724, not in opus-5-5."""
    name = re.escape(model).replace(r"\.", "[-.]").replace(r"\-", "[-.]")
    return re.compile(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])(?![-.]\d(?!\d{{7}}))")
