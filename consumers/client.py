"""The front door for Python users: say something, wait for the decision or the answer, look.

Joins the write side and the read side over one log: each command waits until the fold has decided
and returns the decision, or raises CommandRefused with the reason. It holds no state of a session
between calls. It must not know how anything is shown.
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
"""Serves a session that is opened by its first message and names no agent."""


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

    # -- commands: each returns the decision, accepted or done before ------------------------------

    def open(self, session_id: str, *, agent: str = DEFAULT_AGENT) -> Decision:
        """Open a session; again with the same agent is harmless."""
        return self._decided(
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
        """Say something; the decision, and the message_id. Opens a session that is not known."""
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
        """As `say`, on a fold at hand and without waiting: its receipt.

        Two who open the same session at once with the same agent are both served: the second
        SESSION_OPENED is a repetition. A message that is wrong opens nothing.
        """
        session_id, agent = folded.session_id, agent or DEFAULT_AGENT
        demand_agent(folded.to_end(), agent)

        def opened() -> None:
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
            before=opened,
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
        """Say something and wait until its turn has ended. Raises NoAnswerYet as well.

        The same message_id again gets the same answer, and no second turn.
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
        """A new session that begins as this one was right after an offset, or is now."""
        return self.branching().fork(session_id, at, name)

    def regenerate(
        self, session_id: str, turn: int | None = None, *, name: str | None = None
    ) -> Forked:
        """A fork before a turn, by default the last, to which the same is said again."""
        return self.branching().regenerate(session_id, turn, name)

    def skip(self, session_id: str, offset: int | None = None, *, reason: str = "") -> Skipped:
        """Have a frozen session continue without the record that froze it."""
        return self.branching().skip(session_id, offset, reason)

    def branching(self, user: str | None = None) -> Branching:
        """Forks, for a user."""
        who = user or self.user
        return Branching(self.log, self.sessions, self._blob_store(), self.read_blob, who)

    def trigger(self, session_id: str, trigger: str, *, command_id: str | None = None) -> Decision:
        """Ask for a phase transition."""
        return self._decided(
            session_id,
            lambda _v: self.sessions.trigger(
                session_id, trigger, command_id=command_id, user=self.user
            ),
        )

    def lock(self, session_id: str, project_id: str, *, command_id: str | None = None) -> Decision:
        """Lock the session to a project, once in its life."""
        return self._decided(
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
        """Stop what runs: binds to the turn and the phase that were seen, by default as of now."""

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

        return self._decided(session_id, produce)

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
        """Allow or deny a call, bound to its arguments as of now, or to those of `args_sha256`.

        remember: later calls with the same arguments run without asking, or those `like` allows.
        """

        def produce(views: SessionViews) -> Receipt:
            asks = call_named(views, call)
            return self.sessions.decide(
                session_id,
                asks.key,
                decision,
                args_sha256=args_sha256 or asks.args_sha256,
                remember=remember,
                like=like,
                user=self.user,
            )

        return self._decided(session_id, produce)

    def resolve(
        self, session_id: str, call: str, outcome: Resolution | str, *, report: str = ""
    ) -> Decision:
        """Say what happened to a call in doubt; it is never run again by this.

        Raises AlreadyResolved where a person has said something else of it before.
        """

        def produce(views: SessionViews) -> Receipt:
            demand_unresolved(views, call, outcome, report, self.read_blob)
            key = call_named(views, call).key
            return self.sessions.resolve(session_id, key, outcome, report=report, user=self.user)

        decision = self._decided(session_id, produce)
        if decision.verdict == "duplicate":  # the fold compares outcomes, not reports
            demand_unresolved(decision.views, call, outcome, report, self.read_blob)
        return decision

    def terminate(self, session_id: str, *, reason: str = "") -> Decision:
        """End the session for good."""
        return self._decided(
            session_id,
            lambda _v: self.sessions.terminate(session_id, reason=reason, user=self.user),
        )

    def _decided(self, session_id: str, produce: Callable[[SessionViews], Receipt]) -> Decision:
        with self.fold(session_id) as folded:
            return demand(decision_on(folded, produce(folded.to_end())))

    # -- looking -----------------------------------------------------------------------------------

    def fold(self, session_id: str, *, chunks: bool = False) -> SessionFold:
        """The session's fold, at its first offset."""
        return SessionFold(self.log, session_id, chunks=chunks, read=self.read_blob)

    def views(self, session_id: str, at: int | None = None) -> SessionViews:
        """The views at the end of the log, or right after offset `at`. Raises UnknownSession."""
        with self.fold(session_id) as folded:
            return known(folded, at)

    def everything(self) -> Everything:
        """Every session of the installation, folded."""
        return fold_everything(self.log, self.read_blob)

    def follow(self, session_id: str | None = None, cursor: dict[int, int] | None = None) -> Follow:
        """Entries of one session or of all, from a cursor or from the first offset on."""
        wanted = None if session_id is None else (session_id,)
        return Follow(self.log, wanted, cursor, read=self.read_blob)

    def watch(
        self,
        session_id: str,
        cursor: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int | None, Shown | None]]:
        """What a viewer sees, as it comes. Without a cursor: what the open attempt has said first.

        (cursor, shown) each; the cursor comes with the last thing of an event, else it is None:
        keep the newest, give it back, and nothing is missed or repeated. (cursor, None) comes when
        a look found nothing new, so that the caller may do something else in between.
        """
        viewer = INITIAL
        with self.fold(session_id, chunks=True) as folded:
            start = folded.end() if cursor is None else cursor
            for seen in folded.upto(start):
                viewer, _ = see(viewer, seen, self.read_blob)
            if cursor is None:
                yield from _with_cursor(snapshot(viewer), start)
            while not stop():
                quiet = True
                for seen in folded.poll():
                    viewer, shown = see(viewer, seen, self.read_blob)
                    quiet = quiet and not shown
                    yield from _with_cursor(shown, seen.entry.offset + 1)
                if quiet:
                    yield folded.cursor, None

    def read_blob(self, ref: BlobRef) -> bytes:
        """The content of a reference. Raises BlobMissing, BlobCorrupt."""
        return self._blob_store().get(ref.sha256)

    def _blob_store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = BlobStore(self.settings.blobs_dir)
        return self._blobs

    # -- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the producer, and the log if the client opened it."""
        self.sessions.close()
        if self._owns_log:
            self.log.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()



def _with_cursor(shown: list[Shown], cursor: int) -> Iterator[tuple[int | None, Shown]]:
    """Things of one event: only the last tells where to go on."""
    last = len(shown) - 1
    return ((cursor if place == last else None, thing) for place, thing in enumerate(shown))
