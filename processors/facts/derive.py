"""Derives the fact of an event (schemas/facts.py), if it has one. Pure.

Most events have none: one look-up in DERIVED determines that.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from ...schemas import events as ev, facts
from ...schemas.codec import Entry, Unreadable
from ...schemas.enums import (
    Approval,
    ApprovalAnswer,
    Decision,
    DoubtAnswer,
    EndReason,
    Outcome,
    Via,
)
from ...schemas.facts import NAME_CHARS_MAX, TITLE_CHARS_MAX, WAITING_MAX, Fact, WaitingCall
from ..advice.prices import PriceTable
from ..fold.calls import ASKS, CONTRADICTED, DOUBT, OPEN
from ..fold.projections.ledger import Spent
from ..fold.projections.transcript import Line
from ..fold.projections.turn_view import FAILED, HAPPENED, Call, TurnView, call_of
from ..fold.rows import Rows
from ..fold.ruling import ACCEPTED, Ruling
from ..fold.views import SessionViews
from .drafts import Draft, completed
from .turn_clock import ENDED, WAITS, TurnClock
from .waiting_calls import asking, doubtful

ASK, ALLOW = Approval.ASK, Decision.ALLOW
RECENT_LINES, RECENT_ROWS = 32, 8
"""How many lines and rows of usage are searched first for those of the last turn."""

TERMINATED = "terminated"


def fact_of(
    entry: Entry, before: SessionViews, after: SessionViews, ruling: Ruling, prices: PriceTable
) -> Fact | None:
    """The fact of an event, which the fold has folded; None if it has none. `before`, `after`: the
    views of its session before and after it."""
    draft = draft_of(entry, before, after, ruling)
    return None if draft is None else completed(draft, prices)


def draft_of(
    entry: Entry, before: SessionViews, after: SessionViews, ruling: Ruling
) -> Draft | None:
    """The draft of the same fact."""
    if after.frozen is not before.frozen and after.frozen is not None:
        code = "unreadable" if type(entry.event) is Unreadable else "fold_error"
        known = after.turn.known
        return Draft(facts.SessionFailed(**_place(entry, after), code=code)) if known else None
    derive = DERIVED.get(type(entry.event))
    if derive is None or ruling is not ACCEPTED:
        return None
    found = derive(entry, before, after)
    return Draft(found) if isinstance(found, Fact) else found


def _place(entry: Entry, views: SessionViews) -> dict[str, Any]:
    return {
        "user_id": views.state.user_id,
        "session_id": entry.session_id,
        "agent": views.turn.agent,
        "partition": entry.partition,
        "offset": entry.offset,
        "at": entry.at,
    }


# -- sessions and phases ---------------------------------------------------------------------------


def _opened(entry: Entry, _: SessionViews, after: SessionViews) -> Fact:
    return facts.SessionOpened(
        **_place(entry, after),
        parent_id=entry.event.parent_session,
        project_id=after.state.project_id,
        phase=after.state.phase,
        title=_first_title(after),
        turn=after.turn.number,
    )


def _repaired(entry: Entry, before: SessionViews, after: SessionViews) -> Draft | None:
    turn = after.turn
    if after.frozen is not None or not turn.known:
        return None
    was_over, is_over = _over_at(before.transcript.lines), _over_at(after.transcript.lines)
    fact = facts.SessionRepaired(
        **_place(entry, after),
        title=_first_title(after),
        phase=after.state.phase,
        project_id=after.state.project_id,
        turn=turn.number,
        is_working=turn.open,
        is_closed=turn.terminated,
        approvals=tuple(map(_waiting, asking(turn)))[:WAITING_MAX],
        doubts=tuple(map(_waiting, doubtful(turn)))[:WAITING_MAX],
    )
    return Draft(fact, _spent(after, was_over, is_over))


def _closed(entry: Entry, before: SessionViews, after: SessionViews) -> Draft:
    spent = _spent(after, _over_at(before.transcript.lines), entry.offset)
    return Draft(facts.SessionClosed(**_place(entry, after)), spent)


def _phase(entry: Entry, before: SessionViews, after: SessionViews) -> Fact | None:
    return _phase_changed(entry, before, after)


def _phase_changed(
    entry: Entry,
    before: SessionViews,
    after: SessionViews,
    settled: Iterable[str] = (),
    doubts: tuple[WaitingCall, ...] = (),
) -> Fact | None:
    was, now = before.state, after.state
    if was.phase == now.phase and was.project_id == now.project_id:
        return None
    return facts.PhaseChanged(
        **_place(entry, after),
        phase=now.phase,
        project_id=now.project_id,
        settled=tuple(settled)[:WAITING_MAX],
        doubts=doubts,
    )


def _cancel(entry: Entry, before: SessionViews, after: SessionViews) -> Fact | None:
    withdrawn = _withdrawn(before.turn, after.turn)
    changed = _phase_changed(entry, before, after, withdrawn)
    return changed or _answered_all(entry, after, withdrawn)


def _withdrawn(before: TurnView, after: TurnView) -> list[str]:
    """The calls that no longer need an approval, because the turn is about to end."""
    return [call.key for call in asking(before)] if after.closing is not None else []


def _answered_all(entry: Entry, after: SessionViews, calls: list[str]) -> Fact | None:
    if not calls:
        return None
    answer = ApprovalAnswer.WITHDRAWN
    return facts.ApprovalAnswered(**_place(entry, after), call=calls[0], answer=answer)


# -- turns -----------------------------------------------------------------------------------------


def _message(entry: Entry, before: SessionViews, after: SessionViews) -> Fact | None:
    number = after.turn.number
    if number == before.turn.number:
        return _answered_all(entry, after, _withdrawn(before.turn, after.turn))
    if before.state.last_message_id is None:
        title = title_of(entry.event.content)
        return facts.SessionTitled(**_place(entry, after), title=title, turn=number)
    return facts.TurnBegun(**_place(entry, after), turn=number)


def _replaced(entry: Entry, before: SessionViews, after: SessionViews) -> Fact | None:
    number = after.turn.number
    is_new = number != before.turn.number
    return facts.TurnBegun(**_place(entry, after), turn=number) if is_new else None


def _turn_ended(entry: Entry, before: SessionViews, after: SessionViews) -> Draft:
    event, turn, generation = entry.event, before.turn, before.turn.generation
    failed = generation is not None and generation.status is FAILED
    reason: EndReason = event.reason
    previous, lines = _last_turn(after.transcript.lines)
    kinds = [line.kind for line in lines]
    paid = -1 if previous is None else previous.offset
    if TERMINATED in kinds:
        paid = lines[kinds.index(TERMINATED)].offset
    if kinds[0] == "message" and WAITS.isdisjoint(kinds) and after.origin is None:
        ms = max(0, lines[-1].at - lines[0].at)  # nearly always
    else:
        ms = _worked_ms(previous, lines, -1 if after.origin is None else after.origin.opened)
    fact = facts.TurnEnded(
        **_place(entry, after),
        turn=event.turn,
        reason=reason,
        error=generation.error[:NAME_CHARS_MAX] if failed and generation is not None else "",
        steps=turn.step,
        ms=ms,
        doubts=_new_doubts(turn, after.turn) if after.turn.doubts else (),
        next_turn=after.turn.number if after.turn.open else 0,
    )
    return Draft(fact, _spent(after, paid, entry.offset))


def _new_doubts(before: TurnView, after: TurnView) -> tuple[WaitingCall, ...]:
    known = {call.key for call in doubtful(before)}
    new = [call for call in doubtful(after) if call.key not in known]
    return tuple(_waiting(call, "turn_ended") for call in new[:WAITING_MAX])


def _last_turn(lines: Rows[Line]) -> tuple[Line | None, list[Line]]:
    """The end of the turn before the last one that ended, and the lines after it; None and all
    lines if the last turn is the first."""
    count = RECENT_LINES
    while True:
        recent = lines.since(max(0, len(lines) - count))
        for place in range(len(recent) - 2, -1, -1):
            if recent[place].kind == ENDED:
                return recent[place], recent[place + 1 :]
        if len(recent) == len(lines):
            return None, recent
        count *= 8


def _worked_ms(previous: Line | None, lines: list[Line], opened: int) -> int:
    """How long a turn worked, in ms. lines: those after `previous`, the end of the turn before it,
    up to its own end. opened: the offset up to which a fork has inherited its lines."""
    if previous is None or previous.offset <= opened:
        previous, lines = None, [line for line in lines if line.offset > opened]
    clock = TurnClock() if previous is None else TurnClock(previous.turn, previous.at)
    ms = None
    for line in lines:
        clock.begin(line)
        ms = clock.advance(line)
    assert ms is not None, "the last line is the end of the turn"
    return ms


def _over_at(lines: Rows[Line]) -> int:
    """The offset of the last TURN_ENDED or SESSION_TERMINATED; -1 if there is none."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].kind in (ENDED, TERMINATED):
            return lines[place].offset
    return -1


