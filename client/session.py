"""A session for Python users: send, follow, decide on calls, inspect. Its methods block; `aio.py`
wraps them.

A `Feed` folds the session once and passes the public events to its streams, so all readers and
commands of a session share one position in the log. A stream that starts in the past has its own
feed, because a fold only moves forward.
"""

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, Unpack
from uuid import uuid4

from ..log.errors import LogUnreachable, Refused
from ..processors.fold.sessions import FoldedEvent
from ..processors.fold.views import SessionViews
from ..producers.checks import Blocks
from ..producers.options import CancelOptions, Grant, MessageOptions
from ..producers.sessions import Receipt
from ..schemas.enums import CancelMode, Decision as Decided, Resolution, WhenBusy
from .branching import Branching
from .calls import demand_unresolved
from .closing import Closing
from .commands import DEFAULT_AGENT, Commands
from .events import (
    ApprovalAsked,
    InDoubt,
    MessageReceived,
    SessionEvent,
    ToolFinished,
    Waiting,
    demand_event_class,
    of_line,
    public,
    repeats_a_doubt,
)
from .log_client import LogClient
from .outcomes import (
    ANSWER_S,
    PATIENCE_S,
    Answer,
    Decision,
    NoAnswerYet,
    Patience,
    UnknownMessage,
    answer_in,
    answer_of_turn,
    decision_on,
    demand,
)
from .session_fold import SessionFold
from .session_state import ModelRequest, SessionState, state_of
from .show import known, request_of
from .transcript_stream import INITIAL, LineAdded, see
from .waiting import what_it_waits_for

E = TypeVar("E", bound=SessionEvent)
P = ParamSpec("P")
POLL_S = 0.05
"""How long one poll waits for records, in seconds. A command in another thread may have to wait for
the end of such a poll.
"""

_log = logging.getLogger("foldlog")
CURSOR_CHARS_MAX = 40
BACKLOG_MAX = 10_000
"""How many events are kept at most for a stream that is not read, while another stream of the same
session is read.
"""


class BadCursor(Refused):
    """The cursor is not from this session."""


class StreamOverrun(Refused):
    """A stream was not read for so long that events were dropped. `cursor`: where to continue."""

    def __init__(self, session_id: str, cursor: str) -> None:
        super().__init__(
            f"a stream of session {session_id} was not read while {BACKLOG_MAX:,} events came. "
            f"Nothing is lost in the log. Continue with events(cursor={cursor!r})."
        )
        self.cursor = cursor


class ReplyEnded(Refused):
    """The reply ended without an event of the requested class."""


def answer_later(call: str) -> Callable[[object, str], NoReturn]:
    """The `__getattr__` of a reply, for code that uses the reply as its answer. `call`: the code
    that gets the answer.
    """

    def __getattr__(self: object, name: str) -> NoReturn:
        error = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in Answer._fields:
            error += f" before its answer arrives. Write `{call}.{name}`."
        raise AttributeError(error)

    return __getattr__


