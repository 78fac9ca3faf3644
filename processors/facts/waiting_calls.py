"""The calls of a session that wait for a person. Pure."""

from ..fold.calls import ASKS, IN_DOUBT
from ..fold.projections.turn_view import Call, TurnView


def asking(turn: TurnView) -> list[Call]:
    """The calls that wait for approval, oldest first."""
    calls = turn.calls if turn.closing is None else ()
    return [call for call in calls if call.status is ASKS]


def doubtful(turn: TurnView) -> list[Call]:
    """The calls in doubt, oldest first: a person must report what happened."""
    return [call for call in (*turn.doubts, *turn.calls) if call.status in IN_DOUBT]
