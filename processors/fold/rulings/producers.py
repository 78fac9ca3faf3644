"""Rulings on the commands of producers: each is accepted, a duplicate, or refused with a reason.

Each event type has one function, which lists the reasons to refuse such an event. The functions
change no view: projections do, and only for accepted events.
"""

from typing import Any

from ....schemas import events as ev
from ....schemas.enums import CancelMode, Outcome
from ....schemas.grant import why_wrong
from ....schemas.ids import is_id, is_logged_id, parse_call_key, why_not_an_id
from ....schemas.message_content import texts_of
from ..call_facts import row_of
from ..calls import CallStatus
from ..projections.background import STOPPING
from ..projections.context_view import place_of_call
from ..projections.message_sha import message_sha
from ..projections.turn_view import QUEUE_MAX, Call, find_call
from ..ruling import ACCEPTED, DUPLICATE, Ruling, refused
from ..transitions import TRANSITIONS, InvalidTransition, transition
from ..views import SessionViews
from . import items as item_rulings
from .judges import Judges

SKIPPED_MAX = 64  # skipped records of one session
Fork = tuple[str | None, int | None, str | None]  # parent, offset, sha256 of the seed
RULES = 3  # the newest version of the rules that this code knows


def why_not_possible(views: SessionViews, event: Any) -> Ruling | None:
    """The ruling on a command that the session does not allow, because the session is unknown,
    terminated or owned by another user; None if it allows the command. It applies to all commands
    except SESSION_OPENED and RECORD_SKIPPED."""
    if not views.turn.known:
        return refused("unknown_session", "unknown session: open it first")
    if getattr(event, "by_user", views.state.user_id) != views.state.user_id:
        return refused("not_your_session", "the session belongs to another user")
    if views.turn.terminated and isinstance(event, ev.SessionTerminated):
        return DUPLICATE
    if views.turn.terminated and not isinstance(event, ev.HumanResolved):
        return refused("terminated", "the session is terminated: open a new one")
    return None


def _invalid_id(field: str, text: str) -> Ruling:
    return refused("invalid_id", why_not_an_id(field, text))


def session_opened(views: SessionViews, event: ev.SessionOpened) -> Ruling:
    """Rules on an opening. The same command again is a duplicate; a different command is
    refused."""
    fork = _fork_of(event)
    if views.turn.known:
        same = (views.state.user_id, views.turn.agent) == (event.user_id, event.agent)
        same = same and _forked_from(views) == fork
        return DUPLICATE if same else refused("already_open", "the session is already open")
    for what, text in (
        ("session_id", views.session_id),
        ("user_id", event.user_id),
        ("agent", event.agent),
        ("parent_session", event.parent_session),
    ):
        if text is not None and not is_id(text):
            return _invalid_id(what, text)
    if event.rules > RULES:
        return refused("rules", f"rules {event.rules} are newer than this worker's {RULES}")
    if fork is not None and None in fork:
        return refused("invalid_fork", "a fork names its parent, an offset and a seed")
    return ACCEPTED


def _fork_of(event: ev.SessionOpened) -> Fork | None:
    """The fork that the event opens, or None."""
    seed = event.seed_ref.sha256 if event.seed_ref is not None else None
    named = (event.parent_session, event.parent_offset, seed)
    return None if named == (None, None, None) else named


def _forked_from(views: SessionViews) -> Fork | None:
    """The fork that opened the session, or None."""
    origin = views.origin
    return None if origin is None else (origin.session_id, origin.offset, origin.seed)


def fork_opened(parent: SessionViews, event: ev.SessionOpened) -> Ruling:
    """Rules on a SESSION_OPENED that opens a fork. The fork's seed must be a seed of the parent
    that the event names, and the user and the agent must be those of the parent. `parent`: the
    parent's views, folded from the fork's seed."""
    if not parent.turn.known or parent.session_id != event.parent_session:
        return refused("invalid_fork", f"the seed is not one of session {event.parent_session}")
    if parent.state.user_id != event.user_id:
        return refused("not_your_session", "the session that is forked belongs to another user")
    if parent.turn.agent != event.agent:
        return refused("other_agent", f"its parent's agent is {parent.turn.agent}")
    return ACCEPTED