class Feed:
    """One fold of a session and the streams that show it, for use from any thread.

    The feed is closed by `close`, or when no session and no stream uses it any more.
    """

    def __init__(self, client: LogClient, session_id: str, *, chunks: bool = True) -> None:
        self.session_id, self.client = session_id, client
        self.lock = threading.RLock()
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._viewer = INITIAL
        take = weakref.WeakMethod(self._take)  # so that the fold does not keep this feed
        self.fold = client.fold(
            session_id, chunks=chunks, listen=lambda seen: _call(take, seen)
        )
        self._close_fold = weakref.finalize(self, self.fold.close)
        self._unreachable = ""
        self._query_at = time.monotonic() + PATIENCE_S

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for a block. Raises Refused if the feed is closed."""
        with self.lock:
            self.demand_open()
            yield

    def demand_open(self) -> None:
        """Raise Refused if the feed is closed."""
        if not self._close_fold.alive:
            raise Refused(
                f"session {self.session_id} was closed here, so nothing more is read from it or "
                "written to it. It continues in its worker. Open it again to follow it."
            )

    def _take(self, seen: FoldedEvent) -> None:
        read, offset = self.client.read_blob, seen.entry.offset
        self._viewer, things = see(self._viewer, seen, read)
        if not self.streams:
            return
        lines = seen.views.transcript.lines
        events = [
            public(self.session_id, thing, offset, f"{offset}.{number}", read, lines)
            for number, thing in enumerate(things, 1)
            if not (isinstance(thing, LineAdded) and repeats_a_doubt(thing.line, lines))
        ]
        for stream in tuple(self.streams):
            stream.offer(seen, events)

    def catch_up(self, end: int | None = None) -> SessionViews:
        """Fold to the offset `end`, by default the present end of the log.

        Raises LogUnreachable.
        """
        with self.held():
            for _ in self.fold.upto(self.fold.end() if end is None else end):
                pass
            return self.fold.views

    def pump(self, timeout_s: float = POLL_S) -> None:
        """Fold new events, waiting at most `timeout_s` seconds. Raises Refused if the feed is
        closed.
        """
        with self.held():
            for _ in self.fold.poll(timeout_s):
                self._unreachable, self._query_at = "", time.monotonic() + PATIENCE_S

    def why_unreachable(self) -> str:
        """Why the broker does not answer; '' if it does.

        Queries the broker after each pause in events.
        """
        with self.held():
            if time.monotonic() >= self._query_at:
                try:
                    self.fold.end()
                    self._unreachable = ""
                except LogUnreachable as error:
                    self._unreachable = str(error)
                self._query_at = time.monotonic() + PATIENCE_S
            return self._unreachable

    def close(self) -> None:
        """Close the reader."""
        with self.lock:
            self._close_fold()


class Stream(Closing):
    """Live events of a session, as an iterator without end. Close the stream, or use `with`."""

    def __init__(self, feed: Feed, *, owns_feed: bool = False) -> None:
        self.session_id = feed.session_id
        self._feed = feed
        self._events: deque[SessionEvent] = deque()
        self._skip: tuple[int, int] = (-1, 0)
        self._overrun: str | None = None
        self._ended = False
        self._is_unreachable = False
        self.drops_events = False
        self._cursor = f"{feed.fold.cursor}.0"
        # A weak reference avoids a cycle, so an unused stream is freed at once.
        waits = weakref.WeakMethod(self._waits)
        self._patience = Patience(lambda reason: _call(waits, reason), PATIENCE_S)
        feed.streams.add(self)
        self._owns_feed = owns_feed

    # -- called by the feed ------------------------------------------------------------------------

    def offer(self, seen: FoldedEvent, events: list[SessionEvent]) -> None:
        """Add the events of one record to the stream's backlog."""
        self._patience.note_event(seen)
        self._accept(seen, events)

    def _accept(self, seen: FoldedEvent, events: list[SessionEvent]) -> None:
        """Add events. Those up to the cursor at which the stream starts are left out."""
        offset, number = self._skip
        if seen.entry.offset == offset:
            events = [event for event in events if _number(event) > number]
        self._add(events)

    def _add(self, events: list[SessionEvent]) -> None:
        if self._overrun is not None or self._ended:
            return
        if len(self._events) + len(events) > BACKLOG_MAX:
            self._overrun = self._events[-1].cursor if self._events else self._cursor
            return
        self._events.extend(events)

    # -- called by the reader ----------------------------------------------------------------------

    def pump(self) -> None:
        """Read the log once, for at most 50 ms, unless an event is already available.

        If the broker does not answer, or the turn does not continue, add a Waiting event.
        """
        if not self.is_idle or self._overrun is not None:
            return
        self._feed.pump()
        if self.is_idle:
            why = self._feed.why_unreachable()
            if why and not self._is_unreachable:
                self._wait_for(f"{why} This stream continues by itself when a broker answers.")
            self._is_unreachable = bool(why)
        if self.is_idle and not self._is_unreachable:
            with self._feed.lock:
                self._patience.report_if_due(self._feed.fold.views, self._feed.fold.holders)

    def _waits(self, reason: str) -> None:
        if what_it_waits_for(self._feed.fold.views, self._feed.fold.holders).person:
            self._report(reason)  # in the stream, another event asks the person
        else:
            self._wait_for(reason)

    def _report(self, reason: str) -> None:
        """Log why the turn does not continue, if the caller drops the events that show it."""
        if self.drops_events:
            _log.warning("session %s waits: %s", self.session_id, reason)

    def _wait_for(self, reason: str) -> None:
        """Report the reason, and add a Waiting event."""
        self._report(reason)
        turn, offset = self._feed.fold.views.turn, self._feed.fold.cursor
        waiting = Waiting(
            session_id=self.session_id,
            turn=turn.number,
            step=turn.step,
            offset=offset,
            cursor=self._cursor,
            reason=reason,
        )
        self._add([waiting])

    def take(self) -> SessionEvent | None:
        """The next available event, or None.

        After an overrun, raises StreamOverrun once all available events were taken.
        """
        if self._events:
            event = self._events.popleft()
            self._cursor = event.cursor
            return event
        if self._overrun is not None:
            raise StreamOverrun(self.session_id, self._overrun)
        return None

    @property
    def cursor(self) -> str:
        """The cursor after the last event that was taken, to continue from."""
        return self._cursor

    @property
    def ended(self) -> bool:
        """Whether the stream has no more events."""
        return self._ended and not self._events

    @property
    def is_idle(self) -> bool:
        """Whether the stream is open but has no available event."""
        return not self._events and not self._ended

    def __iter__(self) -> Iterator[SessionEvent]:
        while not self.ended:
            event = self.take()
            if event is None:
                self.pump()
            else:
                yield event
        self.close()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of session {self.session_id}, read up to cursor "
            f"{self._cursor}: iterate over it for its events>"
        )

    def until(self, kind: type[E], *, timeout_s: float | None = None) -> E:
        """Return the next event of a class, and skip the events before it. Raises ReplyEnded if the
        reply ends without such an event, NoAnswerYet after `timeout_s` seconds.
        """
        demand_event_class(kind)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self.dropping(kind):
            while not self.ended:
                event = self.take()
                if isinstance(event, kind):
                    return event
                if event is None:
                    self.pump()
                    if self.is_idle and deadline is not None and time.monotonic() > deadline:
                        self._patience.restart()  # the next wait reports the reason, too
                        raise NoAnswerYet(
                            f"no {kind.__name__} came in {timeout_s:g} s. The session continues; "
                            "wait again with the same call."
                        )
        raise ReplyEnded(f"the reply ended without {kind.__name__}{self._how_ended()}")

    @contextmanager
    def dropping(self, kind: type[E]) -> Iterator[None]:
        """In the block, all events but those of a class are dropped, so reasons are logged."""
        self.drops_events = not issubclass(Waiting, kind)
        try:
            yield
        finally:
            self.drops_events = False

    def _how_ended(self) -> str:
        return ""

    def close(self) -> None:
        """Close the stream; the session continues."""
        self._ended = True
        self._events.clear()
        with self._feed.lock:
            self._feed.streams.discard(self)
        if self._owns_feed:
            self._feed.close()


