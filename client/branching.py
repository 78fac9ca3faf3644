"""Branching: forks a session at an offset, and answers again in a fork.

A fork never changes its parent, and both sessions continue. No model call, tool call or delivery of
the parent is repeated. To regenerate an answer, the session is forked right before a message, and
the same message is sent to the fork; to edit a message, the edited message is sent instead. To edit
a result, the session is forked right after the results of its step, and the result is replaced.
"""

import json
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from ..log.blobs import BlobStore
from ..log.door import Log
from ..log.errors import Refused
from ..log.made import partitions_of
from ..log.partition import partition_for
from ..processors.entries import foldable_entry
from ..processors.fold.projections.context_view import place_of_call
from ..processors.fold.projections.messages import Received
from ..processors.fold.projections.turn_view import RUNNING
from ..processors.fold.sessions import fold_event
from ..processors.fold.views import SessionViews, initial
from ..producers import checks
from ..producers.checks import Blocks
from ..producers.fork import (
    open_fork,
    repeat,
    replace_result,
    skip_record,
    store_seed,
    without_chunks,
    without_skipped,
)
from ..producers.sessions import Receipt, Sessions, new_session_id
from ..schemas.events import SessionOpened
from ..schemas.events.parts import BlobRef, ReadBlob
from ..schemas.record import Record
from ..schemas.topics import SESSION_EVENTS
from .calls import key_of
from .follow import read_before
from .outcomes import Decision, decision_on, demand
from .printable import whole
from .session_fold import SessionFold

AGAIN = ".again"