NO_BLOCKS = "the content is not a JSON list of text blocks and attachments"
EMPTY = "an empty message: say something"


def content_error(body: ev.Body) -> str | None:
    """Why a message's content is invalid, or None.
    A blob passes, since its producer has checked it."""
    if body.ref is not None:
        return None
    try:
        texts = texts_of(body.inline or b"[]")
    except ValueError:
        return NO_BLOCKS
    return None if texts and all(map(str.strip, texts)) else EMPTY


def message_received(views: SessionViews, event: ev.MessageReceived) -> Ruling:
    """Rules on a message. A message counts once; another message with the same id and other content
    is refused."""
    if not is_logged_id(event.message_id):
        return _invalid_id("message_id", event.message_id)
    known = views.messages.received.last(event.message_id)
    if known is not None:
        if known.sha256 == message_sha(event.role, event.content):
            return DUPLICATE
        return refused("message_id_reused", "this message_id was used with other content")
    if event.role != "user":
        return refused("invalid_role", "only the role user may be said")
    error = content_error(event.content)
    if error is not None:
        return refused("empty_message" if error == EMPTY else "invalid_content", error)
    waiting = len(views.turn.queue) + len(views.turn.owned)
    if waiting >= QUEUE_MAX:
        return refused("queue_full", f"{waiting} messages wait already: cancel or wait")
    return ACCEPTED


def phase_triggered(views: SessionViews, event: ev.PhaseTriggered) -> Ruling:
    """Rules on a trigger. It counts only if TRANSITIONS lists it for the session's phase."""
    if not is_logged_id(event.command_id):
        return _invalid_id("command_id", event.command_id)
    if event.command_id in views.turn.command_ids:
        return DUPLICATE
    try:
        transition(views.state.phase, event.trigger)
    except InvalidTransition as why:
        return refused("invalid_transition", str(why))
    return ACCEPTED


def project_locked(views: SessionViews, event: ev.ProjectLocked) -> Ruling:
    """Rules on a lock of the session to a project. A session can be locked only once."""
    if not is_logged_id(event.command_id):
        return _invalid_id("command_id", event.command_id)
    if event.command_id in views.turn.command_ids:
        return DUPLICATE
    if not is_id(event.project_id):
        return _invalid_id("project_id", event.project_id)
    if views.state.project_id is not None:
        return refused("project_locked", "project_id already locked")
    return ACCEPTED


def cancel_requested(views: SessionViews, event: ev.CancelRequested) -> Ruling:
    """Rules on a cancel. It concerns the turn that it names, or else the open turn. If that turn is
    already stopping, another cancel of the mode `now` is a duplicate."""
    turn = views.turn
    if not is_logged_id(event.cancel_id):
        return _invalid_id("cancel_id", event.cancel_id)
    if event.cancel_id in turn.cancel_ids:
        return DUPLICATE
    if event.seen_phase is not None and event.seen_phase != views.state.phase:
        return refused(
            "phase_changed", f"the phase is {views.state.phase}, no longer {event.seen_phase}"
        )
    if event.turn is not None and not (turn.open and turn.number == event.turn):
        return refused("turn_over", f"turn {event.turn} is not running")
    if event.mode == CancelMode.AFTER_STEP:
        return ACCEPTED if turn.open else refused("no_turn", "no turn is running")
    if turn.open:
        has_one = turn.closing is not None and turn.closing.reason in STOPPING
        return DUPLICATE if has_one else ACCEPTED
    if "cancel" in TRANSITIONS[views.state.phase]:
        return ACCEPTED
    return refused(
        "nothing_to_cancel", f"invalid transition: phase={views.state.phase}, event=cancel"
    )


def _named_call(views: SessionViews, key: str) -> Call | Ruling:
    """The call with this key, or the refusal."""
    parts = parse_call_key(key)
    if parts is None:
        return refused("invalid_call", f"a call is TURN.STEP.INDEX, not {key[:40]!r}")
    call = find_call(views.turn, *parts)
    return call or refused("unknown_call", f"no call {key} is open in this session")


