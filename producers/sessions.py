"""Writes sessions: each method writes one event and returns the event's position in the log.

A receipt means that the log has the event, not that the fold accepted it; `client/` reports the
fold's ruling. A command that is repeated with the same id (message_id, command_id, cancel_id) takes
effect once. This file generates the ids that the caller omits, from random numbers.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ..log.blobs import BlobStore, open_blobs
from ..log.door import Log, Producer
from ..log.errors import AccessDenied, LogUnreachable
from ..log.made import demand_as_made
from ..log.settings import Settings
from ..schemas import events as ev
from ..schemas.attachments import tokens_of
from ..schemas.bounds import COUNT_MAX
from ..schemas.codec import headers_for
from ..schemas.enums import CancelMode, Decision, Resolution, WhenBusy
from ..schemas.events.parts import Body
from ..schemas.grant import GRANT_SAME
from ..schemas.origin import HEADER, Origin
from ..schemas.tokens import estimate
from ..schemas.topics import SESSION_EVENTS
from . import acknowledgement, attachments, checks
from .acknowledgement import ACK_S
from .checks import Blocks
from .tracing import trace_headers

RULES = 3
"""The version of the fold's rules for new sessions. It must equal the fold's own constant, which
this package cannot import; a test checks this.
"""

CONTENT_TYPE = "application/json"

ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
"""The origin of the events that are written, for their header `by`. The gateway sets it after it
has authenticated an HTTP request."""


def new_session_id() -> str:
    """A random id for a new session, for example of a tab or a terminal."""
    return f"s-{uuid4().hex[:12]}"


def origin_headers(default: Origin | None) -> list[tuple[str, bytes]]:
    """The header for the event to be written. `default`: the origin to record if ORIGIN is not
    set."""
    origin = ORIGIN.get() or default
    return [] if origin is None else [(HEADER, str(origin).encode())]


class Receipt(NamedTuple):
    """The position of an event.

    `id`: the id in the event, given by the caller or generated, or ''.
    """

    session_id: str
    partition: int
    offset: int
    id: str = ""


class Unacknowledged(LogUnreachable):
    """The broker did not acknowledge the event: it may or may not be in the log.

    Repeat the command, and pass `id` as its id unless `id` is ''. The command takes effect once,
    even if the log then has both events.
    """

    def __init__(self, session_id: str, what: str, id: str, reason: str) -> None:
        again = f" with the id {id}" if id else ""
        super().__init__(
            f"{what} for session {session_id} was not acknowledged: {reason}. It may or may not be "
            f"in the log. Do it again{again}: it counts once."
        )
        self.session_id, self.id = session_id, id


class Sessions:
    """Writes every session of one installation. May be used from several threads.

    Each method raises Invalid before producing, Unacknowledged when no broker answers within
    `ack_s` seconds, TopicMissing, RecordTooLarge, or BlobError. `user` defaults to the user of the
    settings.

    `brief`: for a process that writes little and ends; see `door.Log.producer`.
    `origin`: the origin to record if ORIGIN is not set (recorded.py).
    """

    def __init__(
        self,
        log: Log,
        settings: Settings,
        blobs: BlobStore | None = None,
        *,
        ack_s: float = ACK_S,
        brief: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self._origin = origin
        self._log, self._settings, self._blobs, self._ack_s = log, settings, blobs, ack_s
        self._brief = brief
        self._producer: Producer | None = None
        self._making = threading.Lock()

    @property
    def producer(self) -> Producer:
        """The producer that writes all events. A client that shows answers may also use it, to
        report that an answer was delivered."""
        with self._making:
            if self._producer is None:
                self._demand_as_made()
                self._producer = self._log.producer(brief=self._brief)
            return self._producer

    def _demand_as_made(self) -> None:
        try:
            demand_as_made(self._log)
        except AccessDenied:
            raise
        except LogUnreachable:  # the append that follows reports the id for a repetition
            return

    def open(self, session_id: str, *, agent: str, user: str | None = None) -> Receipt:
        """Open a session. To open it again is harmless. For another user or agent, an open session
        is refused."""
        return self.append(
            session_id,
            ev.SessionOpened(
                user_id=self.user(user), agent=checks.an_id("agent", agent), rules=RULES
            ),
        )

    def say(
        self,
        session_id: str,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        channel: str = "python",
        user: str | None = None,
        attach: Sequence[Path | str] = (),
        before: Callable[[], object] = lambda: None,
    ) -> Receipt:
        """Send a message: a text, or a list of content blocks. Large content is stored as a blob.

        attach: images and PDFs, which are placed before the content; with them, the text may be
            empty.
        before: called after validation, right before the event is written.
        """
        checks.an_id("session_id", session_id)
        message_id = self._id("message_id", message_id)
        word = checks.a_word("when_busy", when_busy, WhenBusy)
        checks.an_id("channel", channel)
        by_user = self.user(user)
        if attach:
            is_empty = isinstance(content, str) and not content.strip()
            blocks = [] if is_empty else checks.blocks_of(content)
            content = [*attachments.attach(attach, self._store()), *blocks]
        data = checks.content_json(content)
        message = ev.MessageReceived(
            message_id=message_id,
            role="user",
            content=self.body(data),
            tokens=estimate(data) + sum(map(tokens_of, checks.blocks_of(content))),
            channel=channel,
            when_busy=word.value,
            by_user=by_user,
        )
        before()
        return self.append(session_id, message, message_id)

    def trigger(
        self,
        session_id: str,
        trigger: str,
        *,
        command_id: str | None = None,
        user: str | None = None,
    ) -> Receipt:
        """Request a phase transition; the fold decides whether it is legal."""
        command_id = self._id("command_id", command_id)
        return self.append(
            session_id,
            ev.PhaseTriggered(
                command_id=command_id,
                trigger=checks.an_id("trigger", trigger),
                by_user=self.user(user),
            ),
            command_id,
        )

    def lock(
        self,
        session_id: str,
        project_id: str,
        *,
        command_id: str | None = None,
        user: str | None = None,
    ) -> Receipt:
        """Lock the session to a project; a session can be locked once."""
        command_id = self._id("command_id", command_id)
        return self.append(
            session_id,
            ev.ProjectLocked(
                command_id=command_id,
                project_id=checks.an_id("project_id", project_id),
                by_user=self.user(user),
            ),
            command_id,
        )

    def cancel(
        self,
        session_id: str,
        *,
        turn: int | None = None,
        seen_phase: str | None = None,
        mode: str = CancelMode.NOW,
        reason: str = "",
        cancel_id: str | None = None,
        user: str | None = None,
    ) -> Receipt:
        """Request a cancel.

        Pass the turn and the phase that the user saw. If either has changed since then, the fold
        refuses the cancel.
        """
        cancel_id = self._id("cancel_id", cancel_id)
        if turn is not None and not 1 <= turn <= COUNT_MAX:
            raise checks.Invalid("invalid_turn", f"turns count from 1, so there is no turn {turn}")
        if seen_phase is not None:
            checks.an_id("seen_phase", seen_phase)
        return self.append(
            session_id,
            ev.CancelRequested(
                cancel_id=cancel_id,
                mode=checks.a_word("mode", mode, CancelMode).value,
                turn=turn,
                seen_phase=seen_phase,
                reason=checks.a_reason(reason),
                by_user=self.user(user),
            ),
            cancel_id,
        )

    def decide(
        self,
        session_id: str,
        call: str,
        decision: str,
        *,
        args_sha256: str,
        remember: bool = False,
        like: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Receipt:
        """Allow or deny a tool call that needs approval. The answer is valid only for arguments
        with this SHA-256.

        remember: let later calls of the tool run without approval if they have the same arguments
        or, with `like`, arguments that match its globs.
        """
        return self.append(
            session_id,
            ev.ApprovalDecided(
                call=checks.a_call(call),
                args_sha256=checks.an_id("args_sha256", args_sha256),
                decision=checks.a_word("decision", decision, Decision).value,
                remember=remember or bool(like),
                by_user=self.user(user),
                grant=checks.a_grant(like) if like else GRANT_SAME if remember else "",
            ),
        )

    def resolve(
        self,
        session_id: str,
        call: str,
        outcome: str,
        *,
        report: str = "",
        user: str | None = None,
    ) -> Receipt:
        """Resolve a call in doubt; the model receives `report`."""
        return self.append(
            session_id,
            ev.HumanResolved(
                call=checks.a_call(call),
                outcome=checks.a_word("outcome", outcome, Resolution).value,
                content=Body(inline=checks.a_report(report)),
                by_user=self.user(user),
            ),
        )

    def terminate(self, session_id: str, *, reason: str = "", user: str | None = None) -> Receipt:
        """Terminate the session; its queued messages are dropped."""
        return self.append(
            session_id,
            ev.SessionTerminated(reason=checks.a_reason(reason), by_user=self.user(user)),
        )

    def close(self) -> None:
        """Close the producer, if one was opened."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def user(self, user: str | None) -> str:
        """The acting user: the given user, else the user of the settings. Raises Invalid."""
        return checks.an_id("user", self._settings.user if user is None else user)

    def _id(self, what: str, given: str | None) -> str:
        return uuid4().hex if given is None else checks.an_id(what, given)

    def body(self, data: bytes) -> Body:
        """A Body with this content, inline up to the limit.

        Larger content is stored as a blob first.
        """
        if len(data) <= self._settings.inline_limit_bytes:
            return Body(inline=data)
        return Body(ref=self._store().store(data, CONTENT_TYPE))

    def _store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = open_blobs(self._settings)
        return self._blobs

    def append(self, session_id: str, event: object, id: str = "") -> Receipt:
        """Append one event and wait for its acknowledgement. `id`: the id in the event."""
        checks.an_id("session_id", session_id)
        headers = [
            *headers_for(event, "producer"), *origin_headers(self._origin), *trace_headers()
        ]
        answer = acknowledgement.append(
            self.producer, SESSION_EVENTS, session_id, event, headers, self._ack_s
        )
        if isinstance(answer, str):
            raise Unacknowledged(session_id, ev.BY_CLASS[type(event)].name, id, answer)
        return Receipt(session_id, answer.partition, answer.offset, id)