class CanNotFork(Refused):
    """The session cannot be forked at that offset; nothing was written. `code` is for machines."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class Forked(NamedTuple):
    """An opened fork. `message_id`: the id of the message that was sent to it, or ''. `turn`: the
    turn that answers a replaced result, or 0."""

    decision: Decision
    session_id: str
    parent: str
    offset: int
    message_id: str = ""
    turn: int = 0


class Skipped(NamedTuple):
    """A session that continues without the skipped record. `uncounted`: the offsets of records that
    were written while `skip` ran, after it had read the session; these records have no effect.
    """

    decision: Decision
    session_id: str
    offset: int
    uncounted: tuple[int, ...]


class _Past(NamedTuple):
    """A session at an offset: its views, its records, and the event that opened it."""

    views: SessionViews
    records: list[Record]
    opened: SessionOpened


class Branching:
    """Forks sessions of one installation, for one user.

    Raises CanNotFork, CommandRefused, and the errors of the log, the producers and the blobs.
    """

    def __init__(
        self, log: Log, sessions: Sessions, blobs: BlobStore, read: ReadBlob, user: str
    ) -> None:
        self._log, self._sessions, self._blobs = log, sessions, blobs
        self._read, self._user = read, user

    def fork(self, session_id: str, at: int | None = None, name: str | None = None) -> Forked:
        """Open a new session that begins with the state that `session_id` had after offset `at` (by
        default its present state).

        Forking again with the same name is harmless. name: the id of the new session, by default a
        generated one.
        """
        past, offset = self._past(session_id, at)
        origin, seed = past.views.origin, past.opened.seed_ref
        if origin is not None and seed is not None and offset == origin.opened:
            # At its beginning a fork equals its parent, so the new fork can use the same seed.
            return self._open(name, origin.session_id, origin.offset, seed, past.views)
        records = without_skipped(past.records, past.views.skipped)
        records = without_chunks(records, streaming_attempts(past.views))
        new_seed = store_seed(self._blobs, session_id, records, seed)
        return self._open(name, session_id, offset, new_seed, past.views)

    def regenerate(
        self, session_id: str, turn: int | None = None, name: str | None = None
    ) -> Forked:
        """Fork before the messages of a turn (by default the last), and send them to the fork
        again.
        """
        past, _ = self._past(session_id, None)
        origin = past.views.origin
        number = past.views.turn.number if turn is None else turn
        messages = messages_of(past.views, number)
        if not messages and 0 < number <= past.views.turn.number:
            raise CanNotFork(
                "no_message",
                f"turn {number} of session {session_id} began with a replaced result, not with a "
                "message. Nothing was written. Replace the result again with `foldlog rerun`.",
            )
        if not messages:
            last = past.views.turn.number
            raise CanNotFork(
                "unknown_turn",
                f"session {session_id} has no turn {number}. "
                + (f"It has turns 1 to {last}. " if last else "It has no turns yet. ")
                + "Nothing was written.",
            )
        if origin is not None and messages[0].offset <= origin.opened:
            return self.regenerate(origin.session_id, number, name)
        begin = turn_begins(past.views, number)
        forked = self.fork(session_id, begin - 1, name)
        return self._send_again(forked, messages, begin)

    def edit(
        self, session_id: str, message_id: str, new_id: str, name: str | None = None
    ) -> Forked:
        """Fork before the turn of a message, and send the messages that precede it in this turn to
        the fork. The caller then sends the edited message with the id `Forked.message_id`, which is
        `new_id` unless the fork already has a message with this id.

        Editing again with the same name is harmless.
        """
        past, _ = self._past(session_id, None)
        origin, progress = past.views.origin, past.views.messages.progress.last(message_id)
        if progress is None:
            raise _no_turn_of(past.views, message_id)
        messages = messages_of(past.views, progress.turn)
        if origin is not None and messages[0].offset <= origin.opened:
            return self.edit(origin.session_id, message_id, new_id, name)
        begin = turn_begins(past.views, progress.turn)
        forked = self.fork(session_id, begin - 1, name)
        earlier = list(takewhile(lambda message: message.message_id != message_id, messages))
        used = {row.message_id for row in past.views.messages.received if row.offset < begin}
        used |= {message.message_id for message in earlier}
        while new_id in used:
            new_id += AGAIN
        return self._send_again(forked, earlier, begin)._replace(message_id=new_id)

    def rerun(
        self,
        session_id: str,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        call: str | None = None,
        at: int | None = None,
        error: bool = False,
        reason: str = "",
        name: str | None = None,
    ) -> Forked:
        """Edit a message, or the result of a call, and let the model answer again in a fork.

        `message_id`: by default the last message as of right after the offset `at` (by default
        now). A text replaces the text of the message and keeps its attachments. With `call`, the
        text replaces the result of that call, `error` marks it as a failed call, and `reason` tells
        people why it was replaced. No tool runs again.
        """
        if call is not None:
            return self._rerun_result(session_id, content, call, at, error, reason, name)
        if error or reason:
            raise checks.Invalid(
                "invalid", "`error` and `reason` are of the result of a call, and no call is "
                "named. Nothing was written. Name the call, or leave them out.",
            )
        past, _ = self._past(session_id, at)
        message = _message_to_edit(past.views, message_id)
        if isinstance(content, str):
            blocks = json.loads(whole(message.content, self._read))
            files = [block for block in blocks if block.get("type") != "text"]
            content = [*files, *checks.blocks_of(content)]
        checks.content_json(content)  # before the fork is opened
        forked = self.edit(session_id, message.message_id, message.message_id, name)
        edited, new_id, user = content, forked.message_id, self._user
        decision = self._decided(forked.session_id, lambda: [
            self._sessions.say(forked.session_id, edited, message_id=new_id, user=user)
        ])
        return forked._replace(decision=decision)

    def _rerun_result(
        self,
        session_id: str,
        content: str | Blocks,
        call: str,
        at: int | None,
        error: bool,
        reason: str,
        name: str | None,
    ) -> Forked:
        if not isinstance(content, str):
            raise checks.Invalid("invalid_content", "the result of a call is edited as a text")
        checks.a_result(content)
        checks.a_reason(reason)
        past, _ = self._past(session_id, at)
        key, origin = key_of(past.views, call), past.views.origin
        place, fragments = place_of_call(past.views.context, key), past.views.context.fragments
        if place is None:
            raise CanNotFork(
                "unknown_result",
                f"session {session_id} has no result of call {call} there. Nothing was written. "
                f"`foldlog show {session_id}` lists its calls.",
            )
        changed = fragments[place]
        if origin is not None and changed.offset <= origin.opened:
            parent = origin.session_id
            return self._rerun_result(parent, content, key, None, error, reason, name)
        end = max(
            row.offset
            for row in fragments
            if row.kind == "result" and (row.turn, row.step) == (changed.turn, changed.step)
        )
        forked = self.fork(session_id, end, name)
        decision = self._decided(forked.session_id, lambda: [replace_result(
            self._sessions, forked.session_id, key, content,
            error=error, reason=reason, user=self._user,
        )])
        turn = 1 + inherited_turns(decision.views)
        return forked._replace(decision=decision, turn=turn)

    def _decided(self, session_id: str, write: Callable[[], list[Receipt]]) -> Decision:
        """Write events to a session, and return the ruling on the last. Raises CommandRefused."""
        with SessionFold(self._log, session_id, read=self._read) as folded:
            folded.to_end()
            return [demand(decision_on(folded, receipt)) for receipt in write()][-1]

    def _send_again(self, forked: Forked, messages: list[Received], begin: int) -> Forked:
        """Send messages of the parent's turn that begins at the offset `begin` to its fork."""
        if not messages:
            return forked
        # A message that was queued before the turn is already in the fork, so its id is taken.
        ids = [message.message_id + AGAIN * (message.offset < begin) for message in messages]
        decision = self._decided(forked.session_id, lambda: [
            repeat(
                self._sessions, forked.session_id, message_id, message.content, message.tokens,
                user=self._user,
            )
            for message_id, message in zip(ids, messages, strict=True)
        ])
        return forked._replace(decision=decision, message_id=ids[-1])

    def skip(self, session_id: str, offset: int | None = None, reason: str = "") -> Skipped:
        """Let a frozen session continue without the record that froze it.

        `offset`: the offset of that record, if known; any other offset is refused. Records that
        follow the skipped record take effect, except those in `Skipped.uncounted`.
        """
        ends = self._log.end_offsets(SESSION_EVENTS)
        partition = partition_for(session_id, len(ends))
        records = self._records(session_id, partition, ends[partition])
        views, opened = self._fold_records(session_id, records)
        if opened is None and views.frozen is None:
            raise _no_session(session_id, ends[partition], records, views)
        _demand_own(views, self._user)
        if views.frozen is None:
            raise CanNotFork(
                "not_frozen", f"session {session_id} is not frozen. Nothing was written."
            )
        if offset not in (None, views.frozen.offset):
            raise CanNotFork(
                "other_record",
                f"session {session_id} is frozen at offset {views.frozen.offset}, not at {offset} "
                f"({views.frozen.why}). Nothing was written. Skip offset "
                f"{views.frozen.offset} instead.",
            )
        skipped = (*views.skipped, views.frozen.offset)
        remaining = without_skipped(records, skipped)
        thawed, opened = self._fold_records(session_id, remaining)
        _demand_own(thawed, self._user)  # it may have been opened after the record
        remaining = without_chunks(remaining, streaming_attempts(thawed))
        up = None if opened is None else opened.seed_ref
        seed = store_seed(self._blobs, session_id, remaining, up)
        with SessionFold(self._log, session_id, read=self._read) as folded:
            folded.to_end()
            receipt = skip_record(
                self._sessions, session_id, skipped[-1], seed, reason=reason, user=self._user
            )
            decision = demand(decision_on(folded, receipt))
        since = self._records(session_id, partition, receipt.offset)[len(records) :]
        return Skipped(decision, session_id, skipped[-1], tuple(record.offset for record in since))

    def _open(
        self, name: str | None, parent: str, offset: int, seed: BlobRef, views: SessionViews
    ) -> Forked:
        session_id = name or new_session_id()
        agent, user = views.turn.agent, self._user
        decision = self._decided(session_id, lambda: [
            open_fork(self._sessions, session_id, parent, offset, seed, agent=agent, user=user)
        ])
        return Forked(decision, session_id, parent, offset)

    def _past(self, session_id: str, at: int | None) -> tuple[_Past, int]:
        """The session right after the offset `at`, and that offset (by default the last).

        Raises CanNotFork.
        """
        ends = self._log.end_offsets(SESSION_EVENTS)
        partition = partition_for(session_id, partitions_of(self._log))
        end = ends[partition]
        if at is not None and at >= end:
            raise CanNotFork(
                "beyond_the_end",
                f"offset {at} is beyond the end of the log. Nothing was written. The newest offset "
                f"of partition {partition}, which has session {session_id}, is {end - 1}.",
            )
        records = self._records(session_id, partition, end)
        upto = [record for record in records if at is None or record.offset <= at]
        views, opened = self._fold_records(session_id, upto)
        if opened is None:
            raise _no_session(session_id, at, records, views)
        if views.frozen is not None:
            raise _frozen(views)
        _demand_own(views, self._user)
        return _Past(views, upto, opened), upto[-1].offset if at is None else at

    def _records(self, session_id: str, partition: int, end: int) -> list[Record]:
        """The session's records before the offset `end`. Raises LogUnreachable."""
        records = read_before(
            self._log, SESSION_EVENTS, partition, end, kept="Nothing was written"
        )
        return [record for record in records if record.key == session_id.encode()]

    def _fold_records(
        self, session_id: str, records: list[Record]
    ) -> tuple[SessionViews, SessionOpened | None]:
        """The views after these records, and the event that opened the session."""
        views, opened = initial(session_id), None
        for record in records:
            entry = foldable_entry(record, self._read)
            _, ruling, _, views = fold_event(views, entry)
            if isinstance(entry.event, SessionOpened) and ruling.accepted:
                opened = entry.event
        if opened is None and views.turn.known:  # it was opened while it was frozen
            return views, self._fold_records(session_id, without_skipped(records, views.skipped))[1]
        return views, opened