class Reply(Stream):
    """The reply to one message, or to a replaced result: iterate over its events until the turn has
    ended, or wait for `answer()`. If you stop reading, the turn continues in its worker.
    """

    if not TYPE_CHECKING:  # or a type checker would allow `await` and every attribute
        __getattr__ = answer_later("reply.answer()")

        def __await__(self) -> NoReturn:
            raise TypeError(
                "`await` needs a session of foldlog.aconnect(); this one is of foldlog.connect(), "
                "whose methods block. Call `reply.answer()` for the answer."
            )

    def __init__(
        self, feed: Feed, message_id: str, *, turn: int = 0, owns_feed: bool = False
    ) -> None:
        super().__init__(feed, owns_feed=owns_feed)
        self.message_id, self._turn = message_id, turn
        self._answer: Answer | None = None
        self._report_to: Callable[[str], None] | None = None

    def _accept(self, seen: FoldedEvent, events: list[SessionEvent]) -> None:
        """Add the events that belong to the turn of this message."""
        progress = seen.views.messages.progress.last(self.message_id)
        if progress is None and not self._turn:
            return  # not written yet, or still queued behind another turn
        turn = self._turn if progress is None else progress.turn
        super()._accept(seen, [event for event in events if self._belongs(event, turn)])
        self.settle(seen.views)

    def settle(self, views: SessionViews) -> None:
        """If the turn has ended, store the answer and end the stream.

        Raises UnknownMessage.
        """
        if self._ended:
            return
        read = self._feed.client.read_blob
        if self._turn:
            self._answer = answer_of_turn(views, self._turn, read)
        else:
            self._answer = answer_in(views, self.message_id, read)
        if self._answer is not None:
            self._ended = True
            self._feed.streams.discard(self)

    def _belongs(self, event: SessionEvent, turn: int) -> bool:
        mine = isinstance(event, MessageReceived) and event.message_id == self.message_id
        return event.turn == turn and not mine

    def _report(self, reason: str) -> None:
        if self._report_to is None:
            super()._report(reason)
        else:
            self._report_to(reason)

    def answer(
        self, *, timeout_s: float = ANSWER_S, report: Callable[[str], None] | None = None
    ) -> Answer:
        """Wait until the turn has ended, and return the answer. Raises NoAnswerYet.

        report: is called with each reason why the turn does not continue; by default it is logged.
        """
        self._report_to = report
        deadline = time.monotonic() + timeout_s
        while (answer := self.poll_answer()) is None:
            if time.monotonic() > deadline:
                raise self.no_answer_yet(timeout_s)
        return answer

    def poll_answer(self) -> Answer | None:
        """Read the log once, and return the answer if the turn has ended.

        Drops the events before it.
        """
        if self._answer is None and self._ended:
            raise Refused("the reply was closed before its turn ended; the turn continues.")
        self._events.clear()
        self.drops_events = True
        if self._answer is None:
            self.pump()
        return self._answer

    def no_answer_yet(self, timeout_s: float) -> NoAnswerYet:
        """The error to raise if the answer did not come in time. The next wait reports the reason,
        too."""
        self.drops_events = False
        self._patience.restart()
        unreachable = self._feed.why_unreachable().rstrip(".")
        fold = self._feed.fold
        waits = what_it_waits_for(fold.views, fold.holders)
        reason = unreachable or waits.text
        how = "events()" if self._turn else f"reply({self.message_id!r})"
        return NoAnswerYet(
            f"{self._about} of session {self.session_id} is not answered after {timeout_s:g} s"
            f"{reason and f': {reason}'}. It is kept: {how} of the session waits for it again.",
            waits,
        )

    @property
    def _about(self) -> str:
        return f"turn {self._turn}" if self._turn else f"message {self.message_id}"

    def __repr__(self) -> str:
        return (
            f"<Reply to {self._about} of session {self.session_id}: iterate over it for its "
            "events, or call reply.answer()>"
        )

    def _how_ended(self) -> str:
        if self._answer is None:
            return ""
        note = self._answer.note and f" ({self._answer.note})"
        return f": its turn ended with {self._answer.reason}{note}"


