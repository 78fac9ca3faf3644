"""Counts what a worker folds and does. metrics.py renders the counters.

Each event of the log is counted once, by the worker that holds its partition: a rebuilt store
folds old events without counting them again. Labels are fixed words and names of models, never an
id or content.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.events import BY_CLASS
from ..advice.prices import PICO_PER_USD, PriceTable, input_cost
from ..fold.projections import compaction, ledger
from ..fold.projections.ledger import Spent
from ..fold.projections.session_state import RefusedTrigger, refusals_of
from ..fold.projections.turn_view import call_of
from ..fold.ruling import Ruling, Verdict
from ..fold.transitions import WRONG_PHASE
from ..fold.views import SessionViews

SERIES_MAX = 500
"""How many values a label of a family has at most. A log may name any number of models; models
beyond this limit count as `other`.
"""


LOGGED_REFUSALS = frozenset(
    {"invalid_transition", "not_the_project_tool", "not_confirmed", WRONG_PHASE}
)
"""The codes of the refusals that are logged. Such a refusal is mostly the mistake of a program, not
of a person.
"""


class Family(NamedTuple):
    """One metric: its name without the suffix, its kind (counter or gauge), its help text and its
    labels.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


COUNTERS = {
    family.name: family
    for family in (
        Family("foldlog_events", "counter", "Folded events, with the fold's ruling on them.",
               ("type", "ruling")),
        Family("foldlog_refusals", "counter", "Refused requests.", ("code",)),
        Family("foldlog_claims", "counter", "Claims of effects that were read back.",
               ("role", "ruling")),
        Family("foldlog_attempts", "counter", "Attempts of effects that ended.",
               ("role", "outcome")),
        Family("foldlog_turns", "counter", "Turns that ended.", ("reason",)),
        Family("foldlog_tokens", "counter", "Billed tokens.",
               ("model", "part", "work")),
        Family("foldlog_cost_usd", "counter", "Cost of the tokens by the price table.",
               ("model", "work")),
        Family("foldlog_input_cost_usd", "counter", "Cost of the input tokens.", ("model", "work")),
        Family("foldlog_input_cost_uncached_usd", "counter",
               "Cost of the input tokens without prompt caching.", ("model", "work")),
        Family("foldlog_unpriced_attempts", "counter", "Attempts whose model has no price.",
               ("model",)),
        Family("foldlog_wake_rows", "counter", "WAKE rows for which an event was written.",
               ("row",)),
        Family("foldlog_dead_letters", "counter", "Records that could not be decoded."),
        Family("foldlog_short_forms", "counter",
               "Short forms of results: in time, before a request contained the result, or late.",
               ("when",)),
        Family("foldlog_snapshots", "counter", "Snapshots of stores.", ("outcome",)),
        Family("foldlog_facts_sent", "counter", "Facts that a broker confirmed."),
        Family("foldlog_facts_failed", "counter", "Events whose fact could not be derived: a bug."),
        Family("foldlog_tool_results", "counter", "Tool results, and whether they were cached.",
               ("outcome", "cached")),
    )
}

_CLAIMS = {
    ev.GenStart: "models",
    ev.GenResumed: "models",
    ev.ToolStarted: "tools",
    ev.BackgroundStarted: "background",
    ev.DeliveryStarted: "delivery",
}
_ENDS: dict[type, tuple[str, Callable[[Any], str]]] = {
    ev.GenComplete: ("models", lambda _: "complete"),
    ev.GenFailed: ("models", lambda event: f"failed: {event.error}"),
    ev.GenStopped: ("models", lambda _: "stopped"),
    ev.ToolResult: ("tools", lambda event: event.outcome),
    ev.ToolFailedUncertain: ("tools", lambda _: "uncertain"),
    ev.BackgroundDone: ("background", lambda event: "ok" if event.ok else "failed"),
    ev.GenSent: ("delivery", lambda _: "sent"),
}
_PARTS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")