def _spent(views: SessionViews, above: int, upto: int) -> list[Spent]:
    """The requests with an offset in (above, upto]."""
    spent, count = views.ledger.spent, RECENT_ROWS
    while True:
        rows = spent.since(max(0, len(spent) - count))
        if len(rows) == len(spent) or rows[0].offset <= above:
            return [row for row in rows if above < row.offset <= upto]
        count *= 8


# -- calls -----------------------------------------------------------------------------------------


def _waiting(call: Call, code: str = "") -> WaitingCall:
    is_asking = call.status is ASKS
    return WaitingCall(
        call=call.key,
        tool=call.name[:NAME_CHARS_MAX],
        expires_at=call.expires_at if is_asking else 0,
        code=code or ("" if is_asking else _code_of(call)),
    )


def _code_of(call: Call) -> str:
    return "contradicted" if call.status is CONTRADICTED else "unknown"


def _invoked(entry: Entry, _: SessionViews, after: SessionViews) -> Fact | None:
    if entry.event.approval != ASK:
        return None
    call = call_of(after.turn, entry.event)
    if call is None or call.status is not ASKS:
        return None
    waits = _waiting(call)
    return facts.ApprovalAsked(
        **_place(entry, after), call=waits.call, tool=waits.tool, expires_at=waits.expires_at
    )


