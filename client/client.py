"""The API for Python users: send a message, wait for the ruling or the answer, read sessions.

Uses the write side and the read side of one log: each command waits until its event is folded, and
returns the fold's ruling or raises CommandRefused with the reason. A client keeps no state of a
session between calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..log import open_log
from ..log.blobs import BlobStore, open_blobs
from ..log.door import Log
from ..log.settings import Settings
from ..processors.fold.views import SessionViews
from ..producers.checks import Blocks
from ..producers.sessions import Receipt, Sessions
from ..schemas.enums import CancelMode, Decision as Decided, Resolution, WhenBusy
from ..schemas.events.parts import BlobRef
from ..schemas.origin import Origin
from .branching import Branching, Forked, Skipped
from .closing import Closing
from .commands import DEFAULT_AGENT, Commands
from .follow import Follow
from .outcomes import ANSWER_S, Answer, Decision, answer_of, decision_on, demand
from .session_fold import SessionFold
from .show import Everything, fold_everything, known
from .transcript_stream import INITIAL, Shown, see, snapshot


class Client(Closing):
    """The sessions of one installation. `user` acts in every command, by default the user of the
    settings.
    `brief`, `origin`: see `Sessions`. `progress(read, total)` is called while the log is read.

    Methods raise errors of the log (LogUnreachable, TopicMissing) and of the producers (Invalid,
    Unacknowledged, BlobError), CommandRefused when the fold refuses a command, UnknownSession,
    NobodyAnswers. Close the client, or use `with`.
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
        self.progress: Callable[[int, int], None] = lambda _read, _total: None
        self._owns_log = log is None
        self._blobs: BlobStore | None = None
        self.sessions = Sessions(self.log, settings, brief=brief, origin=origin)

    # -- commands: each returns the ruling, which may be that of an earlier command ----------------

    def open(self, session_id: str, *, agent: str = DEFAULT_AGENT) -> Decision:
        """Open a session; repeating it with the same agent is harmless."""
        with self._commands(session_id) as commands:
            return commands.open(agent=agent)

    def say(
        self,
        session_id: str,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        agent: str | None = None,
    ) -> tuple[Decision, str]:
        """Send a message, and open the session if it is new.

        Returns the ruling and the message_id.
        """
        with self.fold(session_id) as folded:
            receipt = self.say_on(
                folded, content, message_id=message_id, when_busy=when_busy, agent=agent
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
        """Like `say`, but on an existing fold, and returns the receipt without waiting for the
        ruling.
        """
        return self.commands_on(folded).say(
            content, message_id=message_id, when_busy=when_busy, agent=agent, attach=attach
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
                folded, content, message_id=message_id, when_busy=when_busy, agent=agent
            )
            demand(decision_on(folded, receipt))
            return answer_of(
                folded, receipt.id, read=self.read_blob, timeout_s=timeout_s, report=say, stop=stop
            )

    def fork(self, session_id: str, at: int | None = None, *, name: str | None = None) -> Forked:
        """Open a new session that begins with the state that `session_id` had after the offset `at`
        (by default its present state).
        """
        return self.branching().fork(session_id, at, name)

    def regenerate(
        self, session_id: str, turn: int | None = None, *, name: str | None = None
    ) -> Forked:
        """Fork before a turn (by default the last), and send its messages to the fork again."""
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
        with self._commands(session_id) as commands:
            return commands.trigger(trigger, command_id=command_id)

    def lock(self, session_id: str, project_id: str, *, command_id: str | None = None) -> Decision:
        """Lock the session to a project, which can be done once."""
        with self._commands(session_id) as commands:
            return commands.lock(project_id, command_id=command_id)

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
        """Stop the running turn, unless `turn` or `seen_phase` is given and no longer current."""
        with self._commands(session_id) as commands:
            return commands.cancel(
                mode=mode, reason=reason, cancel_id=cancel_id, turn=turn, seen_phase=seen_phase
            )

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
        """Allow or deny a call: see `Commands.decide`."""
        with self._commands(session_id) as commands:
            return commands.decide(
                call, decision, args_sha256=args_sha256, remember=remember, like=like
            )

    def resolve(
        self, session_id: str, call: str, outcome: Resolution | str, *, report: str = ""
    ) -> Decision:
        """Report what happened to a call in doubt: see `Commands.resolve`."""
        with self._commands(session_id) as commands:
            return commands.resolve(call, outcome, report=report)

    def terminate(self, session_id: str, *, reason: str = "") -> Decision:
        """End the session permanently."""
        with self._commands(session_id) as commands:
            return commands.terminate(reason=reason)

    @contextmanager
    def _commands(self, session_id: str) -> Iterator[Commands]:
        with self.fold(session_id) as folded:
            yield self.commands_on(folded)

    def commands_on(self, folded: SessionFold) -> Commands:
        """The commands of this client's user on an existing fold."""
        return Commands(
            folded, self.sessions, user=self.user, channel=self.channel, read=self.read_blob
        )

    # -- reading -----------------------------------------------------------------------------------

    def fold(self, session_id: str, *, chunks: bool = False) -> SessionFold:
        """A fold of the session, positioned at its first offset."""
        return SessionFold(
            self.log, session_id, chunks=chunks, read=self.read_blob, progress=self.progress
        )

    def views(self, session_id: str, at: int | None = None) -> SessionViews:
        """The session's views at the end of the log, or right after offset `at`.

        Raises UnknownSession.
        """
        with self.fold(session_id) as folded:
            return known(folded, at)

    def everything(self) -> Everything:
        """Every session of the installation, folded."""
        return fold_everything(self.log, self.read_blob, self.progress)

    def follow(self, session_id: str | None = None, cursor: dict[int, int] | None = None) -> Follow:
        """The entries of one session or of all sessions, from a cursor or from the first offset."""
        wanted = None if session_id is None else (session_id,)
        return Follow(self.log, wanted, cursor, read=self.read_blob)

    def watch(
        self,
        session_id: str,
        cursor: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int | None, Shown | None]]:
        """Yield what a live viewer of the session sees. Without a cursor, begin with the open
        attempt's output so far.

        Yields (cursor, shown). An event may yield several pairs, of which only the last has a
        cursor. Keep the newest cursor and pass it in again: nothing is missed or repeated. A poll
        that finds nothing new yields (cursor, None), so that the caller can do something else.
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
        """The content of a reference. Raises BlobMissing, BlobCorrupt, BlobsAway."""
        return self._blob_store().get(ref.sha256)

    def _blob_store(self) -> BlobStore:
        if self._blobs is None:
            self._blobs = open_blobs(self.settings)
        return self._blobs

    # -- closing -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the producer, and the log if the client opened it."""
        self.sessions.close()
        if self._owns_log:
            self.log.close()


def _with_cursor(shown: list[Shown], cursor: int) -> Iterator[tuple[int | None, Shown]]:
    """Pair everything that one event shows with a cursor: only the last gets it, the others get
    None.
    """
    last = len(shown) - 1
    return ((cursor if place == last else None, thing) for place, thing in enumerate(shown))
