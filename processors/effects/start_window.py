"""The start window: a claim that is read back too late does not begin its effect.

The deadline of a claim counts from the moment when the claim was produced. If a worker reads its
own claim late, for example after a pause, another worker may already have taken the claim over. If
the effect began nevertheless, a tool would run late, or a model call would be paid for twice. The
start window applies to the WAKE rows that begin effects: T4, S2, B2 and D2. Times are read from the
monotonic clock.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..agent import Agent
from ..fold.references import Subject
from ..wake.facts import Obligation

_Place = tuple[str, Subject, int, int]  # role, subject, epoch and deadline of a claim


class StartWindow(NamedTuple):
    """The time within which an effect must begin, and the function that builds the outcome of an
    effect that did not begin in this time.
    """

    window_ms: int
    outcome: Callable[[str], Any]

    @classmethod
    def of(cls, agent: Agent, outcome: Callable[[str], Any]) -> "StartWindow":
        """The start window of an agent's effects."""
        return cls(agent.limits.start_window_ms, outcome)


class ClaimTimes:
    """When each claim of this process was produced (monotonic ms)."""

    def __init__(self) -> None:
        self._produced_at: dict[str, dict[_Place, int]] = {}

    def record(self, session_id: str, obligation: Obligation, claim: Any, at_ms: int) -> None:
        """Record when a claim was produced."""
        self._produced_at.setdefault(session_id, {})[_place(obligation, claim)] = at_ms

    def too_late(
        self, session_id: str, obligation: Obligation, claim: Any, agent: Agent, now_ms: int
    ) -> str | None:
        """The reason why the effect of a claim must not begin: the claim was read back too late.
        None if the effect may begin.
        """
        at_ms = self._produced_at.get(session_id, {}).get(_place(obligation, claim))
        window = agent.limits.start_window_ms
        if at_ms is not None and now_ms - at_ms <= window:
            return None
        return f"the worker could not begin within {window} ms"

    def forget(self, session_id: str) -> None:
        """Forget a session that has nothing in flight."""
        self._produced_at.pop(session_id, None)


def _place(obligation: Obligation, claim: Any) -> _Place:
    """Identifies a claim when it is read back. The identity includes the deadline, so that a claim
    that is read back late differs from a newer claim that was produced in the meantime."""
    return obligation.role, obligation.subject, claim.epoch, claim.deadline
