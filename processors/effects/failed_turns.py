"""Why a turn failed: the last failure of its model call, found in the transcript."""

from ...schemas.enums import EndReason
from ..fold.projections.transcript import FAILED, Line
from ..fold.projections.turn_view import REBUILDABLE
from ..fold.rows import Rows
from ..fold.views import SessionViews
from .models.errors import advice_of

Lines = list[Line] | Rows[Line]


def last_failure(turn: int, lines: Lines) -> Line | None:
    """The last failed attempt of a turn, or None."""
    newest_first = (lines[place] for place in range(len(lines) - 1, -1, -1))
    failed = (x for x in newest_first if (x.turn, x.kind, x.name) == (turn, "attempt", FAILED))
    return next(failed, None)


def way_out(session_id: str, ended: Line, lines: Lines) -> str:
    """How to continue a session without the content that the provider refused; '' if it refused
    none. The fork begins before the turn, or before the first of several such turns in a row."""
    if not _was_refused(ended, lines):
        return ""
    turn, first = ended.turn, None
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if line.turn < turn and line.kind == "ended":
            if not _was_refused(line, lines):
                break
            turn = line.turn
        if line.turn == turn and line.kind == "message":
            first = line
    if first is None or first.offset <= 0:
        return ""
    return (
        f"to continue without what was refused, fork before message {first.name}: "
        f"foldlog fork {session_id} --at {first.offset - 1}"
    )


def _was_refused(ended: Line, lines: Lines) -> bool:
    if ended.name != EndReason.FAILED:
        return ended.name == EndReason.REFUSAL
    failure = last_failure(ended.turn, lines)
    return failure is not None and failure.code in REBUILDABLE


def failed_turn(views: SessionViews) -> str:
    """A log line about a failed turn. It has no content of the session."""
    turn = views.turn
    failure = last_failure(turn.number, views.transcript.lines)
    error = turn.generation.error if turn.generation is not None else ""
    number = f"attempt {failure.attempt}" if failure is not None else ""
    cause = failure.cause if failure is not None else ""
    reason = ": ".join(filter(None, (error, advice_of(error, cause))))
    reason += "" if reason.endswith("?") else "."
    end = Line("ended", turn.number, turn.step, -1, 0, EndReason.FAILED)
    out = way_out(views.session_id, end, views.transcript.lines)
    reason += f" T{out[1:]}." if out else ""
    return (
        f"session {views.session_id}: turn {turn.number} failed: the model call failed "
        f"({number}): {reason} The whole reason: "
        f"foldlog tail {views.session_id}"
    )
