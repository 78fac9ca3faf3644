"""Measures the turns of a session from the lines of its transcript: how long they took without the
time in which they waited for people. Times are the broker's, in Unix ms. Pure.
"""

from ..fold.projections.transcript import Line

ENDED = "ended"
"""The `kind` of the line of a turn's end."""

_WORK_ENDS = frozenset({"answer", "partial", "attempt", "result"})
_PERSON_ENDS = frozenset({"approval", "resolved"})
_PERSON_BEGINS = frozenset({"asks", "doubt"})
WAITS = _PERSON_BEGINS | _PERSON_ENDS
"""The kinds of lines with which a wait for a person begins or ends."""


class TurnClock:
    """Follows one session. For each line of the transcript, call `begin` and then `advance`.

    turn: the turn of the last line, or the last turn that ended.
    began_at: when that turn began.
    since: when the present work began.
    people: since when each call waits for a person. A turn waits for its own calls only; doubts of
        earlier turns do not delay it.
    """

    def __init__(self, turn: int = 0, since: int = 0) -> None:
        self.turn, self.since, self.began_at = turn, since, 0
        self.people: dict[str, int] = {}
        self._delaying: set[str] = set()  # the calls of this turn among them
        self._waited_from = self._waited_ms = 0

    def begin(self, line: Line) -> bool:
        """Begin a turn if the line is the first of a turn, and return whether it is."""
        if line.turn <= self.turn:
            return False
        # A queued message opens the next turn when the present turn ends.
        begun = line.at if line.kind == "message" else (self.since or line.at)
        self.turn, self.began_at, self.since = line.turn, begun, begun
        self._waited_ms = 0
        return True

    def advance(self, line: Line) -> int | None:
        """Move to a line. If it ends a turn, returns the milliseconds that the turn worked."""
        kind = line.kind
        if kind in _WORK_ENDS:
            self.since = line.at
        elif kind in _PERSON_BEGINS:
            self._wait(line)
        elif kind in _PERSON_ENDS:
            self._resume(line)
            self.since = line.at
        elif kind == ENDED:
            return self._end(line)
        return None

    def _wait(self, line: Line) -> None:
        self.people.setdefault(line.call, line.at)
        if line.turn != self.turn:
            return
        if not self._delaying:
            self._waited_from = line.at
        self._delaying.add(line.call)

    def _resume(self, line: Line) -> None:
        self.people.pop(line.call, None)
        if line.call in self._delaying:
            self._delaying.remove(line.call)
            self._count_wait(line)

    def _count_wait(self, line: Line) -> None:
        if not self._delaying:
            self._waited_ms += max(0, line.at - self._waited_from)

    def _end(self, line: Line) -> int:
        if self._delaying:
            self._delaying.clear()
            self._count_wait(line)
        self.people = {}
        self.since = line.at
        return max(0, max(0, line.at - self.began_at) - self._waited_ms)
