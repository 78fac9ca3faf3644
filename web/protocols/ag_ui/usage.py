"""Computes the token usage of a run's model calls as AG-UI counts it."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from ....processors.fold.projections.ledger import ANSWER, LedgerView, Spent


def spent_in(ledger: LedgerView, turn: int, after: int, upto: int) -> list[Spent]:
    """A turn's attempts that reported after the offset `after`, up to `upto`. Background work
    belongs to no turn, so to no run.
    """
    first = bisect_right(ledger.spent, after, key=attrgetter("offset"))
    rows = ledger.spent.since(first)
    return [r for r in rows if (r.kind, r.turn) == (ANSWER, turn) and r.offset <= upto]


def usage_of(rows: Iterable[Spent]) -> list[dict[str, Any]]:
    """One TokenUsage per model, in order of first use. The log does not name the provider."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        parts = {
            "inputTokens": row.read_tokens,
            "outputTokens": row.output_tokens,
            "totalTokens": row.read_tokens + row.output_tokens,
            "cachedInputTokens": row.cache_read_tokens,
            "cacheWriteInputTokens": row.cache_write_tokens,
        }
        so_far = found.setdefault(row.model, {"model": row.model} if row.model else {})
        for name, tokens in parts.items():
            so_far[name] = so_far.get(name, 0) + tokens
    return list(found.values())
