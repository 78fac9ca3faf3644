"""Why a turn failed: the last failure of its model call, found in the transcript."""

from ..fold.projections.transcript import Line
from ..fold.rows import Rows
from ..fold.views import SessionViews
from .models.errors import advice_in

Lines = list[Line] | Rows[Line]


def last_failure(turn: int, lines: Lines) -> str:
    """The last failed attempt of a turn: `attempt N: CLASS: DETAIL`; '' if none failed."""
    newest_first = (lines[place] for place in range(len(lines) - 1, -1, -1))
    failed = (x for x in newest_first if (x.turn, x.kind, x.name) == (turn, "attempt", "failed"))
    return next((line.text for line in failed), "")


def failed_turn(views: SessionViews) -> str:
    """A log line about a failed turn. It has no content of the session."""
    turn = views.turn
    failure = last_failure(turn.number, views.transcript.lines)
    error = turn.generation.error if turn.generation is not None else ""
    reason = ": ".join(filter(None, (error, advice_in(error, failure))))
    reason += "" if reason.endswith("?") else "."
    return (
        f"session {views.session_id}: turn {turn.number} failed: the model call failed "
        f"({failure.partition(':')[0]}): {reason} The whole reason: "
        f"foldlog tail {views.session_id}"
    )
