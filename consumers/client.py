"""The API for Python users: send a message, wait for the decision or the answer, read sessions.

Joins the write side and the read side over one log: each command waits until the fold has decided
and returns the decision, or raises CommandRefused with the reason. It keeps no state of a session
between calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ..log import open_log
from ..log.blobs import BlobStore
from ..log.door import Log
from ..log.settings import Settings
from ..processors.fold.views import SessionViews
from ..producers.checks import Blocks
from ..producers.sessions import Receipt, Sessions
from ..schemas.enums import CancelMode, Decision as Decided, Resolution, WhenBusy
from ..schemas.events.parts import BlobRef
from ..schemas.origin import Origin
from .branching import Branching, Forked, Skipped
from .calls import call_named, demand_unresolved
from .follow import Follow
from .outcomes import ANSWER_S, Answer, Decision, answer_of, decision_on, demand
from .session_fold import SessionFold
from .show import Everything, fold_everything, known
from .transcript_stream import INITIAL, Shown, see, snapshot
from .unanswered import demand_agent

DEFAULT_AGENT = "default"
"""The agent of a session that is opened by its first message without naming an agent."""


class Client:
    """Sessions of one installation. `user` acts in every command, by default the settings'.
    `brief`, `origin`: see `Sessions`.

    Raises from the log (LogUnreachable, TopicMissing), from the producers (Invalid, Unacknowledged,
    BlobError), CommandRefused when the fold refuses, UnknownSession, NobodyAnswers. Close it, or
    use `with`.
    """

    def __init__(
        self,
        settings: Settings,
        log: Log | None = None,
        *,
        user: str | None = None,
        channel: str = "python",
        brief: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self.settings = settings
        self.log = log if log is not None else open_log(settings)
        self.user = user or settings.user
        self.channel = channel
        self._owns_log = log is None
        self._blobs: BlobStore | None = None
        self.sessions = Sessions(self.log, settings, brief=brief, origin=origin)

    # -- commands: each returns the decision, accepted now or before -------------------------------

    def open(self, session_id: str, *, agent: str = DEFAULT_AGENT) -> Decision:
        """Open a session; repeating it with the same agent is harmless."""
        return self._command(
            session_id, lambda _v: self.sessions.open(session_id, agent=agent, user=self.user)
        )

    def say(
        self,
        session_id: str,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        agent: str | None = None,
    ) -> tuple[Decision, str]:
        """Send a message. Returns the decision and the message_id. Opens the session if it is new.
        """
        with self.fold(session_id) as folded:
            receipt = self.say_on(
                folded,
                content,
                message_id=message_id,
                when_busy=when_busy,
                agent=agent,
            )
            return demand(decision_on(folded, receipt)), receipt.id

    def say_on(
        self,
        folded: SessionFold,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        agent: str | None = None,
        attach: Sequence[Path | str] = (),
    ) -> Receipt:
        """As `say`, on an existing fold and without waiting: the receipt.

        Two clients may open the same session at once with the same agent: the second
        SESSION_OPENED is a repetition. An invalid message opens nothing.
        """
        session_id, agent = folded.session_id, agent or DEFAULT_AGENT
        demand_agent(folded.to_end(), agent)

        def open_if_new() -> None:
            if not folded.views.turn.known:
                receipt = self.sessions.open(session_id, agent=agent, user=self.user)
                demand(decision_on(folded, receipt))

        return self.sessions.say(
            session_id,
            content,
            message_id=message_id,
            when_busy=when_busy,
            channel=self.channel,
            user=self.user,
            attach=attach,
            before=open_if_new,
        )

    def ask(
        self,
        session_id: str,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        agent: str | None = None,
        timeout_s: float = ANSWER_S,
        say: Callable[[str], None] = lambda _line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Send a message and wait until its turn has ended. Also raises NoAnswerYet.

        Repeating a message_id returns the same answer, without a second turn.
        """
        with self.fold(session_id) as folded:
            receipt = self.say_on(
                folded,
                content,
                message_id=message_id,
                when_busy=when_busy,
                agent=agent,
            )
            demand(decision_on(folded, receipt))
            return answer_of(
                folded, receipt.id, read=self.read_blob, timeout_s=timeout_s, say=say, stop=stop
            )

    def fork(self, session_id: str, at: int | None = None, *, name: str | None = None) -> Forked:
        """A new session that begins as this one was right after an offset, or as it is now."""
        return self.branching().fork(session_id, at, name)

    def regenerate(
        self, session_id: str, turn: int | None = None, *, name: str | None = None
    ) -> Forked:
        """A fork before a turn, by default the last, with the same messages sent again."""
        return self.branching().regenerate(session_id, turn, name)

    def skip(self, session_id: str, offset: int | None = None, *, reason: str = "") -> Skipped:
        """Let a frozen session continue without the record that froze it."""
        return self.branching().skip(session_id, offset, reason)

    def branching(self, user: str | None = None) -> Branching:
        """The Branching object for a user."""
        return Branching(
            self.log, self.sessions, self._blob_store(), self.read_blob, user or self.user
        )

    def trigger(self, session_id: str, trigger: str, *, command_id: str | None = None) -> Decision:
        """Request a phase transition."""
        return self._command(
            session_id,
            lambda _v: self.sessions.trigger(
                session_id, trigger, command_id=command_id, user=self.user
            ),
        )

    def lock(self, session_id: str, project_id: str, *, command_id: str | None = None) -> Decision:
        """Lock the session to a project, which can be done once."""
        return self._command(
            session_id,
            lambda _v: self.sessions.lock(
                session_id, project_id, command_id=command_id, user=self.user
            ),
        )

    def cancel(
        self,
        session_id: str,
        *,
        mode: str = CancelMode.NOW,
        reason: str = "",
        cancel_id: str | None = None,
        turn: int | None = None,
        seen_phase: str | None = None,
    ) -> Decision:
        """Stop the running turn, if turn and phase are still those given; by default those of now.
        """

        def produce(views: SessionViews) -> Receipt:
            open_turn = views.turn.number if views.turn.open else None
            return self.sessions.cancel(
                session_id,
                turn=turn if turn is not None else open_turn,
                seen_phase=seen_phase if seen_phase is not None else views.state.phase,
                mode=mode,
                reason=reason,
                cancel_id=cancel_id,
                user=self.user,
            )

        return self._command(session_id, produce)

    def decide(
        self,
        session_id: str,
        call: str,
        decision: Decided | str,
        *,
        args_sha256: str | None = None,
        remember: bool = False,
        like: Mapping[str, str] | None = None,
    ) -> Decision:
        """Allow or deny a call, bound to its present arguments, or to those of `args_sha256`.

        remember: later calls with the same arguments, or those that match `like`, run without
        approval.
        """

        def produce(views: SessionViews) -> Receipt:
            pending = call_named(views, call)
            return self.sessions.decide(
                session_id,
                pending.key,
                decision,
                args_sha256=args_sha256 or pending.args_sha256,
                remember=remember,
                like=like,
                user=self.user,
            )

        return self._command(session_id, produce)

    def resolve(
        self, session_id: str, call: str, outcome: Resolution | str, *, report: str = ""
    ) -> Decision:
        """Report what happened to a call in doubt; this never runs the call again.

        Raises AlreadyResolved if a person has already reported something else.
        """

        def produce(views: SessionViews) -> Receipt:
            demand_unresolved(views, call, outcome, report, self.read_blob)
            key = call_named(views, call).key
            return self.sessions.resolve(session_id, key, outcome, report=report, user=self.user)

        decision = self._command(session_id, produce)
        if decision.verdict == "duplicate":  # the fold compares outcomes, not reports
            demand_unresolved(decision.views, call, outcome, report, self.read_blob)
        return decision

    def terminate(self, session_id: str, *, reason: str = "") -> Decision:
        """End the session permanently."""
        return self._command(
            session_id,
            lambda _v: self.sessions.terminate(session_id, reason=reason, user=self.user),
        )

    def _command(self, session_id: str, produce: Callable[[SessionViews], Receipt]) -> Decision:
        with self.fold(session_id) as folded:
            return demand(decision_on(folded, produce(folded.to_end())))

    # -- reading -----------------------------------------------------------------------------------

    def fold(self, session_id: str, *, chunks: bool = False) -> SessionFold:
        """A fold of the session, positioned at its first offset."""
        return SessionFold(self.log, session_id, chunks=chunks, read=self.read_blob)

    def views(self, session_id: str, at: int | None = None) -> SessionViews:
        """The views at the end of the log, or right after offset `at`. Raises UnknownSession."""
        with self.fold(session_id) as folded:
            return known(folded, at)

    def everything(self) -> Everything:
        """Every session of the installation, folded."""
        return fold_everything(self.log, self.read_blob)

    def follow(self, session_id: str | None = None, cursor: dict[int, int] | None = None) -> Follow:
        """Entries of one session or of all, from a cursor or from the first offset."""
        wanted = None if session_id is None else (session_id,)
        return Follow(self.log, wanted, cursor, read=self.read_blob)

    def watch(
        self,
        session_id: str,
        cursor: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int | None, Shown | None]]:
        """The session live, as a viewer sees it. Without a cursor, begins with the open attempt's
        output so far.

        Yields (cursor, shown). Only the last thing of an event has a cursor, the others have None:
        keep the newest one and pass it in again, and nothing is missed or repeated. (cursor, None)
        comes when a poll found nothing new, so that the caller can do something else in between.
        """
        viewer = INITIAL
        with self.fold(session_id, chunks=True) as folded:
            start = folded.end() if cursor is None else cursor
            for seen in folded.upto(start):
                viewer, _ = see(viewer, seen, self.read_blob)
            if cursor is None:
                yield from _with_cursor(snapshot(viewer), start)
            while not stop():
                is_idle = True
                for seen in folded.poll():
                    viewer, shown = see(viewer, seen, self.read_blob)
                    is_idle = is_idle and not shown
                    yield from _with_cursor(shown, seen.entry.offset + 1)
                if is_idle:
                    yield folded.cursor, None

    def read_blob(self, ref: BlobRef) -> bytes:
        """The content of a reference. Raises BlobMissing, BlobCorrupt."""
        return self._blob_store().get(ref.sha256)

    def _blob_store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = BlobStore(self.settings.blobs_dir)
        return self._blobs

    # -- closing -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the producer, and the log if the client opened it."""
        self.sessions.close()
        if self._owns_log:
            self.log.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()



def _with_cursor(shown: list[Shown], cursor: int) -> Iterator[tuple[int | None, Shown]]:
    """The things of one event: only the last has the cursor to resume from."""
    last = len(shown) - 1
    return ((cursor if place == last else None, thing) for place, thing in enumerate(shown))
