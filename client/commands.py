"""Writes the commands that depend on a session's present views: arguments that the caller omits are
taken from the views, and a command that could have no effect is refused before it is written.

`Session`, the gateway and the chat write through this file; each has its own way to wait for the
fold's ruling.
"""

from collections.abc import Callable
from typing import NamedTuple, Unpack

from ..log.errors import Refused
from ..processors.fold.views import SessionViews
from ..producers.checks import Blocks
from ..producers.options import CancelOptions, Grant, MessageOptions
from ..producers.sessions import Receipt, Sessions
from ..schemas.events.parts import ReadBlob
from .calls import call_named, demand_match, demand_unresolved

DEFAULT_AGENT = "default"
"""The agent of a session whose first message names no agent."""


class NobodyAnswers(Refused):
    """A message to a session that no agent serves, such as a history of another framework: its turn
    would wait for ever. It is refused before it is written.
    """


def demand_agent(views: SessionViews) -> None:
    """Raise NobodyAnswers if no agent would answer in this session."""
    if len(views.items.batches):
        raise NobodyAnswers(
            f"session {views.session_id} has the items of another framework, which answers there; "
            "no agent of foldlog does. Nothing was written. To talk to an agent, send the message "
            "to another session."
        )


class Commands(NamedTuple):
    """The commands of `user` on the session with these views. Raises Invalid, Unacknowledged,
    BlobError, LogUnreachable, UnknownCall, AlreadyResolved, NobodyAnswers.
    """

    writer: Sessions
    views: SessionViews
    user: str
    read: ReadBlob

    def open(self, agent: str) -> Receipt:
        """Open the session."""
        return self.writer.open(self.views.session_id, agent=agent, user=self.user)

    def trigger(self, trigger: str, *, command_id: str | None) -> Receipt:
        """Request a phase transition."""
        return self.writer.trigger(
            self.views.session_id, trigger, command_id=command_id, user=self.user
        )

    def lock(self, project_id: str, *, command_id: str | None) -> Receipt:
        """Lock the session to a project."""
        return self.writer.lock(
            self.views.session_id, project_id, command_id=command_id, user=self.user
        )

    def terminate(self, *, reason: str) -> Receipt:
        """End the session permanently."""
        return self.writer.terminate(self.views.session_id, reason=reason, user=self.user)

    def say(
        self,
        content: str | Blocks,
        *,
        channel: str,
        before: Callable[[], object] = lambda: None,
        **options: Unpack[MessageOptions],
    ) -> Receipt:
        """Send a message. `before` is called before it is written; an invalid message is refused
        before that.
        """
        demand_agent(self.views)
        return self.writer.say(
            self.views.session_id,
            content,
            channel=channel,
            user=self.user,
            before=before,
            **options,
        )

    def cancel(
        self,
        *,
        turn: int | None = None,
        seen_phase: str | None = None,
        **options: Unpack[CancelOptions],
    ) -> Receipt:
        """Cancel a turn (by default the open turn), if the session is still in the phase
        `seen_phase` (by default the present phase).
        """
        open_turn = self.views.turn.number if self.views.turn.open else None
        return self.writer.cancel(
            self.views.session_id,
            turn=open_turn if turn is None else turn,
            seen_phase=self.views.state.phase if seen_phase is None else seen_phase,
            user=self.user,
            **options,
        )

    def decide(
        self,
        call: str,
        decision: str,
        *,
        args_sha256: str | None = None,
        **grant: Unpack[Grant],
    ) -> Receipt:
        """Allow or deny a call. The answer is valid only for the call's present arguments, or for
        arguments with the SHA-256 `args_sha256` if it is given.
        """
        pending = call_named(self.views, call)
        if like := grant.get("like"):
            demand_match(pending, like, self.read)
        return self.writer.decide(
            self.views.session_id,
            pending.key,
            decision,
            args_sha256=args_sha256 or pending.args_sha256,
            user=self.user,
            **grant,
        )

    def resolve(self, call: str, outcome: str, *, report: str = "") -> Receipt:
        """Report what happened to a call in doubt, unless a person has reported something else."""
        demand_unresolved(self.views, call, outcome, report, self.read)
        return self.writer.resolve(
            self.views.session_id,
            call_named(self.views, call).key,
            outcome,
            report=report,
            user=self.user,
        )