def streaming_attempts(views: SessionViews) -> list[str]:
    """TURN.STEP.ATTEMPT of the open attempt and of the attempts that it continues."""
    turn = views.turn
    if not turn.open or turn.generation is None or turn.generation.status is not RUNNING:
        return []
    attempts = (*(lost for lost, _ in turn.generation.chain), turn.generation.attempt)
    return [f"{turn.number}.{turn.step}.{attempt}" for attempt in attempts]


def turn_begins(views: SessionViews, turn: int) -> int:
    """The offset of the event that opened a turn. The turn must have begun with a message."""
    return min(row.offset for row in views.messages.progress if row.turn == turn)


def messages_of(views: SessionViews, turn: int) -> list[Received]:
    """The messages of a turn, in order, without the messages that are queued for a later turn."""
    turns = {row.message_id: row.turn for row in views.messages.progress}  # the last row wins
    return [row for row in views.messages.received if turns.get(row.message_id) == turn]


def inherited_turns(views: SessionViews) -> int:
    """How many turns a fork inherited from its parent."""
    assert views.origin is not None, "a fork has an origin"
    opened = views.origin.opened
    return max((line.turn for line in views.transcript.lines if line.offset <= opened), default=0)


def _message_to_edit(views: SessionViews, message_id: str | None) -> Received:
    """The message with this id, by default the last one that a turn answers."""
    received, progress = views.messages.received, views.messages.progress
    found = [
        row
        for row in received
        if progress.last(row.message_id) is not None and message_id in (None, row.message_id)
    ]
    if found:
        return found[-1]
    if message_id is not None:
        raise _no_turn_of(views, message_id)
    raise CanNotFork(
        "no_message",
        f"session {views.session_id} has no message to edit there. Nothing was written. Send it a "
        "message, or name a later offset.",
    )


