"""The base class of invariants, with the hooks that a world calls. The invariants are in
checks_*.py; what they share with the state search and the laws is in tests/kit/invariants.py."""

from typing import Any

from foldlog.tests.kit.invariants import Rule, Violation


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


def at_each_record(rule: Rule) -> type[Invariant]:
    """The invariant that each record which the witness folds obeys a rule."""

    def on_seen(self: Invariant, seen: Any) -> None:
        rule.demand(seen)

    return type(rule.name, (Invariant,), {"__doc__": rule.__doc__, "on_seen": on_seen})
