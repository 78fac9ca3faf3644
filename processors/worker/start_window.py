"""The start window: a claim that comes back too late does not begin its effect (T4, S2, B2, D2).

The deadline of a claim counts from when it was produced. Whoever reads its own claim late, as a
worker that was paused, would begin when another may already have taken it over: a tool would run
late, and a model call would be paid for twice. Time is that of the monotonic clock.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..agent import Agent
from ..wake.facts import Obligation


class Begins(NamedTuple):
    """How soon an effect must begin, and its outcome, for a reason, if it did not."""

    window_ms: int
    unbegun: Callable[[str], Any]

    @classmethod
    def of(cls, agent: Agent, unbegun: Callable[[str], Any]) -> "Begins":
        """The window of an agent's effects."""
        return cls(agent.limits.start_window_ms, unbegun)


class ClaimTimes:
    """When each claim of this process was produced (monotonic ms)."""

    def __init__(self) -> None:
        self._produced_at: dict[str, dict[tuple, int]] = {}

    def produced(self, session_id: str, owed: Obligation, claim: Any, at_ms: int) -> None:
        """Note that a claim is on its way."""
        self._produced_at.setdefault(session_id, {})[_place(owed, claim)] = at_ms

    def too_late(
        self, session_id: str, owed: Obligation, claim: Any, agent: Agent, now_ms: int
    ) -> str | None:
        """Why a claim that came back may not begin any more, or None."""
        at_ms = self._produced_at.get(session_id, {}).get(_place(owed, claim))
        window = agent.limits.start_window_ms
        if at_ms is not None and now_ms - at_ms <= window:
            return None
        return f"the worker could not begin within {window} ms"

    def forget(self, session_id: str) -> None:
        """Nothing of the session is in flight."""
        self._produced_at.pop(session_id, None)


def _place(owed: Obligation, claim: Any) -> tuple:
    """What a claim is known by when it comes back. With the deadline: one that comes back late is
    not the one that was made anew since."""
    return owed.role, *owed.subject, claim.epoch, claim.deadline