def _no_turn_of(views: SessionViews, message_id: str) -> CanNotFork:
    if views.messages.received.last(message_id) is not None:
        return CanNotFork(
            "still_queued",
            f"message {message_id} of session {views.session_id} is queued behind the running "
            "turn. Nothing was written. Edit it once its turn has begun, or send a new message.",
        )
    return CanNotFork(
        "unknown_message",
        f"session {views.session_id} has no message {message_id} of a user. Nothing was written. "
        "Name a user's message of this session, or send the text as a new message.",
    )


def _no_session(
    session_id: str, at: int | None, records: list[Record], views: SessionViews
) -> CanNotFork:
    if views.frozen is not None:
        return _frozen(views)
    openings = [r.offset for r in records if r.header("t") == b"SESSION_OPENED"]
    if not openings:
        return CanNotFork(
            "unknown_session",
            f"there is no session {session_id}. Nothing was written. See `foldlog sessions`.",
        )
    return CanNotFork(
        "before_the_beginning",
        f"session {session_id} begins at offset {openings[0]}, after offset {at}. Nothing was "
        "written. To fork from before a fork's beginning, fork its parent (`foldlog show`).",
    )


def _demand_own(views: SessionViews, user: str) -> None:
    if views.turn.known and views.state.user_id != user:
        raise CanNotFork(
            "not_your_session",
            f"session {views.session_id} belongs to another user. Nothing was written.",
        )


def _frozen(views: SessionViews) -> CanNotFork:
    frozen = views.frozen
    assert frozen is not None
    return CanNotFork(
        "frozen",
        f"session {views.session_id} is frozen at offset {frozen.offset} ({frozen.why}). Nothing "
        "was written. Fork it before that offset, skip the record with `foldlog skip`, or use a "
        "version that understands it.",
    )
