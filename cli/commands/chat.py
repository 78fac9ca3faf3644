"""chat: a conversation at a terminal or from a pipe.

One fold of the session decides what is shown, which questions are asked, and when the turn is over.
Ctrl-C cancels the turn, not the program; at an idle prompt a second Ctrl-C ends the chat.
`screen.py` draws, `terminal.py` reads the lines.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, ParamSpec

import click

from ...client.commands import DEFAULT_AGENT, Commands
from ...client.gen_sent import note_sent
from ...client.outcomes import Patience, decision_of
from ...client.session_fold import SessionFold
from ...client.transcript_stream import INITIAL, see, snapshot
from ...client.waiting import asking, doubtful
from ...log.errors import FoldlogError, LogFatal, Refused
from ...processors.effects.failed_turns import way_out
from ...processors.fold.projections.turn_view import Call
from ...processors.fold.sessions import FoldedEvent
from ...processors.fold.views import SessionViews
from ...producers.options import SAME_ARGUMENTS, Grant
from ...producers.sessions import Receipt, new_session_id
from ...schemas.enums import Decision as Decided, Resolution
from ...schemas.ids import is_id, why_not_an_id
from ..edge import Edge, example, pass_edge, user_option
from ..terminal.lines import Lines
from ..terminal.printing import line
from ..terminal.screen import Screen
from ..terminal.signals import Interrupts, Watch
from ..terminal.turn_meter import TurnMeter
from .decide import exactly
from .inspect import transcript_rows
from .session_list import STATUSES, Wanted, listed, print_list

if TYPE_CHECKING:
    from ...client.log_client import LogClient
    from ...processors.advice.prices import PriceTable

P = ParamSpec("P")
POLL_S = 0.1
"""How long one poll of the log waits, in seconds. Ctrl-C and typed answers may wait as long."""

OLD_LINES = 12
"""How many lines of an earlier conversation are shown when a person returns to it, at least: its
last turn is shown whole.
"""
RECENT = 12
"""How many sessions --resume lists; with the question they fit on a small screen."""

CONTINUABLE = tuple(status for status in STATUSES if status not in ("frozen", "terminated"))
ALLOW = "allow? [y]es, [n]o, [a]lways with exactly these arguments: "
ANSWERS = {
    "asks": frozenset({"y", "yes", "n", "no", "a", "always"}),
    "doubt": frozenset({"h", "happened", "n", "not happened", "l", "later"}),
}
"""The answers to a question, by the status of the call."""

HELP = (
    "/quit leaves; /attach FILE sends an image or a PDF with the next message; Ctrl-C cancels the "
    "turn; /help prints this. Anything else is sent as a message."
)
ATTACH = "/attach "
PROMPT = "> "


class Chat:
    """One conversation. `run` returns the exit code. The session continues after the chat ends."""

    def __init__(
        self,
        client: "LogClient",
        folded: SessionFold,
        agent: str | None,
        interrupts: Interrupts,
        prices: "PriceTable",
    ) -> None:
        self.client, self.folded, self.agent = client, folded, agent
        self.session_id = folded.session_id
        self.interrupts = interrupts
        self.lines = Lines(interrupts)
        self.meter = TurnMeter(prices)
        self.screen = Screen(client.read_blob, self.meter.tool_ms)
        self._viewer = INITIAL
        self._patience = Patience(self.screen.remark)
        self._postponed: set[tuple[str, str]] = set()
        self._refused = False
        self._attach: list[str] = []  # for the next message
        self._late: tuple[Call, frozenset[str]] | None = None  # a question that is no longer open

    @property
    def views(self) -> SessionViews:
        """The views after the last event shown."""
        return self.folded.views

    @property
    def _commands(self) -> Commands:
        """The person's commands, as of the last event shown."""
        return Commands(self.client.writer, self.views, self.client.user, self.client.read_blob)

    def run(self) -> int:
        """Run the conversation until the input ends."""
        self._join()
        self._follow()
        leaving = False
        while True:
            while self.lines.typed and any(self._questions()):
                self._ask_person()
                if self.interrupts.taken():
                    break  # postponed: show the prompt first
            try:
                text = self.lines.message(PROMPT if self.lines.typed else "", self._watch())
            except KeyboardInterrupt:
                if leaving or not self.lines.typed:
                    return 130
                leaving = True
                line("(Ctrl-C again, Ctrl-D or /quit leaves)")
                continue
            leaving = False
            command = "" if text is None or self.lines.pasted else text.strip()
            if text is None or command == "/quit":
                return 0 if self._is_over() and (self.lines.typed or not self._refused) else 1
            if command == "/help":
                line(HELP)
            elif self.lines.typed and command.startswith(ATTACH):  # piped text reads no local files
                self._attach.append(command.removeprefix(ATTACH).strip())
                self.screen.remark(f"{', '.join(self._attach)}: sent with the next message")
            elif text.strip() and not self._is_late(text):
                self._send(text)
                self._follow()
            elif self.lines.typed and self.views.turn.open:
                self._follow()

    def _is_late(self, text: str) -> bool:
        """Whether a line looks like an answer to a question that is no longer open. True once."""
        late, self._late = self._late, None
        if late is None or text.strip().lower() not in late[1]:
            return False
        self.screen.remark(
            f"not sent: {text.strip()!r} looks like an answer about {late[0].name} "
            f"({late[0].key}), which no longer waits. Type it again to send it as a message"
        )
        return True

    def _watch(self) -> Watch:
        """While the person types, show above the prompt what other clients do in the session. Ends
        the prompt when a turn begins."""
        if self.views.turn.open:
            return Watch()  # a turn that the person left with Ctrl-C is shown later
        return Watch(lambda: self.folded.poll(0), self._take, lambda: not self.views.turn.open)

    def _is_over(self) -> bool:
        if not self.views.turn.open or self.lines.typed:
            return True
        self.screen.remark("the input ended before the answer; the turn continues")
        return False

    # -- the log -----------------------------------------------------------------------------------

    def _join(self) -> None:
        """Fold the session, show its last lines, and show the open attempt's text so far."""
        for step in self.folded.upto(self.folded.end()):
            self.meter.take(step)
            self._viewer, _ = see(self._viewer, step, self.client.read_blob)
        views = self.views
        if not views.turn.known:
            return
        if views.state.user_id != self.client.user:
            raise Refused(
                f"session {self.session_id} belongs to another user. Nothing was sent. Open "
                "another session, or give its user with --user."
            )
        if self.screen.live:
            read, turn = self.client.read_blob, views.turn.number
            last = len(transcript_rows(views, read, from_turn=turn))
            for kind, text in transcript_rows(views, read)[-max(OLD_LINES, last):]:
                if kind in ("answer", "partial"):
                    self.screen.answer(text)
                else:
                    self.screen.earlier(text)
        for shown in snapshot(self._viewer):
            self.screen.show(shown)

    def _name_way_out(self, views: SessionViews, turn: int) -> None:
        """If the turn ended because content was refused, show how to continue without it."""
        lines = views.transcript.lines
        ended = next((one for one in reversed(lines) if one.kind == "ended"), None)
        if ended is not None and ended.turn == turn:
            out = way_out(self.session_id, ended, lines)
            if out:
                self.screen.remark(out)

    def _take(self, step: FoldedEvent) -> None:
        """Show one event."""
        self._patience.note_event(step)
        self.meter.take(step)
        self._viewer, things = see(self._viewer, step, self.client.read_blob)
        for shown in things:
            self.screen.show(shown)
        before, after = step.before.turn, step.views.turn
        if before.open and (not after.open or after.number != before.number):
            summary = self.meter.summary(step.views, before.number)
            if self.screen.live and summary:
                self.screen.remark(summary)
            self._name_way_out(step.views, before.number)
            sys.stdout.flush()
            producer = self.client.writer.producer
            note_sent(producer, step.views, before.number, self.client.channel)

    def _command(
        self,
        write: Callable[Concatenate[Commands, P], Receipt],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> bool:
        """Produce an event, show everything up to it, and print the reason if the event was
        refused.

        An unreachable broker does not end the conversation.
        """
        try:
            receipt = write(self._commands, *args, **kwargs)
            for step in self.folded.upto(receipt.offset + 1):
                self._take(step)
        except LogFatal:
            raise
        except FoldlogError as error:
            self._refused = True
            self.screen.remark(f"refused: {error}" if isinstance(error, Refused) else str(error))
            return False
        decision = decision_of(step)
        if not decision.counted:
            self._refused = True
            self.screen.remark(f"refused: {decision.detail}")
        return decision.counted

    # -- a turn ------------------------------------------------------------------------------------

    def _send(self, text: str) -> None:
        def message(on: Commands) -> Receipt:
            files, self._attach = self._attach, []
            receipt = on.say(text, channel=self.client.channel, attach=files)
            self.screen.mine.add(receipt.id)
            return receipt

        agent = self.agent or DEFAULT_AGENT
        if self.views.turn.known or self._command(Commands.open, agent):
            self._command(message)

    def _follow(self) -> None:
        """Show the open turn until it ends, and ask its questions.

        Ctrl-C cancels the turn; a second Ctrl-C returns to the prompt before the turn has ended.
        """
        self._patience.restart()
        with self.lines.unseen():
            self._follow_turn()
        self.screen.clock("")

    def _follow_turn(self) -> None:
        cancelled = False
        while self.views.turn.open:
            for step in self.folded.poll(POLL_S):
                self._take(step)
            self.screen.clock(self.meter.running())
            if self.interrupts.taken():
                if cancelled:
                    self.screen.remark("the turn is still ending; the rest is shown later")
                    return
                self._cancel()
                cancelled = True  # also if the cancel is refused: the next Ctrl-C returns
            if not self._ask_person():
                return
            if self.views.turn.open:
                self._patience.report_if_due(self.views, self.folded.holders)

    def _cancel(self) -> None:
        self.screen.remark(f"cancelling turn {self.views.turn.number}")
        self._command(Commands.cancel, reason="Ctrl-C in the chat")

    # -- questions ---------------------------------------------------------------------------------

    def _questions(self) -> Iterator[tuple[Callable[[Call], bool], Call]]:
        """The open questions that the person has not postponed."""
        turn = self.views.turn
        yield from ((self._approval, c) for c in asking(turn) if not self._is_postponed(c, "asks"))
        yield from ((self._doubt, c) for c in doubtful(turn) if not self._is_postponed(c, c.status))

    def _is_postponed(self, call: Call, status: str) -> bool:
        return (call.key, status) in self._postponed

    def _ask_person(self) -> bool:
        """Ask the next open question, if there is one. Returns False if the input ended."""
        for ask, call in self._questions():
            input_is_open = ask(call)
            self._patience.restart()  # the person's thinking time is not the worker's delay
            return input_is_open
        return True

    def _answer(self, question: str, call: Call, status: str) -> str | None:
        """The typed answer, or None if the call no longer waits for an answer or the input ended.
        """
        early = self.lines.set_aside(ANSWERS["asks" if status == "asks" else "doubt"])
        if early:
            self.screen.remark(f"not sent: {early!r} was typed before this question")
        return self.lines.answer(
            question,
            Watch(lambda: self.folded.poll(0), self._take, lambda: self._waits(call, status)),
        )

    def _waits(self, call: Call, status: str) -> bool:
        """Whether a call still waits for a person, after the last event shown."""
        turn = self.views.turn
        calls = asking(turn) if status == "asks" else doubtful(turn)
        return any(waiting.key == call.key for waiting in calls)

    def _approval(self, call: Call) -> bool:
        args = exactly(call, self.client.read_blob)
        self.screen.ask(f"{call.name} ({call.key}) asks to run with {args}")
        while True:
            answer = self._answer(ALLOW, call, "asks")
            if answer is None:
                return self._unanswered(call, "asks")
            word = answer.lower()
            if word in ANSWERS["asks"]:
                break
            self._no_answer(answer)
        decided = Decided.DENY if word.startswith("n") else Decided.ALLOW
        grant: Grant = SAME_ARGUMENTS if word.startswith("a") else {}
        self._command(Commands.decide, call.key, decided, args_sha256=call.args_sha256, **grant)
        return True

    def _doubt(self, call: Call) -> bool:
        args = exactly(call, self.client.read_blob)
        self.screen.ask(f"{call.name} ({call.key}) may or may not have run, with {args}")
        while True:
            answer = self._answer("[h]appened, [n]ot happened, [l]ater: ", call, "doubt")
            if answer is None:
                return self._unanswered(call, call.status)
            word = answer.lower()[:1] if answer.lower() in ANSWERS["doubt"] else ""
            if word == "l":
                self._postponed.add((call.key, call.status))
                return self.lines.typed  # a pipe is never asked again
            if word:
                break
            self._no_answer(answer)
        report = ""
        if word == "h":
            answer = self._answer("what do you know about it? ", call, "doubt")
            if answer is None and (self.interrupts.count or not self._waits(call, "doubt")):
                return self._unanswered(call, call.status)
            report = answer or ""
        outcome = Resolution.HAPPENED if word == "h" else Resolution.DID_NOT_HAPPEN
        self._command(Commands.resolve, call.key, outcome, report=report)
        return True

    def _no_answer(self, text: str) -> None:
        if text:
            self.screen.remark(f"not sent: {text!r} is not one of the answers")

    def _unanswered(self, call: Call, status: str) -> bool:
        """Handle a question without an answer: continue after Ctrl-C or an answer from another
        client, or leave the question open if the input ended.
        """
        if self.interrupts.count or not self._waits(call, status):
            if self.lines.typed and not self.interrupts.count:
                self._gone(call, status)
            return True
        command = "approve" if status == "asks" else "resolve"
        self.screen.remark(
            f"{call.name} waits for a decision: foldlog {command} {self.session_id} {call.key}"
        )
        return False


    def _gone(self, call: Call, status: str) -> None:
        """Drop what the person typed for a question that is no longer open, and say so."""
        if self.lines.late:
            self.screen.remark(
                f"not sent: {self.lines.late!r} was typed for {call.name} ({call.key}), which no "
                "longer waits"
            )
        self._late = call, ANSWERS["asks" if status == "asks" else "doubt"]


def choose(edge: Edge, client: "LogClient", agent: str | None, lines: Lines) -> str | None:
    """The id of the recent session that the person chooses; None if they choose none.

    Raises Refused if there is no session.
    """
    everything = client.everything()
    wanted = Wanted(client.user, (agent,) if agent else (), CONTINUABLE)
    rows = list(islice(listed(everything, wanted, edge.prices, client.read_blob), RECENT))
    if not rows:
        of_agent = f" with agent {agent}" if agent else ""
        raise Refused(
            f"user {client.user} has no session{of_agent} to continue. Nothing was sent. `foldlog "
            "chat` opens one, and `foldlog sessions` lists those of all users."
        )
    print_list(rows, numbered=True)
    while True:
        text = lines.message(f"continue which? 1 to {len(rows)}, q to leave [1]: ")
        word = "q" if text is None else text.strip() or "1"
        if word in ("q", "/quit"):
            return None
        if word.isdecimal() and 1 <= int(word) <= len(rows):
            return str(rows[int(word) - 1].line["session_id"])


@click.command("chat", epilog=example(
    "foldlog chat", "foldlog chat my-session", "foldlog chat --resume", "echo hello | foldlog chat"
))
@click.argument("session", required=False)
@click.option("--agent", metavar="NAME",
              help="The agent of a session that is opened here (default: default); with --resume: "
              "list only its sessions.")
@click.option("--resume", is_flag=True, help="Choose one of your recent sessions and continue it.")
@user_option
@pass_edge
def chat_command(
    edge: Edge, session: str | None, agent: str | None, resume: bool, user: str | None
) -> int:
    """Talk to a session: answers stream, tools ask for approval.

    Without SESSION a new one is opened. Ctrl-C cancels the running turn; at an idle prompt a second
    Ctrl-C leaves the chat, as Ctrl-D and /quit do. Leaving does not end the session: come back with
    its name, or with --resume. On a terminal Markdown is drawn, running tools have a clock, and a
    turn ends with its time, tokens and cost. /attach FILE sends an image or a PDF with the next
    message, /help lists the rest. Pasted lines are one message, and no command in them is obeyed.
    From a pipe each line is a message (or the answer to a question), and stdout has only the
    answers; exit code 1 if a message was refused, or the input ended before the answer.
    """
    if resume and session is not None:
        raise click.UsageError("--resume lists sessions to choose from. Omit it, or omit SESSION.")
    if resume and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "--resume asks which session to continue, and needs a terminal. Nothing was sent. Name "
            "the session, as in `foldlog chat SESSION`; `foldlog sessions` lists them."
        )
    if session is not None and not is_id(session):
        raise click.UsageError(
            f"SESSION: {why_not_an_id('the name of a session', session)}. Nothing was sent. "
            "Type a message in the chat, or send it with `foldlog send SESSION TEXT`."
        )
    if sys.stdin.isatty() or sys.stdout.isatty():
        edge.demand("terminal")
    client = edge.client(user)
    client.channel = "chat"
    if resume:
        with Interrupts() as interrupts:
            session = choose(edge, client, agent, Lines(interrupts))
        if session is None:
            return 0
    session_id = session or new_session_id()
    with Interrupts() as interrupts, client.fold(session_id, chunks=True) as folded:
        chat = Chat(client, folded, agent, interrupts, edge.prices)
        chat.screen.remark(f"session {session_id}; come back with: foldlog chat {session_id}")
        return chat.run()
