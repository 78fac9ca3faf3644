"""chat: a conversation at a terminal, or fed by a pipe.

One fold of the session drives it all: what is shown, what is asked, when the turn is over. Ctrl-C
cancels the turn and not the program; at an idle prompt a second one leaves. This file must not know
how things look (`screen.py`) nor where lines come from (`terminal.py`).
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..consumers.client import DEFAULT_AGENT
from ..consumers.outcomes import Patience, decision_of
from ..consumers.sent import note_sent
from ..consumers.session_fold import SessionFold
from ..consumers.transcript_stream import INITIAL, see, snapshot
from ..consumers.unanswered import demand_agent
from ..consumers.waiting import asking, doubtful
from ..log.errors import FoldlogError, LogFatal, Refused
from ..processors.fold.projections.turn_view import Call
from ..processors.fold.sessions import FoldedEvent
from ..processors.fold.views import SessionViews
from ..producers.sessions import Receipt, new_session_id
from ..schemas.enums import Decision as Decided, Resolution
from .decide import arguments
from .edge import Edge, example, pass_edge, user_option
from .look import transcript_lines
from .printing import line
from .screen import Screen
from .terminal import Interrupts, Lines

if TYPE_CHECKING:
    from ..consumers.client import Client

LOOK_S = 0.1
"""How long one look at the log waits: Ctrl-C and a typed answer are felt as fast as that."""

OLD_LINES = 12
"""Of an earlier conversation: enough to remember where it stood."""
ALLOW = "allow? [y]es, [n]o, [a]lways with exactly these arguments: "

HELP = (
    "/quit leaves; /attach FILE sends an image or a PDF with the next message; Ctrl-C cancels what "
    "runs; /help says this. Anything else is said."
)
ATTACH = "/attach "


class Chat:
    """One conversation. `run` returns the exit code; the session goes on without it."""

    def __init__(
        self, client: "Client", folded: SessionFold, agent: str | None, interrupts: Interrupts
    ) -> None:
        self.client, self.folded, self.agent = client, folded, agent
        self.session_id = folded.session_id
        self.interrupts = interrupts
        self.lines = Lines(interrupts)
        self.screen = Screen(client.read_blob)
        self._viewer = INITIAL
        self._patience = Patience(self.screen.say)
        self._put_off: set[tuple[str, str]] = set()
        self._refused = False
        self._attach: list[str] = []  # for the next message

    @property
    def views(self) -> SessionViews:
        """The views after the last event that was shown."""
        return self.folded.views

    def run(self) -> int:
        """Talk until the input ends."""
        self._join()
        self._follow()
        leaving = False
        while True:
            while self.lines.typed and self._has_questions():
                self._ask_person()
                if self.interrupts.taken():
                    break  # not now: the prompt comes first
            try:
                text = self.lines.message("> " if self.lines.typed else "")
            except KeyboardInterrupt:
                if leaving or not self.lines.typed:
                    return 130
                leaving = True
                line("\n(Ctrl-C again, Ctrl-D or /quit leaves)")
                continue
            leaving = False
            if text is None or text.strip() == "/quit":
                return 0 if self._is_over() and (self.lines.typed or not self._refused) else 1
            if text.strip() == "/help":
                line(HELP)
            elif self.lines.typed and text.startswith(ATTACH):  # a pipe may name no files of ours
                self._attach.append(text.removeprefix(ATTACH).strip())
                self.screen.say(f"{', '.join(self._attach)}: goes with the next message")
            elif text.strip():
                self._say(text)
                self._follow()

    def _is_over(self) -> bool:
        if not self.views.turn.open or self.lines.typed:
            return True
        self.screen.say("the input ended before the answer; the turn goes on")
        return False

    # -- the log -----------------------------------------------------------------------------------

    def _join(self) -> None:
        """Fold what was, show its end, and what the open attempt has said so far."""
        for seen in self.folded.upto(self.folded.end()):
            self._viewer, _ = see(self._viewer, seen, self.client.read_blob)
        views = self.views
        if not views.turn.known:
            return
        if views.state.user_id != self.client.user:
            raise Refused(f"session {self.session_id} belongs to another user")
        if self.screen.live:
            for text in transcript_lines(views, self.client.read_blob)[-OLD_LINES:]:
                line(text)
        for shown in snapshot(self._viewer):
            self.screen.show(shown)

    def _take(self, seen: FoldedEvent) -> None:
        """Show one event."""
        self._patience.heard(seen)
        self._viewer, things = see(self._viewer, seen, self.client.read_blob)
        for shown in things:
            self.screen.show(shown)
        before, after = seen.before.turn, seen.views.turn
        if before.open and (not after.open or after.number != before.number):
            sys.stdout.flush()
            producer = self.client.sessions.producer
            note_sent(producer, seen.views, before.number, self.client.channel)

    def _command(self, produce: Callable[[], Receipt]) -> bool:
        """Produce, show everything up to that event, and say why if it did not count.

        A broker that is away for a while ends no conversation.
        """
        try:
            receipt = produce()
            for seen in self.folded.upto(receipt.offset + 1):
                self._take(seen)
        except LogFatal:
            raise
        except FoldlogError as error:
            self._refused = True
            self.screen.say(f"refused: {error}" if isinstance(error, Refused) else str(error))
            return False
        decision = decision_of(seen)
        if not decision.counted:
            self._refused = True
            self.screen.say(f"refused: {decision.detail}")
        return decision.counted

    # -- a turn ------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        write, session_id, user = self.client.sessions, self.session_id, self.client.user
        agent = self.agent or DEFAULT_AGENT

        def message() -> Receipt:
            demand_agent(self.views, agent)
            files, self._attach = self._attach, []
            channel = self.client.channel
            receipt = write.say(session_id, text, channel=channel, user=user, attach=files)
            self.screen.mine.add(receipt.id)
            return receipt

        known = self.views.turn.known or self._command(
            lambda: write.open(session_id, agent=agent, user=user)
        )
        if known:
            self._command(message)

    def _follow(self) -> None:
        """Show the open turn until it ends; ask what it asks. Ctrl-C cancels it, twice lets go."""
        self._patience.restart()
        cancelled = False
        while self.views.turn.open:
            for seen in self.folded.poll(LOOK_S):
                self._take(seen)
            if self.interrupts.taken():
                if cancelled:
                    self.screen.say("the turn is still ending; what comes is shown later")
                    return
                self._cancel()
                cancelled = True  # or refused, as of a terminated session: the next lets go anyway
            if not self._ask_person():
                return
            if self.views.turn.open:
                self._patience.look(self.views, self.folded.holders)

    def _cancel(self) -> None:
        turn, phase = self.views.turn.number, self.views.state.phase
        self.screen.say(f"cancelling turn {turn}")
        self._command(
            lambda: self.client.sessions.cancel(
                self.session_id,
                turn=turn,
                seen_phase=phase,
                reason="Ctrl-C in the chat",
                user=self.client.user,
            )
        )

    # -- questions ---------------------------------------------------------------------------------

    def _has_questions(self) -> bool:
        """Whether a question is open that was neither asked nor put off."""
        turn = self.views.turn
        return any((c.key, "asks") not in self._put_off for c in asking(turn)) or any(
            (c.key, c.status) not in self._put_off for c in doubtful(turn)
        )

    def _ask_person(self) -> bool:
        """Ask the next open question, if there is one; False when the input ended instead."""
        for call in asking(self.views.turn):
            if (call.key, "asks") not in self._put_off:
                return self._asked(self._approval, call)
        for call in doubtful(self.views.turn):
            if (call.key, call.status) not in self._put_off:
                return self._asked(self._doubt, call)
        return True

    def _asked(self, ask: Callable[[Call], bool], call: Call) -> bool:
        goes_on = ask(call)
        self._patience.restart()  # the time that a person took is no worker's silence
        return goes_on

    def _answer(self, question: str, call: Call, status: str) -> str | None:
        """What a person types, or None if the call no longer waits for it, or the input ended."""
        self.screen.prompted(question)
        try:
            return self.lines.answer(question, self._while(call, status))
        finally:
            self.screen.prompted("")

    def _while(self, call: Call, status: str):
        """A look at the log that says whether the call still waits for a person."""

        def look() -> bool:
            for seen in self.folded.poll(LOOK_S):
                self._take(seen)
            turn = self.views.turn
            calls = asking(turn) if status == "asks" else doubtful(turn)
            waits = self.interrupts.count == 0 and any(c.key == call.key for c in calls)
            if waits:
                self.screen.prompt_again()
            return waits

        return look

    def _approval(self, call: Call) -> bool:
        args = arguments(call, self.client)
        self.screen.ask(f"{call.name} ({call.key}) asks to run with {args}")
        while True:
            said = self._answer(ALLOW, call, "asks")
            if said is None:
                return self._unanswered(call, "asks")
            word = said.lower()
            if word in ("y", "yes", "n", "no", "a", "always"):
                break
        decided = Decided.DENY if word.startswith("n") else Decided.ALLOW
        self._command(
            lambda: self.client.sessions.decide(
                self.session_id,
                call.key,
                decided,
                args_sha256=call.args_sha256,
                remember=word.startswith("a"),
                user=self.client.user,
            )
        )
        return True

    def _doubt(self, call: Call) -> bool:
        args = arguments(call, self.client)
        self.screen.ask(f"it is not known whether {call.name} ({call.key}) happened, with {args}")
        while True:
            said = self._answer("[h]appened, [n]ot happened, [l]ater: ", call, "doubt")
            if said is None:
                return self._unanswered(call, call.status)
            word = said.lower()[:1]
            if word == "l":
                self._put_off.add((call.key, call.status))
                return self.lines.typed  # from a pipe nobody will be asked again
            if word in ("h", "n"):
                break
        report = ""
        if word == "h":
            report = self._answer("what do you know of it? ", call, "doubt") or ""
        outcome = Resolution.HAPPENED if word == "h" else Resolution.DID_NOT_HAPPEN
        self._command(
            lambda: self.client.sessions.resolve(
                self.session_id, call.key, outcome, report=report, user=self.client.user
            )
        )
        return True

    def _unanswered(self, call: Call, status: str) -> bool:
        """Ctrl-C, or decided elsewhere: go on. The end of the input: leave it open."""
        look = self._while(call, status)
        if self.interrupts.count or not look():
            if self.lines.typed:
                line("")
            return True
        command = "approve" if status == "asks" else "resolve"
        self.screen.say(
            f"{call.name} waits for a decision: foldlog {command} {self.session_id} {call.key}"
        )
        return False


@click.command("chat", epilog=example(
    "foldlog chat", "foldlog chat my-session", "echo hello | foldlog chat"
))
@click.argument("session", required=False)
@click.option("--agent", metavar="NAME",
              help="Which agent serves a session that is opened here (default: default).")
@user_option
@pass_edge
def chat_command(edge: Edge, session: str | None, agent: str | None, user: str | None) -> int:
    """Talk to a session: answers stream, tools ask.

    Without SESSION a new one begins. Ctrl-C cancels what runs; at an idle prompt a second one
    leaves, as Ctrl-D and /quit do. Leaving ends nothing: come back with the session's name.
    /attach FILE sends an image or a PDF with the next message, /help says what else there is. From
    a pipe each line is a message (or the answer to a question), and stdout has the answers only;
    exit code 1 if one was refused, or the input ended before the answer.
    """
    client = edge.client(user)
    client.channel = "chat"
    session_id = session or new_session_id()
    with Interrupts() as interrupts, client.fold(session_id, chunks=True) as folded:
        chat = Chat(client, folded, agent, interrupts)
        chat.screen.say(f"session {session_id}; come back with: foldlog chat {session_id}")
        return chat.run()
