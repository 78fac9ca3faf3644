"""When a reconciler is asked early: after its call's owner is proven dead, before the deadline.

A request of the dead owner may still be under way. So the answer "it happened" counts at once, and
"it did not happen" counts only once the deadline and the margin have passed. Until then a worker
asks a few times, with growing pauses. The times of the questions are kept in memory only, so a
worker that takes over asks again.
"""

from .ports import EffectId

PAUSES_MS = (5_000, 20_000, 60_000)  # before the second, third and each later question


class EarlyAsks:
    """The early questions of a worker's sessions."""

    def __init__(self) -> None:
        self._asked: dict[EffectId, tuple[int, int]] = {}  # how many, and when the next is due

    def is_due(self, effect: EffectId, now: int) -> bool:
        """Whether a question is due at the time `now` (Unix ms)."""
        return effect not in self._asked or now >= self._asked[effect][1]

    def record(self, effect: EffectId, now: int, ended_at: int) -> None:
        """Record a question. None is due from `ended_at` on, when every answer counts."""
        count, _ = self._asked.get(effect, (0, 0))
        due = now + PAUSES_MS[count] if count < len(PAUSES_MS) else ended_at
        self._asked[effect] = (count + 1, min(due, ended_at))

    def due_at(self, effect: EffectId) -> int:
        """The time of the next question (Unix ms), or the time from which every answer counts."""
        return self._asked[effect][1]

    def forget(self, session_id: str) -> None:
        """Forget a session that has no obligations."""
        self._asked = {e: due for e, due in self._asked.items() if e.session_id != session_id}
