"""`chat` at a terminal: it streams, asks, cancels, and marks the text of a lost attempt.

The test has the other end of a pty, and plays both the person and the worker.
"""

import json
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable

import pytest

from foldlog.cli.__main__ import main
from foldlog.cli.commands.chat import ALLOW, ANSWERS
from foldlog.cli.edge import Edge
from foldlog.cli.terminal import turn_meter
from foldlog.cli.terminal.lines import Lines
from foldlog.cli.terminal.signals import Interrupts, Watch
from foldlog.client import outcomes
from foldlog.client.session import Session
from foldlog.log import Settings
from foldlog.schemas import events as ev
from foldlog.tests.cli.harness import WAIT_S, make_shell, playing, turn_opens
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.waiting import until


class Terminal:
    """The person's end of a pty: reads the screen, types, and presses Ctrl-C."""

    def __init__(self, fd: int, settings: Settings) -> None:
        self._fd, self.screen, self._read = fd, "", 0
        self.settings = settings

    def see(self, text: str) -> None:
        """Wait until the screen shows a text, behind the text that the last call found."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.screen[self._read :]:
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n{self.screen}"
            if select.select([self._fd], [], [], 0.05)[0]:
                more = os.read(self._fd, 65536).decode(errors="replace")
                self.screen += more.replace("\r\n", "\n")
        self._read = self.screen.index(text, self._read) + len(text)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def send(self, text: str, played: Played, turn: int = 1) -> None:
        """Type a message at the prompt, and wait until its turn has begun."""
        self.see("> ")
        self.type(text + "\n")
        turn_opens(played, turn)

    def stream(self, played: Played, text: str, shown: str | None = None) -> None:
        """Send a message, and wait until the beginning of its answer is shown."""
        self.send("hi", played)
        played.call()
        played.start()
        played.chunk(text)
        self.see(shown or text)

    def quit(self) -> None:
        self.see("> ")
        self.type("/quit\n")

    def cancel(self, played: Played) -> None:
        """Press Ctrl-C, and wait until the turn is being cancelled."""
        self.ctrl_c()
        self.see("cancelling turn")
        played.wait(lambda views: views.turn.closing is not None)

    def ctrl_c(self) -> None:
        """Press Ctrl-C, while an answer streams or at the prompt."""
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def at_terminal(tmp_path, monkeypatch):
    """Runs `chat s1` with stdin and stdout at a terminal. The person acts in a separate thread."""
    monkeypatch.setattr(outcomes, "SOON_S", outcomes.PATIENCE_S)  # the test's worker may be slow
    log, settings = memory_log(threaded=True), settings_in(tmp_path)
    ours, theirs = os.openpty()
    modes = termios.tcgetattr(theirs)
    modes[3] &= ~termios.ECHO  # otherwise typed text would count as output
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    terminal, left = Terminal(ours, settings), threading.Event()

    def act(person: Callable[[Terminal, Played], None], played: Played) -> None:
        try:
            person(terminal, played)
        except BaseException:  # otherwise the chat would wait for this person for ever
            terminal.type("/quit\n")
            until("the chat ends", lambda: left.wait(1) or terminal.ctrl_c())
            raise

    def run(
        person: Callable[[Terminal, Played], None], command: str = "chat s1", code: int = 0
    ) -> str:
        client = Edge(settings, log).client()
        if not client.everything().sessions:
            Session(client, "s1").open()
        played = Played(log, "s1")
        with (
            os.fdopen(os.dup(theirs), "r") as stdin,
            os.fdopen(os.dup(theirs), "w") as stdout,
            monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "stdout", stdout)
            with playing(lambda: act(person, played)):
                left.clear()
                try:
                    ended = main(command.split(), Edge(settings, log))
                finally:
                    left.set()
        assert ended == code
        return terminal.screen

    yield run
    os.close(ours)
    os.close(theirs)


def test_tokens_are_shown_as_they_arrive(at_terminal):
    def person(terminal, played):
        terminal.stream(played, "one ", shown="one")
        played.chunk("two")
        terminal.see(" two")
        played.complete("one two")
        played.end()
        terminal.quit()

    screen = at_terminal(person)
    assert screen.count("one") == 1 and screen.count("two") == 1


def test_P6_the_text_of_a_replaced_attempt_is_marked_as_not_counting(at_terminal):
    def person(terminal, played):
        terminal.stream(played, "The ans")
        played.resume("w2/1")
        terminal.see("[the text above does not count: attempt 2 takes its place]")
        terminal.see("attempt 2 by replace")
        played.chunk("The answer.")
        played.complete("The answer.")
        played.end()
        terminal.see("The answer.")
        terminal.quit()

    at_terminal(person)


def test_P7_ctrl_c_cancels_the_turn_and_does_not_end_the_chat(at_terminal):
    def person(terminal, played):
        terminal.stream(played, "I was about to")
        terminal.cancel(played)
        played.stopped("I was about to")
        played.end("cancelled")
        terminal.see("turn 1 ended: cancelled")
        terminal.send("again", played, 2)
        played.answer("Here.")
        terminal.see("Here.")
        terminal.see("> ")
        terminal.ctrl_c()
        terminal.see("Ctrl-C again")
        terminal.see("> ")
        terminal.ctrl_c()

    screen = at_terminal(person, code=130)
    assert "Traceback" not in screen


def test_a_second_ctrl_c_returns_to_the_prompt_of_a_turn_that_does_not_end(at_terminal):
    def person(terminal, played):
        terminal.send("hi", played)
        terminal.cancel(played)
        terminal.ctrl_c()
        terminal.see("still ending")
        terminal.quit()

    at_terminal(person)


def test_a_second_ctrl_c_returns_to_the_prompt_if_the_first_was_refused(at_terminal):
    """The defect: a person could not leave the chat of a terminated session whose turn no worker
    ended."""

    def person(terminal, played):
        terminal.send("hi", played)
        Edge(terminal.settings, played.log).session("s1").terminate()
        terminal.see("terminated")
        terminal.ctrl_c()
        terminal.see("refused: the session is terminated")
        terminal.ctrl_c()
        terminal.quit()

    at_terminal(person)


def test_an_approval_decided_elsewhere_removes_the_question(at_terminal):
    def person(terminal, played):
        terminal.send("pay", played)
        played.propose("", ("charge", {"to": "\x1b[8mme"}))
        played.invoke(approval="ask")
        terminal.see('asks to run with {"to": "\\u001b[8mme"}')
        terminal.see(ALLOW)
        other_tab = Edge(terminal.settings, played.log).client()
        Session(other_tab, "s1").decide("1.1.0", "deny")
        terminal.see("charge (1.1.0): deny")
        played.answer("Then not.")
        terminal.see("Then not.")
        terminal.see("> ")
        terminal.type("\x04")

    at_terminal(person)


@pytest.mark.parametrize("end", ["allow", "expired", "cancelled"])
@pytest.mark.parametrize("typed", ["y", "no", "rm it"])
def test_N2_what_was_typed_for_a_question_that_is_gone_is_not_sent(at_terminal, end, typed):
    def person(terminal, played):
        ask_for_payment(terminal, played)
        terminal.type(typed)
        call = played.views.turn.calls[0]
        client = Edge(terminal.settings, played.log).client()
        match end:
            case "allow":
                Session(client, "s1").decide(call.key, "allow")
            case "expired":
                played.append(ev.ApprovalExpired(call=call.key), "sessions")
            case "cancelled":
                Session(client, "s1").cancel()
        terminal.see(f"not sent: {typed!r} was typed for charge (1.1.0)")
        if end == "cancelled":
            played.end("cancelled")
        else:
            if end == "allow":
                played.tool_start()
                played.tool_result("charged")
            played.answer("So it is.")
            terminal.see("So it is.")
        terminal.see("> ")
        terminal.type("\n/quit\n")
        assert len(played.views.messages.received) == 1

    at_terminal(person)


def test_N2_an_answer_that_comes_after_the_question_is_gone_is_dropped_once(at_terminal):
    def person(terminal, played):
        ask_for_payment(terminal, played)
        Edge(terminal.settings, played.log).session("s1").decide("1.1.0", "deny")
        terminal.see("charge (1.1.0): deny")
        played.answer("Then not.")
        terminal.see("> ")  # what comes before the prompt was typed for the question
        terminal.type("y\n")
        terminal.see("not sent: 'y' looks like an answer about charge (1.1.0)")
        terminal.send("y", played, 2)
        played.answer("Why yes?")
        terminal.see("Why yes?")
        assert len(played.views.messages.received) == 2
        terminal.quit()

    at_terminal(person)


def test_a_text_that_is_no_answer_decides_nothing(at_terminal):
    """The defect: `hold on` reported that a call in doubt happened."""

    def person(terminal, played):
        terminal.send("pay", played)
        played.propose("", ("charge", {}))
        played.invoke(approval="ask")
        terminal.see(ALLOW)
        terminal.type("yes but later\n")
        terminal.see("not sent: 'yes but later' is not one of the answers")
        terminal.see(ALLOW)
        terminal.type("y\n")
        terminal.see("charge (1.1.0): allow")
        played.tool_start()
        played.uncertain()
        for text in ("hold on", "no"):
            terminal.see("[l]ater: ")
            terminal.type(f"{text}\n")
            terminal.see(f"not sent: {text!r} is not one of the answers")
        terminal.see("[l]ater: ")
        assert played.views.turn.calls[0].status == "doubt"
        terminal.type("not happened\n")
        played.wait(lambda views: views.turn.calls[0].status != "doubt")
        played.answer("Then again.")
        terminal.see("Then again.")
        terminal.quit()

    assert at_terminal(person).count("the worker died") == 1, "a doubt is shown once"


def test_N2_a_report_for_a_doubt_that_is_settled_elsewhere_is_dropped(at_terminal):
    def person(terminal, played):
        terminal.send("pay", played)
        played.propose("", ("charge", {}))
        played.invoke()
        played.tool_start()
        played.uncertain()
        terminal.see("[l]ater: ")
        terminal.type("h\n")
        terminal.see("what do you know about it? ")
        terminal.type("it was")
        Edge(terminal.settings, played.log).session("s1").resolve(
            "1.1.0", happened="receipt 7"
        )
        terminal.see("not sent: 'it was' was typed for charge (1.1.0)")
        played.answer("It is paid.")
        terminal.see("It is paid.")
        assert "refused" not in terminal.screen
        terminal.quit()

    at_terminal(person)


def sent(played) -> list[str]:
    """The texts of all messages."""
    contents = [message.content.inline for message in played.views.messages.received]
    return [json.loads(content)[0]["text"] for content in contents]


def ask_for_payment(terminal, played) -> None:
    terminal.send("pay", played)
    played.propose("", ("charge", {}))
    played.invoke(approval="ask")
    terminal.see(ALLOW)


def test_E31_a_persons_thinking_time_does_not_count_as_a_silent_worker(at_terminal, monkeypatch):
    """The defect: right after an approval that took 5 s, the chat printed that no worker had
    responded."""
    late_s = 0.0
    monkeypatch.setattr(outcomes.time, "monotonic", lambda now=time.monotonic: now() + late_s)

    def person(terminal, played):
        nonlocal late_s
        ask_for_payment(terminal, played)
        late_s = 3600.0
        terminal.type("y\n")
        terminal.see("charge (1.1.0): allow")
        played.tool_start()
        played.tool_result("paid")
        terminal.see("[charge: ok in ")
        terminal.see("ms: paid]")
        played.answer("Done.")
        terminal.quit()

    screen = at_terminal(person)
    assert "no worker has responded" not in screen


def test_E31_a_question_is_shown_again_below_a_line_that_interrupts_it(at_terminal):
    def person(terminal, played):
        ask_for_payment(terminal, played)
        Edge(terminal.settings, played.log).session("s1").say("hurry", when_busy="queue")
        terminal.see("from elsewhere: hurry]")
        terminal.see(ALLOW)
        terminal.type("n\n")
        terminal.see("charge (1.1.0): deny")
        terminal.cancel(played)
        played.end("cancelled")
        played.answer("To the second.")
        terminal.quit()

    at_terminal(person)


def test_ctrl_c_at_an_approval_cancels_the_turn(at_terminal):
    def person(terminal, played):
        ask_for_payment(terminal, played)
        terminal.cancel(played)
        played.end("cancelled")
        terminal.see("turn 1 ended: cancelled")
        terminal.quit()

    at_terminal(person)


def test_a_chat_that_is_opened_again_shows_its_end_and_the_streaming_answer(at_terminal):
    def before(terminal, played):
        terminal.send("hi", played)
        played.answer("hello you")
        terminal.see("hello you")
        terminal.send("more", played, 2)
        played.call()
        played.start()
        played.chunk("streaming ")
        terminal.see("streaming")
        terminal.cancel(played)
        terminal.ctrl_c()
        terminal.see("still ending")
        terminal.quit()

    at_terminal(before)

    def after(terminal, played):
        terminal.see("> hi\nhello you")
        terminal.see("streaming")
        played.take()
        played.stopped("streaming words")
        played.end("cancelled")
        terminal.see("words")
        terminal.quit()

    at_terminal(after)


def test_markdown_is_drawn_as_it_arrives(at_terminal):
    def person(terminal, played):
        terminal.stream(played, "Here **is", shown="Here **is")
        played.chunk(" it**:\n\n- `one`\n")
        terminal.see("\r\x1b[KHere \x1b[1mis it\x1b[0m:\n\n")
        terminal.see("\x1b[1m \u2022 \x1b[0m\x1b[36mone\x1b[0m\n")
        played.complete("Here **is it**:\n\n- `one`\n")
        played.end()
        terminal.quit()

    at_terminal(person)

    def after(terminal, played):
        terminal.see("> hi\nHere \x1b[1mis it\x1b[0m:")
        terminal.quit()

    at_terminal(after)


def test_without_colours_the_text_is_the_models_wrapped_at_words(at_terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")

    def person(terminal, played):
        terminal.see("[session s1; come back with: \nfoldlog chat s1]\n")
        terminal.send("hi", played)
        played.answer("**bold** `code`, and a sentence that is longer")
        terminal.see("**bold** `code`, and a \nsentence that is longer\n")
        terminal.quit()

    at_terminal(person)


def test_a_running_tool_has_a_clock_and_then_its_duration(at_terminal, monkeypatch):
    monkeypatch.setattr(turn_meter, "SHOWN_AFTER_S", 0.0)

    def person(terminal, played):
        terminal.send("pay", played)
        played.propose("", ("charge", {"cents": 5}))
        played.invoke()
        terminal.see('[charge {"cents": 5}]')
        played.tool_start()
        terminal.see("\r\x1b[K\x1b[2m\u2026 charge 0 s\x1b[0m")
        played.tool_result("paid")
        terminal.see("\r\x1b[K\x1b[2m[charge: ok in ")
        played.answer("Done.")
        terminal.quit()

    at_terminal(person)


def test_the_end_of_a_turn_shows_its_time_tokens_rate_and_cost(at_terminal):
    def person(terminal, played):
        terminal.send("hi", played)
        played.answer("Hello.")
        terminal.see("Hello.\n\x1b[2m[turn 1: ")
        terminal.see("ms, 10 tokens in, 5 out")
        terminal.see(", cost unknown]")
        terminal.quit()

    at_terminal(person)


@pytest.fixture
def lines(monkeypatch):
    """The `Lines` of a terminal that echoes, with both ends of the pty."""
    ours, theirs = os.openpty()
    with os.fdopen(os.dup(theirs), "r") as stdin, os.fdopen(os.dup(theirs), "w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        yield Lines(Interrupts()), ours, theirs
    os.close(ours)
    os.close(theirs)


def _echoes(fd: int) -> bool:
    return bool(termios.tcgetattr(fd)[3] & termios.ECHO)


def test_what_is_typed_while_an_answer_streams_is_kept_and_not_shown(lines):
    """The defect: the typed text stood in the middle of the answer."""
    reader, ours, theirs = lines
    with reader.unseen():
        assert not _echoes(theirs)
        os.write(ours, b"the next message\n")
    assert _echoes(theirs)
    assert reader.message("> ") == "the next message"


def test_a_long_line_that_is_pasted_while_an_answer_streams_is_whole(lines):
    """The defect: the terminal kept 4,095 bytes of a line."""
    reader, ours, _ = lines
    text = "x" * 9_000
    with reader.unseen(), playing(lambda: os.write(ours, f"{text}\n".encode())):
        assert reader.message("> ") == text


@pytest.mark.parametrize(
    ("typed", "dropped", "kept"),
    [
        ("yes\n", "yes", []),
        ("Y", "Y", []),
        ("not bob\n", "", ["not bob"]),
        ("y\nnot bob\n", "", ["y\nnot bob"]),
        ("", "", []),
    ],
)
def test_what_was_typed_before_a_question_does_not_answer_it(lines, typed, dropped, kept):
    """The defects: a `yes` that was typed ahead approved a call that the person had not seen; and
    a message that was typed ahead was lost."""
    reader, ours, _ = lines
    with reader.unseen():
        os.write(ours, typed.encode())
        assert reader.set_aside(ANSWERS["asks"]) == dropped
        waits = iter([True, False])
        assert reader.answer("allow? ", Watch(waits=lambda: next(waits))) is None
        assert reader.late == ""
    os.write(ours, b"last\n")
    assert [reader.message("> ") for _ in (*kept, "last")] == [*kept, "last"]


@pytest.mark.parametrize("typed", [b"y", b"yes\n", b"first\nsecond\nthi", b""])
def test_N2_what_was_typed_when_a_question_is_gone_is_taken_from_the_terminal(lines, typed):
    reader, ours, theirs = lines
    modes = termios.tcgetattr(theirs)
    gone = Watch(waits=lambda: os.write(ours, typed) < 0)
    assert reader.answer("allow? ", gone) is None
    assert reader.late == typed.decode().strip()
    assert termios.tcgetattr(theirs) == modes
    os.write(ours, b"next\n")
    assert reader.message("> ") == "next"


PASTE = "\x1b[200~{}\x1b[201~"


@pytest.mark.parametrize(
    ("typed", "message", "is_command"),
    [
        ("one\ntwo\n", "one\ntwo", False),
        ("fix this:\n/quit\nend\n", "fix this:\n/quit\nend", False),
        ("/quit\nend\n", "/quit\nend", False),
        ("fix\r/cancel\r", "fix\n/cancel", False),
        ("\ttabs\n\tand lines\n", "\ttabs\n\tand lines", False),
        ("a\n\n\nb\n", "a\n\n\nb", False),
        (PASTE.format("one\rtwo\r") + "\r", "one\ntwo", False),
        (PASTE.format("/quit") + "\r", "/quit", False),
        (PASTE.format("/quit\n") + "\r", "/quit", False),
        ("see: " + PASTE.format("a\n/quit\nb") + "\r", "see: a\n/quit\nb", False),
        ("/attach " + PASTE.format("a file.png") + "\r", "/attach a file.png", True),
        ("/quit\n", "/quit", True),
        ("\x1b[Dab\x1b[Dc\r", "acb", True),
    ],
)
def test_a_paste_is_one_message_and_no_command(lines, typed, message, is_command):
    """The defects: each pasted line was a message, and a line that looked like a command was
    obeyed."""
    reader, ours, _ = lines
    os.write(ours, typed.encode())
    assert (reader.message("> "), not reader.pasted) == (message, is_command)
    os.write(ours, b"next\n")
    assert (reader.message("> "), reader.pasted) == ("next", False)


def test_a_paste_longer_than_one_read_is_one_message(lines):
    reader, ours, _ = lines
    text = "\n".join(f"line {number} of a long paste" for number in range(300))
    with playing(lambda: os.write(ours, f"{text}\n".encode())):
        assert reader.message("> ") == text


@pytest.mark.parametrize("paste", ["y\nnot bob\n", PASTE.format("y\nnot bob"),
                                   PASTE.format("y\rnot bob\r") + "\r"])
def test_pasted_lines_answer_no_question_and_are_kept(lines, paste):
    reader, ours, _ = lines
    os.write(ours, paste.encode())
    asked = iter([True] * 3 + [False])
    assert not reader.answer("allow? ", Watch(waits=lambda: next(asked)))
    os.write(ours, b"\r")
    assert reader.message("> ") == "y\nnot bob"


def test_a_message_that_an_answer_interrupts_is_kept(lines):
    reader, ours, _ = lines
    drawn = []
    waits = iter([True] * 3 + [False] * 2)
    os.write(ours, b"half a mess")
    events = Watch(lambda: iter(["event"]), drawn.append, lambda: next(waits))
    assert reader.message("> ", events) == ""
    assert len(drawn) == 2, "each event is drawn once, also the one that ended the wait"
    os.write(ours, b"age\n")
    assert reader.message("> ") == "half a message"


def test_bad_input_bytes_that_are_not_utf8_are_replaced(lines):
    reader, ours, _ = lines
    os.write(ours, b"caf\xe9\n")
    assert reader.message("> ") == "caf\ufffd"


def test_pasted_lines_that_lead_to_an_approval_are_one_message(at_terminal):
    """The defect: the lines after the first were lost, because they were typed before the
    question."""
    order = "charge ana\nbut only 5 cents\n/quit\nand not bob"

    def person(terminal, played):
        terminal.send(order, played)
        played.propose("I charge.", ("charge", {}))
        played.invoke(approval="ask")
        terminal.see(ALLOW)
        terminal.type("n\n")
        terminal.see("charge (1.1.0): deny")
        played.answer("ok")
        terminal.see("ok")
        assert sent(played) == [order]
        terminal.quit()

    at_terminal(person)


def test_a_message_that_is_typed_before_a_question_is_sent_after_it(at_terminal):
    def person(terminal, played):
        terminal.send("pay", played)
        played.call()
        terminal.type("and not bob\n")
        played.start()
        played.complete("", [("charge", {})])
        played.invoke(approval="ask")
        terminal.see(ALLOW)
        terminal.type("n\n")
        terminal.see("charge (1.1.0): deny")
        played.answer("ok")
        turn_opens(played, 2)
        assert sent(played) == ["pay", "and not bob"]
        played.answer("Not bob.")
        terminal.see("Not bob.")
        terminal.quit()

    at_terminal(person)


def test_resume_lists_recent_sessions_and_continues_the_chosen_one(at_terminal):
    def before(terminal, played):
        client = Edge(terminal.settings, played.log).client()
        Session(client, "other", "clerk").say("Book a table for two.")
        terminal.send("Refund order 17 today.", played)
        for _ in range(7):  # more than OLD_LINES lines
            played.propose("", ("look_up", {}))
            played.run_tool("found")
        played.answer("Done.")
        terminal.quit()

    at_terminal(before)

    def after(terminal, played):
        terminal.see("Book a table for two")
        terminal.see("Refund order 17 today")
        terminal.see("continue which? 1 to 2, q to leave [1]: ")
        terminal.type("9\n")
        terminal.see("continue which?")
        terminal.type("2\n")
        terminal.see("[session s1; come back with")
        terminal.see("> Refund order 17 today.\n[call 1.1.0 look_up]")
        terminal.see("Done.\n")
        terminal.quit()

    at_terminal(after, "chat --resume")

    def leaves(terminal, played):
        terminal.see("Book a table for two")
        terminal.see("continue which? 1 to 1")
        terminal.type("q\n")

    screen = at_terminal(leaves, "chat --resume --agent clerk")
    assert screen.rsplit("continue which?", 1)[1].count("session") == 0


def test_bad_input_resume_without_a_session_or_a_terminal(at_terminal, tmp_path, capsys):
    def nobody(terminal, played):
        terminal.see("")

    at_terminal(nobody, "chat --resume --agent unknown", code=1)
    assert "has no session with agent unknown to continue" in capsys.readouterr().err
    shell = make_shell(tmp_path, capsys)
    assert shell("chat s1 --resume").code == 2
    piped = shell("chat --resume", stdin="1\n")
    assert piped.code == 2 and "needs a terminal. Nothing was sent" in piped.err


def test_what_happens_elsewhere_is_shown_while_the_prompt_waits(at_terminal):
    """The defect: a message from another tab appeared only after the next key press in the
    terminal."""

    def person(terminal, played):
        terminal.see("> ")
        Edge(terminal.settings, played.log).session("s1").say("from my phone")
        terminal.see("[from elsewhere: from my phone]")
        played.answer("Hello, phone.")
        terminal.see("Hello, phone.")
        terminal.see("> ")
        Edge(terminal.settings, played.log).session("s1").lock("p1")
        terminal.see("\x1b[2m[project p1]\x1b[0m\n")
        terminal.see("> ")
        terminal.type("and from here\n")
        played.wait(lambda views: views.turn.number == 2)
        played.answer("Hello, terminal.")
        terminal.see("Hello, terminal.")
        terminal.quit()

    screen = at_terminal(person)
    assert screen.count("from elsewhere") == 1


def test_ctrl_c_while_the_prompt_waits_asks_once_and_then_leaves(at_terminal):
    def person(terminal, played):
        terminal.see("> ")
        terminal.ctrl_c()
        terminal.see("(Ctrl-C again, Ctrl-D or /quit leaves)")
        terminal.see("> ")
        terminal.ctrl_c()

    at_terminal(person, code=130)
