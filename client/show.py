"""Returns what people inspect: views as JSON, a session's pending work, a past request, the
sessions.

Everything here folds the log itself and needs no worker and no store.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..log.door import Log
from ..log.errors import Refused
from ..processors.fold import views as views_fold
from ..processors.fold.projections import partition as partition_fold
from ..processors.fold.projections.background import KINDS
from ..processors.fold.projections.partition import PartitionView
from ..processors.fold.references import WorkRef
from ..processors.fold.sessions import FoldedSession, FoldedSessions
from ..processors.fold.views import SessionViews
from ..processors.request.build import BUILDER, request_bytes, request_sha256
from ..processors.request.continuation import resumed_request
from ..processors.wake.budget import Rules
from ..processors.wake.facts import Obligation, owed_to_end, wake
from ..processors.wake.table import BY_ID
from ..schemas import events as ev
from ..schemas.enums import Recovery
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import is_id, why_not_an_id
from .follow import Follow
from .printable import plain
from .session_fold import SessionFold
from .status import situation_of

VIEWS = (*(view.field for view in views_fold.VIEWS), "wake")
RESUME_MARK = "+resume"


class UnknownSession(Refused):
    """The log has no such session."""


class UnknownStep(Refused):
    """The session has no such step."""


def known(folded: SessionFold, at: int | None = None) -> SessionViews:
    """Fold to the end of the log, or up to the event at offset `at`. Raises UnknownSession."""
    if at is None:
        folded.to_end()
    else:
        for _ in folded.upto(min(at + 1, folded.end())):
            pass
    if not folded.views.turn.known:
        if at is not None:
            raise UnknownSession(
                f"there is no session {folded.session_id} at offset {at} of partition "
                f"{folded.partition}. `foldlog tail {folded.session_id}` prints where it begins."
            )
        if not is_id(folded.session_id):  # no session can have this name
            raise UnknownSession(why_not_an_id("the name of a session", folded.session_id))
        raise UnknownSession(
            f"there is no session {folded.session_id}. Open one with `foldlog open "
            f"{folded.session_id}`, or see `foldlog sessions`.{_if_cut(folded)}"
        )
    return folded.views


def _if_cut(folded: SessionFold) -> str:
    """Another possible reason for an unknown session: its first records were deleted. '' if the
    partition has all of its records."""
    if not folded.begin:
        return ""
    return (
        f" The log of its partition begins at offset {folded.begin}: if the session is older, set "
        "FOLDLOG_ARCHIVE to the directory that `foldlog retain` used."
    )


def now_ms(folded: SessionFold) -> int:
    """The time that wake uses, Unix ms: the later of the wall clock and the newest broker time."""
    return max(time.time_ns() // 1_000_000, folded.newest_ms)


def owed_json(
    views: SessionViews, holders: PartitionView, now: int, rules: Rules | None
) -> list[dict[str, Any]]:
    """The session's pending work, with the reason of each row.

    `rules` is None if the agent is unknown.
    """
    try:
        owed = wake(views, holders, now, rules)
    except Exception:  # a bug, which the worker reports: the end of the turn is still shown
        owed = owed_to_end(views, holders, now)
    return [_owed(obligation) for obligation in owed]


def _owed(obligation: Obligation) -> dict[str, Any]:
    subject: tuple[int | str, ...] = obligation.subject
    if isinstance(obligation.subject, WorkRef):
        subject = KINDS.index(obligation.subject.kind), obligation.subject.upto
    row = {**plain(obligation), "subject": ".".join(map(str, subject))}
    return {**row, "why": BY_ID[obligation.row].why}


def view_json(folded: SessionFold, view: str, read: ReadBlob | None = None) -> Any:
    """The view with this name in VIEWS, as JSON; with `read`, references are resolved."""
    views = folded.views
    match view:
        case "wake":
            return owed_json(views, folded.holders, now_ms(folded), Rules())
        case "turn":
            streamed = {"stream": plain(views.stream), "frozen": plain(views.frozen)}
            return plain(views.turn, read) | streamed
    return plain(getattr(views, view), read)


class Request(NamedTuple):
    """A past request as it was sent. `claims`: the number of each attempt, and the SHA-256 and the
    builder in its claim.

    If the builder ends in `+resume`, the attempt sent `body` and the kept part of a lost answer.
    `agrees`: whether every claim by this version's builder has the SHA-256 of the rebuilt request.
    """

    body: bytes
    sha256: str
    claims: tuple[tuple[int, str, str], ...]
    agrees: bool


def request_of(folded: SessionFold, turn: int, step: int, read: ReadBlob) -> Request:
    """Rebuild the request of a step.

    For attempts that resumed a lost answer, the request includes the part of the answer that was
    kept; this needs a fold that decodes chunks. Raises UnknownSession, UnknownStep.
    """
    body: bytes | None = None
    chunks: list[ev.GenChunk] = []
    claims: list[tuple[int, str, str]] = []
    agrees = True
    for seen in folded.upto(folded.end()):
        event = seen.entry.event
        if not seen.ruling.accepted or getattr(event, "turn", None) != turn:
            continue
        match event:
            case ev.LlmCalled() if event.step == step:
                body, chunks, claims, agrees = request_bytes(seen.views, read), [], [], True
            case ev.GenChunk() if event.step == step:
                chunks.append(event)
            case ev.GenStart() | ev.GenResumed() if event.step == step and body is not None:
                is_resumed = getattr(event, "strategy", "") == Recovery.RESUME
                sent = resumed_request(body, seen.views, chunks) if is_resumed else body
                builder = event.builder + RESUME_MARK * is_resumed
                claims.append((event.attempt, event.request_sha256, builder))
                is_same = sent is not None and request_sha256(sent) == event.request_sha256
                agrees &= is_same or event.builder != BUILDER
    known(folded)
    if body is None:
        raise UnknownStep(f"session {folded.session_id} has no step {turn}.{step}")
    return Request(body, request_sha256(body), tuple(claims), agrees)


class Everything(NamedTuple):
    """Every session of the log with its partition, the holders of the partitions, and the time of
    each session's last event (Unix ms).
    """

    sessions: dict[str, SessionViews]
    places: dict[str, int]
    holders: dict[int, PartitionView]
    last_at: dict[str, int]
    newest_ms: int


def fold_everything(
    log: Log,
    read: ReadBlob | None = None,
    progress: Callable[[int, int], None] = lambda _read, _total: None,
) -> Everything:
    """Fold every session to the present end of the log.

    `read` is the argument of Follow, `progress` that of Follow.to.
    """
    folded: FoldedSessions[FoldedSession] = FoldedSessions()
    with Follow(log, chunks=False, folded=True, read=read) as follow:
        for batch in follow.to(follow.ends(), progress):
            for entry in batch:
                folded.feed(entry)
    sessions = folded.sessions.items()
    return Everything(
        {name: session.views for name, session in sessions},
        {name: session.partition for name, session in sessions},
        folded.holders,
        {name: session.last_at for name, session in sessions},
        folded.newest_ms,
    )


def summaries(
    everything: Everything, wanted: Callable[[SessionViews], bool] = lambda _views: True
) -> Iterator[dict[str, Any]]:
    """The line of each wanted session, most recently changed first."""
    known_ones = [v for v in everything.sessions.values() if v.turn.known and wanted(v)]
    for views in sorted(known_ones, key=lambda v: (-v.state.updated_at, v.session_id)):
        number = everything.places[views.session_id]
        holders = everything.holders.get(number, partition_fold.INITIAL)
        yield summary(views, number, holders)


def summary(views: SessionViews, partition: int, holders: PartitionView) -> dict[str, Any]:
    """One session's line in a list. `status`, `reason` and `until` are its Situation. `holders`:
    the holders of the session's partition."""
    return {
        "session_id": views.session_id,
        "user_id": views.state.user_id,
        "agent": views.turn.agent,
        "phase": views.state.phase,
        "project_id": views.state.project_id,
        "turn": views.turn.number,
        **situation_of(views, holders)._asdict(),
        "updated_at": views.state.updated_at,
        "partition": partition,
    }
