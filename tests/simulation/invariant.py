"""What an invariant may watch: the hooks that a world calls. The invariants are in checks_*.py."""

from typing import Any


class Violation(BaseException):
    """An invariant does not hold. `name` is the invariant's. No worker may swallow it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


class Invariant:
    """A named statement about every schedule; its docstring says where it comes from."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def fail(self, why: str) -> None:
        """It does not hold."""
        raise Violation(type(self).__name__, why)

    def demand(self, holds: Any, why: str) -> None:
        """Fail if it does not hold. Where `why` is costly to make: `if not holds: fail(why)`."""
        if not holds:
            self.fail(why)

    def on_seen(self, seen: Any) -> None:
        """The witness folded a record of a session."""

    def on_taken(self, partition: int, entry: Any) -> None:
        """The witness folded a PARTITION_TAKEN that counts."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        """A worker hands a record of a session or a take to its producer."""

    def on_assigned(self, process: Any, partitions: list[int]) -> None:
        """A worker is about to hear that partitions are its own."""

    def on_round(self, process: Any) -> None:
        """A worker ended a round."""

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        """An effect begins."""

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        """A reconciler is about to be asked."""

    def on_executed(self, line: Any) -> None:
        """A tool acted on the world."""

    def on_jump(self, gap_ms: int) -> None:
        """Nobody has anything to do for so long."""

    def when_calm(self) -> None:
        """Nothing moves any more, and no fault is left."""

    def at_end(self) -> None:
        """The schedule is over."""


def calls_of(views: Any) -> dict[str, Any]:
    """Every call of the turn view, by key."""
    return {call.key: call for call in (*views.turn.doubts, *views.turn.calls)}
