"""The commands on one session. Each writes an event, folds the session up to it, and returns the
fold's ruling.

`Client` opens a fold for each command; a session of the Python API keeps its fold open.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..processors.fold.views import SessionViews
from ..producers.checks import Blocks
from ..producers.sessions import Receipt, Sessions
from ..schemas.enums import CancelMode, Decision as Decided, Resolution, WhenBusy
from ..schemas.events.parts import ReadBlob
from .calls import call_named, demand_unresolved
from .outcomes import Decision, decision_on, demand
from .session_fold import SessionFold
from .unanswered import demand_agent

DEFAULT_AGENT = "default"
"""The agent of a session whose first message names no agent."""


class Commands:
    """Commands on the session of `folded`. Each command moves `folded` forward to the event of the
    command.

    Commands are written in the name of `user`, and name the `channel` through which they came. Each
    command except `say` returns the ruling, which has the verdict `duplicate` if the same command
    was accepted before. Raises Invalid, Unacknowledged, BlobError, LogUnreachable, CommandRefused,
    UnknownCall.
    """

    def __init__(
        self, folded: SessionFold, sessions: Sessions, *, user: str, channel: str, read: ReadBlob
    ) -> None:
        self._folded, self._sessions = folded, sessions
        self._user, self._channel, self._read = user, channel, read
        self._session_id = folded.session_id

    def _decided(self, receipt: Receipt) -> Decision:
        return demand(decision_on(self._folded, receipt))

    def open(self, *, agent: str = DEFAULT_AGENT) -> Decision:
        """Open the session; repeating it with the same agent is harmless."""
        self._folded.to_end()
        return self._decided(self._sessions.open(self._session_id, agent=agent, user=self._user))

    def say(
        self,
        content: str | Blocks,
        *,
        message_id: str | None = None,
        when_busy: str = WhenBusy.QUEUE,
        agent: str | None = None,
        attach: Sequence[Path | str] = (),
    ) -> Receipt:
        """Send a message, and open the session if it is new. Returns the receipt, not the ruling.

        If two clients open the same session with the same agent at once, the second SESSION_OPENED
        has no effect. An invalid message opens no session.
        """
        agent = agent or DEFAULT_AGENT
        demand_agent(self._folded.to_end())

        def open_if_new() -> None:
            if not self._folded.views.turn.known:
                self.open(agent=agent)

        return self._sessions.say(
            self._session_id,
            content,
            message_id=message_id,
            when_busy=when_busy,
            channel=self._channel,
            user=self._user,
            attach=attach,
            before=open_if_new,
        )

    def trigger(self, trigger: str, *, command_id: str | None = None) -> Decision:
        """Request a phase transition."""
        self._folded.to_end()
        return self._decided(
            self._sessions.trigger(
                self._session_id, trigger, command_id=command_id, user=self._user
            )
        )

    def lock(self, project_id: str, *, command_id: str | None = None) -> Decision:
        """Lock the session to a project, which can be done once."""
        self._folded.to_end()
        return self._decided(
            self._sessions.lock(
                self._session_id, project_id, command_id=command_id, user=self._user
            )
        )

    def cancel(
        self,
        *,
        mode: str = CancelMode.NOW,
        reason: str = "",
        cancel_id: str | None = None,
        turn: int | None = None,
        seen_phase: str | None = None,
    ) -> Decision:
        """Stop the running turn, unless `turn` or `seen_phase` is given and no longer current."""
        views = self._folded.to_end()
        open_turn = views.turn.number if views.turn.open else None
        return self._decided(
            self._sessions.cancel(
                self._session_id,
                turn=turn if turn is not None else open_turn,
                seen_phase=seen_phase if seen_phase is not None else views.state.phase,
                mode=mode,
                reason=reason,
                cancel_id=cancel_id,
                user=self._user,
            )
        )

    def decide(
        self,
        call: str,
        decision: Decided | str,
        *,
        args_sha256: str | None = None,
        remember: bool = False,
        like: Mapping[str, str] | None = None,
    ) -> Decision:
        """Allow or deny a call. The answer is valid only for the call's present arguments, or for
        arguments with the SHA-256 `args_sha256` if it is given.

        remember: let later calls run without approval if they have the same arguments or match
        `like`.
        """
        pending = call_named(self._folded.to_end(), call)
        return self._decided(
            self._sessions.decide(
                self._session_id,
                pending.key,
                decision,
                args_sha256=args_sha256 or pending.args_sha256,
                remember=remember,
                like=like,
                user=self._user,
            )
        )

    def resolve(self, call: str, outcome: Resolution | str, *, report: str = "") -> Decision:
        """Report what happened to a call in doubt; the call is not run again.

        Raises AlreadyResolved if a person has already reported a different outcome.
        """
        self._demand_unresolved(self._folded.to_end(), call, outcome, report)
        key = call_named(self._folded.views, call).key
        decision = self._decided(
            self._sessions.resolve(
                self._session_id, key, outcome, report=report, user=self._user
            )
        )
        if decision.verdict == "duplicate":  # the fold compares outcomes, not reports
            self._demand_unresolved(decision.views, call, outcome, report)
        return decision

    def _demand_unresolved(
        self, views: SessionViews, call: str, outcome: str, report: str
    ) -> None:
        demand_unresolved(views, call, outcome, report, self._read)

    def terminate(self, *, reason: str = "") -> Decision:
        """End the session permanently."""
        self._folded.to_end()
        return self._decided(
            self._sessions.terminate(self._session_id, reason=reason, user=self._user)
        )