STANDS: dict[CallStatus, str] = {
    CallStatus.PROPOSED: "has not begun",
    CallStatus.ASKS: "asks for approval",
    CallStatus.ALLOWED: "is allowed",
    CallStatus.STARTED: "runs",
    CallStatus.DOUBT: "is in doubt",
    CallStatus.CONTRADICTED: "is contradicted by what its tool said later",
    CallStatus.DONE: "is done",
}
"""For each status, the end of a sentence about a call."""


def approval_decided(views: SessionViews, event: ev.ApprovalDecided) -> Ruling:
    """Rules on a person's approval or denial of a call. The answer is valid only for the arguments
    that the person saw, and the first answer counts."""
    ruling = _about_call(views, event)
    if ruling.code == "invalid_grant":
        detail = f"what is to be allowed later is not understood: {why_wrong(event.grant)}"
        return ruling._replace(detail=detail)
    return ruling


def human_resolved(views: SessionViews, event: ev.HumanResolved) -> Ruling:
    """Rules on a resolution: only a call that is in doubt or contradicted can be resolved."""
    return _about_call(views, event)


def _about_call(views: SessionViews, event: ev.ApprovalDecided | ev.HumanResolved) -> Ruling:
    """The ruling from the table CALLS. A refusal also gets a message for people."""
    call = _named_call(views, event.call)
    if isinstance(call, Ruling):
        return call
    ruling = row_of(views.turn, call, event).ruling
    match ruling.code:
        case "not_asking":
            detail = f"call {event.call} asks no longer: it {STANDS[call.status]}"
        case "other_arguments":
            detail = "the call's arguments are not those that were shown"
        case "turn_over":
            detail = "the turn is ending"
        case "not_in_doubt":
            detail = f"call {event.call} is not in doubt: it {STANDS[call.status]}"
        case _:
            return ruling
    return ruling._replace(detail=detail)


def result_replaced(views: SessionViews, event: ev.ResultReplaced) -> Ruling:
    """Rules on a new result for a call: only for a result that a fork inherited, as long as no
    request has contained it. The first replacement of a result counts."""
    place, origin = place_of_call(views.context, event.call), views.origin
    if origin is None:
        return refused("not_a_fork", "a result is replaced in a fork: use `foldlog rerun`")
    if place is None:
        return refused("unknown_call", f"this session has no result of call {event.call}")
    fragment, request = views.context.fragments[place], views.context.request
    if event.call in views.replaced:
        same = (fragment.body, fragment.error) == (event.content, event.outcome != Outcome.OK)
        detail = f"the result of call {event.call} was replaced already"
        return DUPLICATE if same else refused("already_replaced", detail)
    is_sent = request is not None and place < request.fragments
    if is_sent or fragment.offset != origin.opened:
        return refused("already_sent", f"the model got the result of call {event.call} already")
    if views.turn.closing is not None:
        return refused("turn_over", "the turn is ending")
    return ACCEPTED


def session_terminated(views: SessionViews, event: ev.SessionTerminated) -> Ruling:
    """Rules on a termination, which is permanent. why_not_possible rules on a second one."""
    return ACCEPTED


def record_skipped(views: SessionViews, event: ev.RecordSkipped) -> Ruling:
    """Rules on a RECORD_SKIPPED. Only the first one for a record counts. It counts even if this
    version understands the record, because the decisions that follow in the log were made without
    the record. A session that was never opened has no owner, so any user may skip its record."""
    if views.turn.known and event.by_user != views.state.user_id:
        return refused("not_your_session", "the session belongs to another user")
    if event.offset in views.skipped:
        return DUPLICATE
    if len(views.skipped) >= SKIPPED_MAX:
        return refused("too_many", f"{SKIPPED_MAX} records of this session are passed over already")
    return ACCEPTED


JUDGES: Judges = {
    ev.SessionOpened: session_opened,
    ev.MessageReceived: message_received,
    ev.PhaseTriggered: phase_triggered,
    ev.ProjectLocked: project_locked,
    ev.CancelRequested: cancel_requested,
    ev.ApprovalDecided: approval_decided,
    ev.HumanResolved: human_resolved,
    **item_rulings.JUDGES,
    ev.ResultReplaced: result_replaced,
    ev.SessionTerminated: session_terminated,
    ev.RecordSkipped: record_skipped,
}
