"""session_state: the facts about a session that clients may rely on.

The state has seven fields and the id of the last message. No field is derived from text. WRITERS
lists the events that may change each field.
"""

from operator import attrgetter
from typing import Any, assert_never, get_args

from ....schemas import events as ev
from ....schemas.canonical import compact
from ....schemas.codec import Entry
from ....schemas.enums import CancelMode
from ....schemas.ids import is_id, why_not_an_id
from ....schemas.value import Value, fields_of, replace
from ..calls import BEGUN
from ..field_writers import CONFIRMS, PROJECT_TOOL
from ..grants import arguments_in
from ..transitions import FIRST_PHASE, TRANSITIONS, InvalidTransition, transition
from .turn_view import DEMANDS_CONFIRMATION, HOLDS_TOOLS, Call, TurnView, call_of

NAME_CHARS_MAX = 64  # of a tool name, as in the Messages API; keeps the state under 1 KB


class PendingTool(Value):
    """The oldest call that has begun and has no outcome. `open`: the number of such calls. The
    arguments of the call are left out."""

    call: str
    name: str
    attempt: int
    open: int


class SessionState(Value):
    """The state of a session. `updated_at`: when any other field last changed, Unix ms."""

    session_id: str = ""
    user_id: str = ""
    project_id: str | None = None
    phase: str = FIRST_PHASE
    pending_tool: PendingTool | None = None
    cancel_token: str | None = None
    last_message_id: str | None = None
    updated_at: int = 0


INITIAL = SessionState()
Reads = (
    ev.SessionOpened
    | ev.MessageReceived
    | ev.ProjectLocked
    | ev.PhaseTriggered
    | ev.CancelRequested
    | ev.ToolResult
    | ev.ToolStarted
    | ev.ToolFailedUncertain
    | ev.HumanResolved
    | ev.TurnEnded
)
READS = frozenset(get_args(Reads))


def as_json(state: SessionState) -> bytes:
    """The state as clients get it: compact JSON with the fields in order."""
    fields = fields_of(state)
    if state.pending_tool is not None:
        fields["pending_tool"] = fields_of(state.pending_tool)
    return compact(fields).encode()


PROJECT = "project"


class RefusedTrigger(Value):
    """A trigger of a tool's result that the fold refused, or a call that the phase forbids. `what`:
    the trigger's name, `project`, or the name of the tool."""

    code: str
    what: str
    detail: str


def triggered(
    state: SessionState, before: TurnView, event: ev.ToolResult
) -> tuple[SessionState, tuple[RefusedTrigger, ...]]:
    """The state after the triggers of a result, and the refusals of invalid triggers, in order.

    `before`: the turn view before the result; the call of the result is still in that view.
    """
    refusals: list[RefusedTrigger] = []
    for wanted in event.triggers:
        if wanted.trigger is not None:
            try:
                state = replace(state, phase=transition(state.phase, wanted.trigger))
            except InvalidTransition as illegal:
                name = str(wanted.trigger)
                refusals.append(RefusedTrigger("invalid_transition", name, str(illegal)))
        if wanted.project_id is not None:
            wrong = _why_not_locked(state, before, event, wanted.project_id)
            if wrong is not None:
                refusals.append(wrong)
            else:
                state = replace(state, project_id=wanted.project_id)
    return state, tuple(refusals)


def refusals_of(
    state: SessionState, before: TurnView, event: Any
) -> tuple[RefusedTrigger, ...]:
    """What a call or its result requested and did not get; `state`, `before`: before the event."""
    match event:
        case ev.ToolInvoked(code=code) if code:
            detail = f"wrong phase: phase={event.phase}, tool={event.name[:NAME_CHARS_MAX]}"
            return (RefusedTrigger(code, event.name, detail),)
        case ev.ToolResult(triggers=wanted) if wanted:
            return triggered(state, before, event)[1]
    return ()


def _why_not_locked(
    state: SessionState, before: TurnView, event: ev.ToolResult, project_id: str
) -> RefusedTrigger | None:
    if not is_id(project_id):
        return RefusedTrigger("invalid_id", PROJECT, why_not_an_id("project_id", project_id))
    call = call_of(before, event)
    name = call.name if call is not None else ""
    if name != PROJECT_TOOL and before.rules >= HOLDS_TOOLS:
        why = f"{name[:NAME_CHARS_MAX]} may not lock a project: {PROJECT_TOOL} may"
        return RefusedTrigger("not_the_project_tool", PROJECT, why)
    if before.rules >= DEMANDS_CONFIRMATION and not _confirms(call):
        why = f"{name[:NAME_CHARS_MAX]} may not lock a project without {CONFIRMS}"
        return RefusedTrigger("not_confirmed", PROJECT, why)
    if state.project_id is not None:
        return RefusedTrigger("project_locked", PROJECT, "project_id already locked")
    return None


def _confirms(call: Call | None) -> bool:
    """Whether the model's own arguments confirm a new project. Arguments in a blob do not count,
    because a fold reads no blob."""
    if call is None or call.args.inline is None or call.args.ref is not None:
        return False
    arguments = arguments_in(call.name, call.args.inline)
    return arguments is not None and arguments.get(CONFIRMS) is True


def _pending(turn: TurnView) -> PendingTool | None:
    begun = [call for call in (*turn.doubts, *turn.calls) if call.status in BEGUN]
    if not begun:
        return None
    oldest = min(begun, key=attrgetter("turn", "step", "index"))
    return PendingTool(oldest.key, oldest.name[:NAME_CHARS_MAX], oldest.attempt, len(begun))


def apply(state: SessionState, entry: Entry, before: TurnView, turn: TurnView) -> SessionState:
    """The state after an accepted event; `before`, `turn`: the turn view before and after it."""
    event: Reads = entry.event
    after = state
    match event:
        case ev.SessionOpened():
            after = replace(state, session_id=entry.session_id, user_id=event.user_id)
        case ev.MessageReceived():
            after = replace(state, last_message_id=event.message_id)
        case ev.ProjectLocked():
            after = replace(state, project_id=event.project_id)
        case ev.PhaseTriggered():
            after = replace(state, phase=transition(state.phase, event.trigger))
        case ev.CancelRequested():
            if event.mode == CancelMode.NOW:
                token = event.cancel_id if turn.open else state.cancel_token
                phase = TRANSITIONS[state.phase].get("cancel", state.phase)
                after = replace(state, cancel_token=token, phase=phase)
        case ev.ToolResult():
            after, _ = triggered(state, before, event)
            after = replace(after, pending_tool=_pending(turn))
        case ev.ToolStarted() | ev.ToolFailedUncertain() | ev.HumanResolved():
            after = replace(state, pending_tool=_pending(turn))
        case ev.TurnEnded():
            after = replace(state, cancel_token=None, pending_tool=_pending(turn))
        case _:
            assert_never(event)
    if after != state:
        after = replace(after, updated_at=entry.at)
    return after