class Session(Closing):
    """One session, for use from any thread.

    `id`: the session's name, with which `connection.open(id)` continues the session.
    `agent`: the agent that answers.
    `user`: the user who acts.

    A command waits until it is in the log, and returns the fold's ruling on it. The verdict is
    `duplicate` if the command was in effect before. Raises CommandRefused. Every error is a
    FoldlogError whose text says what happened and what to do.
    """

    def __init__(
        self,
        client: LogClient,
        session_id: str,
        agent: str | None = None,
        *,
        user: str | None = None,
        chunks: bool = True,
    ) -> None:
        self.id, self.user = session_id, user or client.user
        self.client, self._agent = client, agent
        self._feed = Feed(client, session_id, chunks=chunks)

    @property
    def agent(self) -> str:
        """The agent that answers in this session."""
        turn = self._feed.fold.views.turn
        return turn.agent if turn.known else self._agent or DEFAULT_AGENT

    @property
    def fold(self) -> SessionFold:
        """The fold of this session, which its commands move forward."""
        return self._feed.fold

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self.user}, agent {self.agent}>"

    def _rule(
        self,
        write: Callable[Concatenate[Commands, P], Receipt],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Decision:
        """Fold to the end, write a command, fold it, and return the ruling."""
        with self._feed.held():
            client, views = self.client, self._feed.catch_up()
            on = Commands(client.writer, views, self.user, client.read_blob)
            return demand(decision_on(self.fold, write(on, *args, **kwargs)))

    # -- talking -----------------------------------------------------------------------------------

    def open(self, agent: str | None = None) -> Decision:
        """Open the session; repeating it with the same agent is harmless."""
        return self._rule(Commands.open, agent or self.agent)

    def _open_if_new(self) -> None:
        if not self.fold.views.turn.known:
            self.open()

    def say(self, content: str | Blocks, **options: Unpack[MessageOptions]) -> Decision:
        """Send a message without following its reply; open the session if it is new. The options
        are those of `send`.
        """
        channel, before = self.client.channel, self._open_if_new
        return self._rule(Commands.say, content, channel=channel, before=before, **options)

    def send(
        self,
        content: str | Blocks,
        *,
        attach: Sequence[Path | str] = (),
        message_id: str | None = None,
        when_busy: WhenBusy | str = WhenBusy.QUEUE,
    ) -> Reply:
        """Send a message, and return its reply: iterate over it, or wait for `reply.answer()`.

        attach: image or PDF files.
        when_busy: what to do while another turn runs: `queue` the message, `interrupt` the turn or
            `steer` it.
        message_id: the message's id, by default a new one.

        If the session already has a message with this id, nothing is sent, and the reply to that
        message is returned from its first event.
        """
        message_id = message_id or uuid4().hex
        feed = self._feed
        with feed.held():
            views = feed.catch_up()
            if views.messages.received.last(message_id) is not None:
                return self._reply_again(views, message_id)
            reply = Reply(feed, message_id)
            try:
                self.say(content, attach=attach, message_id=message_id, when_busy=when_busy)
            except BaseException:
                reply.close()
                raise
            return reply

    def _reply_again(self, views: SessionViews, message_id: str) -> Reply:
        """The reply to a message that was sent earlier. It yields all of the reply's events again.
        """
        received = views.messages.received.last(message_id)
        if received is None:
            raise UnknownMessage(f"session {self.id} has no message {message_id}")
        feed = Feed(self.client, self.id)
        feed.catch_up(received.offset)
        return Reply(feed, message_id, owns_feed=True)

    def reply(self, message_id: str) -> Reply:
        """The reply to a message that was sent earlier. It yields all of the reply's events again.

        Raises UnknownMessage.
        """
        return self._reply_again(self._feed.catch_up(), message_id)

    def events(self, cursor: str | None = None) -> Stream:
        """A stream of the events from now on, or from right after the event with this cursor. No
        event is missed or repeated. Raises BadCursor.
        """
        if cursor is None:
            with self._feed.held():
                self._feed.catch_up()
                return Stream(self._feed)
        offset, skip = _parsed(self.id, cursor)
        feed = Feed(self.client, self.id)
        if offset > feed.fold.end():
            feed.close()
            raise BadCursor(f"cursor {cursor} is beyond the end of session {self.id}'s partition.")
        feed.catch_up(offset)
        stream = Stream(feed, owns_feed=True)
        stream._skip = (offset, skip)
        return stream

    # -- deciding ----------------------------------------------------------------------------------

    def approve(
        self,
        call: ApprovalAsked | str,
        *,
        remember: bool = False,
        like: Mapping[str, str] | None = None,
    ) -> Decision:
        """Allow a call with the arguments that the event shows. remember: also allow later calls
        with the same arguments, or with arguments that match the globs of `like`.
        """
        return self.decide(call, Decided.ALLOW, remember=remember, like=like)

    def deny(self, call: ApprovalAsked | str) -> Decision:
        """Refuse a call. The model reads the refusal and continues."""
        return self.decide(call, Decided.DENY)

    def decide(
        self,
        call: ApprovalAsked | str,
        decision: Decided | str,
        *,
        args_sha256: str | None = None,
        remember: bool = False,
        like: Mapping[str, str] | None = None,
    ) -> Decision:
        """Allow or deny a call with the arguments that the event shows, or with arguments of this
        SHA-256, by default with its present arguments. See `approve`.
        """
        if isinstance(call, ApprovalAsked):
            args_sha256, call = call.arguments_sha256, call.call
        grant: Grant = {"remember": remember, "like": like}
        return self._rule(Commands.decide, str(call), decision, args_sha256=args_sha256, **grant)

    def resolve(
        self, call: InDoubt | str, *, happened: str | None = None, did_not_happen: bool = False
    ) -> Decision:
        """Report what you found out about a call in doubt: `happened="the receipt is #17"`, or
        `did_not_happen=True`. The call is not run again; the model gets the report.
        """
        if (happened is None) != did_not_happen:
            raise Refused('give either happened="what you know" or did_not_happen=True')
        if happened is not None and not happened.strip():
            raise Refused("happened= is empty. Write what you know: the model reads it.")
        outcome = Resolution.DID_NOT_HAPPEN if happened is None else Resolution.HAPPENED
        name, report = call.call if isinstance(call, InDoubt) else call, happened or ""
        decision = self._rule(Commands.resolve, name, outcome, report=report)
        if decision.is_repeated:  # the fold compares outcomes, not reports
            demand_unresolved(decision.views, name, outcome, report, self.client.read_blob)
        return decision

    def cancel(
        self,
        *,
        mode: CancelMode | str = CancelMode.NOW,
        reason: str = "",
        turn: int | None = None,
        seen_phase: str | None = None,
        cancel_id: str | None = None,
    ) -> Decision:
        """Cancel the running turn, now or after its step. If `turn` or `seen_phase` is given and no
        longer current, the cancel is refused. cancel_id: an id of your own, with which a repeated
        cancel counts once.
        """
        options: CancelOptions = {"mode": mode, "reason": reason, "cancel_id": cancel_id}
        return self._rule(Commands.cancel, turn=turn, seen_phase=seen_phase, **options)

    def trigger(self, trigger: str, *, command_id: str | None = None) -> Decision:
        """Request a phase transition. command_id: an id of your own, with which a repeated command
        counts once."""
        return self._rule(Commands.trigger, trigger, command_id=command_id)

    def lock(self, project_id: str, *, command_id: str | None = None) -> Decision:
        """Lock the session to a project, which can be done once. command_id: an id of your own,
        with which a repeated command counts once.
        """
        return self._rule(Commands.lock, project_id, command_id=command_id)

    def terminate(self, *, reason: str = "") -> Decision:
        """End the session permanently."""
        return self._rule(Commands.terminate, reason=reason)

    def fork(
        self, at: SessionEvent | int | None = None, *, session_id: str | None = None
    ) -> "Session":
        """Open a new session that begins with the state of this session: the state right after an
        event or an offset, by default the present state. No model call and no tool of this session
        runs again in the new session.
        """
        forked = self._branching().fork(self.id, _offset(at), session_id)
        return Session(self.client, forked.session_id, user=self.user)

    def regenerate(self, turn: int | None = None) -> tuple["Session", Reply]:
        """Get another answer to a turn (by default the last). Forks the session before the turn,
        sends the turn's messages to the fork, and returns the fork and the reply.
        """
        forked = self._branching().regenerate(self.id, turn, None)
        session = Session(self.client, forked.session_id, user=self.user)
        return session, session.reply(forked.message_id)

    def rerun(
        self,
        content: str | Blocks,
        *,
        message: MessageReceived | str | None = None,
        call: ToolFinished | str | None = None,
        at: SessionEvent | int | None = None,
        error: bool = False,
        reason: str = "",
        session_id: str | None = None,
    ) -> tuple["Session", Reply]:
        """Edit a message and get another answer, in a fork. With `call`, edit the result of that
        call instead; no tool runs again. Returns the fork and the reply.

        message: by default the last one, or the last one right after the event or offset `at`.
        error: whether the new result is that of a failed call. Needs `call`.
        reason: why the result was replaced, for people to read. Needs `call`.
        """
        key = call.call if isinstance(call, ToolFinished) else call
        message_id = message.message_id if isinstance(message, MessageReceived) else message
        forked = self._branching().rerun(
            self.id, content, message_id=message_id, call=key, at=_offset(at), error=error,
            reason=reason, name=session_id,
        )
        session = Session(self.client, forked.session_id, user=self.user)
        if not forked.turn:
            return session, session.reply(forked.message_id)
        origin, feed = forked.decision.views.origin, Feed(self.client, forked.session_id)
        assert origin is not None, "a fork has an origin"
        feed.catch_up(origin.opened + 1)
        return session, Reply(feed, "", turn=forked.turn, owns_feed=True)

    def _branching(self) -> Branching:
        self._feed.demand_open()
        return self.client.branching(self.user)

    # -- looking inside ----------------------------------------------------------------------------

    def history(self) -> list[SessionEvent]:
        """The events so far, without tokens: messages, answers, calls, approvals, ends of turns."""
        views = self._known()
        read = self.client.read_blob
        lines = views.transcript.lines
        return [
            of_line(self.id, line, line.offset, f"{line.offset + 1}.0", read, lines)
            for line in lines if not repeats_a_doubt(line, lines)
        ]  # fmt: skip

    def state(self) -> SessionState:
        """The present state of the session, and what it waits for."""
        return state_of(self._known(), self._feed.fold.holders, self.client)

    def request(self, step: str) -> ModelRequest:
        """The request of a step (`"TURN.STEP"`), rebuilt from the log byte for byte. Raises
        UnknownStep.
        """
        turn, _, number = str(step).partition(".")
        if not (isinstance(step, str) and turn.isdecimal() and number.isdecimal()):
            raise Refused(f'a step is "TURN.STEP", such as "1.2", not {step!r}')
        with self._feed.held(), self.client.fold(self.id, chunks=True) as folded:
            found = request_of(folded, int(turn), int(number), self.client.read_blob)
        return ModelRequest.of(step, found)

    def views(self, at: int | None = None) -> SessionViews:
        """The session's raw views: the present views, or those right after an offset.

        A worker makes its decisions from these views.
        """
        if at is None:
            return self._known()
        with self._feed.held(), self.client.fold(self.id) as folded:
            if at >= (end := folded.end()):
                raise Refused(
                    f"offset {at} is beyond the end of the log: the newest offset of session "
                    f"{self.id}'s partition is {end - 1}"
                )
            return known(folded, at)

    def _known(self) -> SessionViews:
        with self._feed.held():
            return known(self._feed.fold)

    # -- closing -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this object's feed and streams; the session continues. This happens by itself once
        the program has no reference to this object or to any of its streams.
        """
        self._feed.close()


def reply_from_now(session: Session, message_id: str) -> Reply:
    """The reply to an earlier message, without its events so far, so that nothing is folded again.

    Raises UnknownMessage.
    """
    feed = session._feed
    with feed.held():
        views, reply = feed.catch_up(), Reply(feed, message_id)
        reply.settle(views)
        return reply


def _offset(at: SessionEvent | int | None) -> int | None:
    offset = at.offset if isinstance(at, SessionEvent) else at
    if not isinstance(offset, int | None):
        raise Refused(f"fork at an event or at its `offset`, which is a number, not at {at!r}")
    return offset


def _call(method: "weakref.WeakMethod[Any]", *args: object) -> None:
    found = method()
    if found is not None:
        found(*args)


def _number(event: SessionEvent) -> int:
    """The number of an event among those of its record."""
    return int(event.cursor.partition(".")[2])


def _parsed(session_id: str, cursor: str) -> tuple[int, int]:
    offset, dot, number = str(cursor).partition(".")
    is_cursor = isinstance(cursor, str) and len(cursor) < CURSOR_CHARS_MAX
    if not (is_cursor and dot and offset.isdecimal() and number.isdecimal() and cursor.isascii()):
        raise BadCursor(
            f"{cursor!r} is not a cursor of session {session_id}. Use the `cursor` of an event."
        )
    return int(offset), int(number)