def _decided(entry: Entry, _: SessionViews, after: SessionViews) -> Fact:
    is_allowed = entry.event.decision == ALLOW
    answer = ApprovalAnswer.ALLOWED if is_allowed else ApprovalAnswer.DENIED
    return facts.ApprovalAnswered(**_place(entry, after), call=entry.event.call, answer=answer)


def _expired(entry: Entry, _: SessionViews, after: SessionViews) -> Fact:
    answer = ApprovalAnswer.EXPIRED
    return facts.ApprovalAnswered(**_place(entry, after), call=entry.event.call, answer=answer)


def _uncertain(entry: Entry, _: SessionViews, after: SessionViews) -> Fact | None:
    call = call_of(after.turn, entry.event)
    assert call is not None, "a call in doubt is kept"
    code = entry.event.code[:NAME_CHARS_MAX] or _code_of(call)
    waits = _waiting(call, code)
    return facts.DoubtOpened(
        **_place(entry, after), call=waits.call, tool=waits.tool, code=waits.code
    )


def _result(entry: Entry, before: SessionViews, after: SessionViews) -> Fact | None:
    event = entry.event
    call = call_of(before.turn, event)
    assert call is not None, "an accepted event names a call that is there"
    if call.status in OPEN and call.status is not DOUBT:  # nearly always
        return _phase_changed(entry, before, after)
    if call.status is DOUBT:
        settled = _phase_changed(entry, before, after, [call.key])
        answer = _late_answer(event)
        return settled or facts.DoubtSettled(**_place(entry, after), call=call.key, answer=answer)
    doubts = tuple(
        _waiting(each) for each in doubtful(after.turn)
        if each.key == call.key and each.status is CONTRADICTED
    )
    changed = _phase_changed(entry, before, after, doubts=doubts)
    if changed is not None or not doubts:
        return changed
    (waits,) = doubts
    return facts.DoubtOpened(
        **_place(entry, after), call=waits.call, tool=waits.tool, code=waits.code
    )


def _late_answer(event: ev.ToolResult) -> DoubtAnswer:
    if event.via != Via.RECONCILER:
        return DoubtAnswer.LATE_RESULT
    is_not_run = event.outcome == Outcome.NOT_RUN
    return DoubtAnswer.DID_NOT_HAPPEN if is_not_run else DoubtAnswer.HAPPENED


def _resolved(entry: Entry, _: SessionViews, after: SessionViews) -> Fact:
    happened = entry.event.outcome == HAPPENED
    answer = DoubtAnswer.HAPPENED if happened else DoubtAnswer.DID_NOT_HAPPEN
    return facts.DoubtSettled(**_place(entry, after), call=entry.event.call, answer=answer)


# -- titles ----------------------------------------------------------------------------------------


def title_of(body: ev.Body) -> str:
    """The text of a message in one line, cut to TITLE_CHARS_MAX characters; empty if the message
    has no text, or if its content is in a blob."""
    if body.inline is None or body.ref is not None:
        return ""
    try:
        blocks = json.loads(body.inline)
    except (ValueError, RecursionError):
        return ""
    texts = (
        block.get("text")
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("type") == "text"
    )
    text = "".join(text for text in texts if isinstance(text, str))
    line = " ".join(text[: 8 * TITLE_CHARS_MAX].split())[:TITLE_CHARS_MAX]
    return line.encode("utf-8", "replace").decode()  # JSON may contain half a surrogate pair


def _first_title(views: SessionViews) -> str:
    for line in views.transcript.lines:
        if line.kind == "message":
            return title_of(line.body) if line.body is not None else ""
    return ""


Derive = Callable[[Entry, SessionViews, SessionViews], Fact | Draft | None]
DERIVED: dict[type, Derive] = {
    ev.SessionOpened: _opened,
    ev.RecordSkipped: _repaired,
    ev.SessionTerminated: _closed,
    ev.MessageReceived: _message,
    ev.ResultReplaced: _replaced,
    ev.PhaseTriggered: _phase,
    ev.ProjectLocked: _phase,
    ev.CancelRequested: _cancel,
    ev.TurnEnded: _turn_ended,
    ev.ToolInvoked: _invoked,
    ev.ApprovalDecided: _decided,
    ev.ApprovalExpired: _expired,
    ev.ToolFailedUncertain: _uncertain,
    ev.ToolResult: _result,
    ev.HumanResolved: _resolved,
}
"""The function that derives the fact of an accepted event, for each type that may have one."""
