"""Which content the next request leaves out, because the provider refused the newest request. Pure.

The provider accepted the request before it, so the cause is most likely what came since: the newest
answer, the results of its calls, and the messages after it. If the turns before this one failed,
too, the cause is older: first their messages, and then WIDER times as many answers with each turn.
If the model refused to answer, the next turn leaves this content out. If the provider refused the
request with an error that has no other remedy, the request is built again, once, without this
content and without files.
"""

from ...schemas.attachments import SOURCE
from .cut_points import SPOKEN, Fragments, must_think
from .projections.context_view import Fragment, LeftOut, Request
from .projections.turn_view import (
    BAD_REQUEST,
    THINKING_REFUSED,
    TOO_LONG,
    TurnView,
    error_to_mend,
)

WIDER = 4  # a session of 250 answers continues after the fifth failed turn in a row


def to_leave_out(
    turn: TurnView, request: Request | None, fragments: Fragments, *, shortened: bool = True
) -> LeftOut | None:
    """What the next request leaves out, in addition to what `request`, the newest one, left out.
    None if that is nothing. `shortened`: a request that was too long adopts a compaction, if its
    strategy has any."""
    if request is None:
        return None
    has_failed = _has_no_other_remedy(turn, request, fragments, shortened)
    if not (has_failed or request.refused):
        return None
    begin = end = len(fragments)
    exchanges = WIDER ** max(0, _turns_in_vain(turn, fragments) - 1)
    while begin > 0 and exchanges > 0:
        begin, exchanges = _newest_exchange(fragments, begin), exchanges - 1
    found = LeftOut(begin, end, turn.number, files=has_failed)
    is_less = any(not found.keeps(fragments[place]) for place in range(found.begin, end))
    return found if is_less or (has_failed and _has_files(request, fragments)) else None


def _has_no_other_remedy(
    turn: TurnView, request: Request, fragments: Fragments, shortened: bool
) -> bool:
    """Whether the newest request failed, and neither a compaction nor less thinking can help."""
    error, compacts = error_to_mend(turn), request.strategy == "compacted"
    if error in TOO_LONG:
        return not (compacts and shortened)
    is_bound = error == THINKING_REFUSED and must_think(request, fragments)
    return error == BAD_REQUEST or (is_bound and not compacts)


def _turns_in_vain(turn: TurnView, fragments: Fragments) -> int:
    """How many turns the model has not answered between its newest answer and this turn."""
    turns, place = {turn.number}, len(fragments) - 1
    while place >= 0 and fragments[place].kind not in SPOKEN:
        turns.add(fragments[place].turn)
        place -= 1
    if place >= 0:
        turns.discard(fragments[place].turn)
    return len(turns - {turn.number})


def _newest_exchange(fragments: Fragments, end: int) -> int:
    """Where the newest answer begins. A paused answer and its continuation are one answer."""
    begin = end
    while begin > 0 and fragments[begin - 1].kind not in SPOKEN:
        begin -= 1
    while begin > 0 and fragments[begin - 1].kind in SPOKEN:
        begin -= 1
    return begin


def _has_files(request: Request, fragments: Fragments) -> bool:
    after = max((one.end for one in request.left_out if one.files), default=0)
    begin = max(request.start, after)
    return any(_may_have_files(fragments[n], request) for n in range(begin, request.fragments))


def _may_have_files(fragment: Fragment, request: Request) -> bool:
    """Whether a message may have files. The content of a blob is not read."""
    body = fragment.body
    if fragment.kind != "user" or body is None or fragment.offset <= request.files_after:
        return False
    return body.ref is not None or SOURCE.encode() in (body.inline or b"")
