"""Sessions: each method writes one event and returns its position in the log.

A receipt means that the log has the event, not that it was accepted: the fold decides, and
consumers/ reports the decision. Every call may be repeated with the same id (message_id,
command_id, cancel_id) and takes effect once. Ids that the caller omits are generated here, the only
place that uses randomness.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ..log.blobs import BlobStore
from ..log.door import Delivered, Log, Producer
from ..log.errors import AccessDenied, AppendError, LogUnreachable
from ..log.made import demand_as_made
from ..log.settings import Settings
from ..schemas import events as ev
from ..schemas.attachments import tokens_of
from ..schemas.bounds import COUNT_MAX
from ..schemas.codec import encode, headers_for
from ..schemas.enums import CancelMode, Decision, Resolution, WhenBusy
from ..schemas.events.parts import Body
from ..schemas.grant import GRANT_SAME
from ..schemas.origin import Origin
from ..schemas.tokens import estimate
from ..schemas.topics import SESSION_EVENTS
from . import attachments, checks
from .checks import Blocks
from .recorded import origin_headers
from .tracing import trace_headers

RULES = 2
"""Version of the fold's meaning that sessions are opened under; a test holds it equal to the
fold's own, which this room can not import."""

ACK_S = 10.0
"""How long a call waits for the broker: a broker that comes back needs under 2 s."""

CONTENT_TYPE = "application/json"


def new_session_id() -> str:
    """An id for a session that has none yet: a tab, a terminal (mission row S0.5)."""
    return f"s-{uuid4().hex[:12]}"


class Receipt(NamedTuple):
    """Where an event lies. `id`: the id it carries, the caller's or the one made for it, or ''."""

    session_id: str
    partition: int
    offset: int
    id: str = ""


class Unacknowledged(LogUnreachable):
    """The broker did not say that it has the event: it may be in the log or not.

    Repeat the call with `id` (where it has one): it counts once, whether or not the first arrived.
    """

    def __init__(self, session_id: str, what: str, id: str, reason: str) -> None:
        again = f" with the id {id}" if id else ""
        super().__init__(
            f"{what} for session {session_id} was not acknowledged: {reason}. It may or may not be "
            f"in the log. Do it again{again}: it counts once."
        )
        self.session_id, self.id = session_id, id


class Sessions:
    """The write side of every session of one installation. May be used from several threads.

    Each method raises Invalid before producing, Unacknowledged when no broker answers within
    `ack_s` seconds, TopicMissing, RecordTooLarge, or BlobError. `user` defaults to the settings'.
    `brief`: for a process that writes little and ends; its first answer comes half a second sooner.
    `origin`: who records what is asked for, where a caller does not say it (recorded.py).
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
        """What events go through; readers that report a delivery may share it."""
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
        except LogUnreachable:  # the record that follows says so, with the id to repeat it by
            return

    def open(self, session_id: str, *, agent: str, user: str | None = None) -> Receipt:
        """Begin a session. The same again is harmless; another user or agent is refused."""
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
        """Say something: a text, or a list of content blocks. Large content goes to the blobs.

        attach: images and PDFs that go before it; with them the text may be empty. before: called
        when all of it has been found right, and before it is written.
        """
        checks.an_id("session_id", session_id)
        message_id = self._id("message_id", message_id)
        word = checks.a_word("when_busy", when_busy, WhenBusy)
        checks.an_id("channel", channel)
        by_user = self.user(user)
        if attach:
            is_empty = isinstance(content, str) and not content.strip()
            said = [] if is_empty else checks.blocks_of(content)
            content = [*attachments.attach(attach, self._store()), *said]
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
        """Ask for a phase transition; the fold knows which are legal."""
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
        """Lock the session to a project, once in its life."""
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
        """Ask to stop. Name the turn and the phase you saw: if either is over, it is refused."""
        cancel_id = self._id("cancel_id", cancel_id)
        if turn is not None and not 1 <= turn <= COUNT_MAX:
            raise checks.Invalid("invalid_turn", f"turns count from 1, there is no turn {turn}")
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
        """Allow or deny a call that asks, bound to the arguments that were shown (their sha256).

        remember: later calls of the tool with these very arguments run without asking, or those
        whose arguments are as the globs of `like` say.
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
        """Say what happened to a call in doubt; `report` is what the model is told of it."""
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
        """End the session for good; what waits in its queue is dropped."""
        return self.append(
            session_id,
            ev.SessionTerminated(reason=checks.a_reason(reason), by_user=self.user(user)),
        )

    def close(self) -> None:
        """End the producer, if there was one."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def user(self, user: str | None) -> str:
        """Who acts: the one given, else the settings'. Raises Invalid."""
        return checks.an_id("user", self._settings.user if user is None else user)

    def _id(self, what: str, given: str | None) -> str:
        return uuid4().hex if given is None else checks.an_id(what, given)

    def body(self, data: bytes) -> Body:
        """Content inline up to the limit; beyond it the bytes are on disk before the event is."""
        if len(data) <= self._settings.inline_limit_bytes:
            return Body(inline=data)
        return Body(ref=self._store().store(data, CONTENT_TYPE))

    def _store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = BlobStore(self._settings.blobs_dir)
        return self._blobs

    def append(self, session_id: str, event: object, id: str = "") -> Receipt:
        """Have one event in the log; `id` is the one that it carries."""
        checks.an_id("session_id", session_id)
        answers: queue.SimpleQueue[Delivered | AppendError] = queue.SimpleQueue()
        self.producer.append(
            SESSION_EVENTS,
            session_id,
            encode(event),
            [*headers_for(event, "producer"), *origin_headers(self._origin), *trace_headers()],
            on_delivery=answers.put,
        )
        what = ev.BY_CLASS[type(event)].name
        try:
            answer = answers.get(timeout=self._ack_s)
        except queue.Empty:
            why = f"no broker answered within {self._ack_s:g} s"
            raise Unacknowledged(session_id, what, id, why) from None
        if isinstance(answer, AppendError) and answer.denied is not None:
            raise answer.denied
        if isinstance(answer, AppendError):
            raise Unacknowledged(session_id, what, id, answer.reason) from answer
        return Receipt(session_id, answer.partition, answer.offset, id)
