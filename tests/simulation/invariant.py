"""The base class of invariants, with the hooks that a world calls. The invariants are in
checks_*.py."""

from collections.abc import Callable
from typing import Any

from foldlog.schemas.ids import call_key


class Violation(BaseException):
    """An invariant does not hold. This is a BaseException, so that no worker catches it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


class Invariant:
    """A named statement about every schedule. Its docstring names the law or row that it comes
    from."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def fail(self, why: str) -> None:
        """Raise the violation."""
        raise Violation(type(self).__name__, why)

    def demand(self, holds: Any, why: str) -> None:
        """Fail unless `holds` is true. If `why` is expensive to format, use `if not holds:
        fail(why)`."""
        if not holds:
            self.fail(why)

    def holds(self, rule: Callable[..., None], *args: Any) -> None:
        """Check a rule that is shared with the laws, and fail if the rule raises AssertionError."""
        try:
            rule(*args)
        except AssertionError as broken:
            self.fail(str(broken))

    def on_seen(self, seen: Any) -> None:
        """Called when the witness has folded a record of a session."""

    def on_taken(self, partition: int, entry: Any) -> None:
        """Called when the witness has folded a PARTITION_TAKEN that is in force."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        """Called when a worker passes a record (an event of a session, or a PARTITION_TAKEN) to its
        producer."""

    def on_assigned(self, process: Any, partitions: list[int]) -> None:
        """Called before partitions are assigned to a worker."""

    def on_round(self, process: Any) -> None:
        """Called when a worker has finished a round."""

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        """Called when an effect begins."""

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        """Called before a reconciler is called."""

    def on_executed(self, line: Any) -> None:
        """Called when a tool has acted on the world."""

    def on_jump(self, gap_ms: int) -> None:
        """Called before the clock jumps, because no action is possible for `gap_ms`."""

    def when_calm(self) -> None:
        """Called when no action is possible any more and no fault remains."""

    def at_end(self) -> None:
        """Called when the schedule is over."""


def key_of(call: Any) -> str:
    """The key of the call that an event, or a fragment of the context, names."""
    return call_key(call.turn, call.step, call.index)


def calls_of(views: Any) -> dict[str, Any]:
    """Every call of the turn view, by key."""
    return {call.key: call for call in (*views.turn.doubts, *views.turn.calls)}