class Meter:
    """Counters by family and labels. One thread counts, any thread may read."""

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._counts: dict[str, dict[tuple[str, ...], float]] = {
            name: defaultdict(int) for name in COUNTERS
        }
        for alerted in ("foldlog_dead_letters", "foldlog_facts_failed", "foldlog_facts_sent"):
            self.add(alerted, by=0)  # an alert needs a 0 before the first one
        for when in ("in time", "late"):  # 0 from the start: a ratio needs both series
            self.add("foldlog_short_forms", when, by=0)
        for outcome in ("made", "failed"):
            self.add("foldlog_snapshots", outcome, by=0)

    def counts(self) -> dict[Family, dict[tuple[str, ...], float]]:
        """All counters."""
        return {COUNTERS[name]: dict(counted) for name, counted in self._counts.items()}

    def total(self, name: str) -> float:
        """The sum of a family over its labels."""
        return sum(self._counts[name].values())

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        counted = self._counts[name]
        if labels not in counted and len(counted) >= SERIES_MAX:
            labels = ("other",) * len(labels)
        counted[labels] += by

    def count(self, entry: Entry, before: SessionViews, ruling: Ruling) -> None:
        """Count an event. If several chunks of one attempt are folded at once, this is called only
        for the first.
        """
        event = entry.event
        kind = type(event)
        if kind is ChunkSeen:
            return
        name = event.type if kind is Unreadable else BY_CLASS[kind].name
        word = ruling.code or ruling.verdict
        if ruling.verdict == Verdict.REFUSED:
            self.add("foldlog_refusals", word)
            word = "refused"
        self.add("foldlog_events", name if name in ev.BY_NAME else "unknown", word)
        if kind in _CLAIMS:
            self.add("foldlog_claims", _CLAIMS[kind], word)
        if ruling.accepted:
            self._accepted(entry, before, event)
        if kind in ledger.OUTCOMES and word in ("accepted", "superseded", "late", "duplicate"):
            known = len(before.ledger.spent)
            self._paid(ledger.apply(before.ledger, entry).spent.since(known))

    def _accepted(self, entry: Entry, before: SessionViews, event: Any) -> None:
        kind = type(event)
        for refusal in refusals_of(before.state, before.turn, event):
            self.add("foldlog_refusals", refusal.code)
        if kind in _ENDS:
            role, outcome_of = _ENDS[kind]
            self.add("foldlog_attempts", role, outcome_of(event))
        match event:
            case ev.TurnEnded():
                self.add("foldlog_turns", event.reason)
            case ev.ToolResult():
                cached = "no" if event.cached_at is None else "yes"
                self.add("foldlog_tool_results", event.outcome, cached)
            case ev.ResultCompacted():
                short = compaction.apply(before.compaction, entry, before.context).shorts[-1]
                self.add("foldlog_short_forms", "in time" if short.early else "late")

    def _paid(self, rows: Iterable[Spent]) -> None:
        for row in rows:
            model, work = row.model or "unknown", row.work or row.kind
            for part in _PARTS:
                tokens = getattr(row, f"{part}_tokens")
                if tokens:
                    self.add("foldlog_tokens", model, part, work, by=tokens)
            cost = self._prices.cost(row)
            if cost is None:
                self.add("foldlog_unpriced_attempts", model)
            else:
                self.add("foldlog_cost_usd", model, work, by=cost / PICO_PER_USD)
                paid, uncached = input_cost((row,), self._prices)
                self.add("foldlog_input_cost_usd", model, work, by=paid / PICO_PER_USD)
                self.add(
                    "foldlog_input_cost_uncached_usd", model, work, by=uncached / PICO_PER_USD
                )


def refusal_lines(entry: Entry, before: SessionViews, ruling: Ruling) -> Iterator[str]:
    """A log line for each refusal whose code is in LOGGED_REFUSALS."""
    event, whose = entry.event, "a command"
    asked: tuple[Ruling | RefusedTrigger, ...] = (ruling,)
    if isinstance(event, ev.ToolInvoked | ev.ToolResult):
        asked = refusals_of(before.state, before.turn, event) if ruling.accepted else ()
        call = call_of(before.turn, event)
        whose = f"tool {call.name} (call {call.key})" if call is not None else whose
    for refusal in asked:
        if refusal.code in LOGGED_REFUSALS:
            yield f"session {entry.session_id}: {whose} was refused: {refusal.detail}"
