"""Measures a turn for a chat: its cost, and how long it, its tools and its model calls took.

Times are the broker's, from the records, so a chat that joins late shows the same times.
"""

import time

from ...processors.advice.prices import PriceTable, total
from ...processors.fold.projections.ledger import ANSWER
from ...processors.fold.sessions import FoldedEvent
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.enums import Approval

SHOWN_AFTER_S = 1.0
"""Work that takes fewer seconds is shown without a clock."""


class TurnMeter:
    """Call `take` for every event of the session, and `summary` when a turn has ended."""

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._turn = self._began_at = self._ended_at = 0
        self._model_ms = self._person_ms = 0
        self._model_at: int | None = None  # when the running model call began
        self._people: dict[str, int] = {}  # since when each call waits for a person
        self._tools: dict[str, tuple[str, int, float]] = {}  # running: name, since when, our clock
        self._took: dict[str, int] = {}  # how many ms each ended call took
        self._last_event_s = time.monotonic()

    def take(self, step: FoldedEvent) -> None:
        """Count one event."""
        if not step.ruling.accepted:
            return
        at, event = step.entry.at, step.entry.event
        self._last_event_s = time.monotonic()
        turn = step.views.turn
        if turn.open and (turn.number != self._turn or not step.before.turn.open):
            self._turn, self._began_at = turn.number, at
            self._model_ms = self._person_ms = 0
            self._people, self._tools, self._took = {}, {}, {}
        match event:
            case ev.GenStart() | ev.GenResumed():
                self._model_at = at
            case ev.GenComplete() | ev.GenFailed() | ev.GenStopped():
                if self._model_at is not None:
                    self._model_ms += max(0, at - self._model_at)
                self._model_at = None
            case ev.ToolInvoked(approval=Approval.ASK):
                self._people[_key(event)] = at
            case ev.HumanNeeded():
                self._people[event.call] = at
            case ev.ApprovalDecided() | ev.ApprovalExpired() | ev.HumanResolved():
                self._person_ms += max(0, at - self._people.pop(event.call, at))
            case ev.ToolStarted():
                call = next((c for c in turn.calls if c.key == _key(event)), None)
                name = "" if call is None else call.name
                self._tools[_key(event)] = (name, at, time.monotonic())
            case ev.ToolResult() | ev.ToolFailedUncertain():
                running = self._tools.pop(_key(event), None)
                if running is not None:
                    self._took[_key(event)] = max(0, at - running[1])
            case ev.TurnEnded():
                self._ended_at = at
                self._tools.clear()

    def tool_ms(self, call: str) -> int | None:
        """How long a call ran, in ms; None if it did not run."""
        return self._took.get(call)

    def running(self) -> str:
        """The work that has been running for a while, and for how long; '' if there is none."""
        now = time.monotonic()
        if self._tools:
            parts = [f"{name} {now - since:.0f} s" for name, _, since in self._tools.values()
                     if now - since >= SHOWN_AFTER_S]
            return ", ".join(parts)
        if self._model_at is not None and now - self._last_event_s >= SHOWN_AFTER_S:
            return f"waiting for the model {now - self._last_event_s:.0f} s"
        return ""

    def summary(self, views: SessionViews, turn: int) -> str:
        """One line about a turn that has ended: time, tokens, rate, cost."""
        rows = [row for row in views.ledger.spent if row.kind == ANSWER and row.turn == turn]
        parts = []
        if turn == self._turn and self._ended_at:
            parts.append(took(max(0, self._ended_at - self._began_at - self._person_ms)))
        if rows:
            read, out = sum(r.read_tokens for r in rows), sum(r.output_tokens for r in rows)
            cached = sum(row.cache_read_tokens for row in rows)
            share = f" ({cached / read:.0%} cached)" if cached else ""
            rate = f" at {1000 * out / self._model_ms:.0f} tokens/s" if self._model_ms else ""
            cost = total(rows, self._prices)
            known = cost.picodollars or not cost.unpriced
            parts += [f"{read:,} tokens in{share}, {out:,} out{rate}",
                      str(cost) if known else "cost unknown"]
        return f"turn {turn}: {', '.join(parts)}" if parts else ""


def took(ms: int) -> str:
    """A duration as text for people."""
    seconds = ms / 1000
    if ms < 1000:
        return f"{ms} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _key(event: ev.ToolInvoked | ev.ToolStarted | ev.ToolResult | ev.ToolFailedUncertain) -> str:
    return f"{event.turn}.{event.step}.{event.index}"
