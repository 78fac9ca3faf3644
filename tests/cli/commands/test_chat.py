"""`chat` from a pipe: stdout has only the answers; everything else goes to stderr.

A thread plays the worker, so each test determines what the model does and when it crashes.
"""

import re

import pytest

from foldlog.tests.cli.harness import make_shell, playing, turn_opens
from foldlog.tests.kit.played import Played


@pytest.fixture
def shell(tmp_path, capsys):
    return make_shell(tmp_path, capsys, threaded=True)


@pytest.fixture
def talk(shell):
    """talk(work, stdin): chats with s1 from a pipe, while `work(played)` plays the worker."""

    def run(work, stdin):
        shell("open s1")
        played = Played(shell.log, "s1")

        def turn():
            turn_opens(played)
            work(played)

        with playing(turn):
            return shell("chat s1", stdin=stdin), played

    return run


def test_a_pipe_gets_the_answers_on_stdout_and_the_rest_on_stderr(talk):
    def work(played):
        played.call()
        played.start()
        played.chunk("I look.")
        played.complete("I look.", [("read", {"path": "a"})])
        played.run_tool("seen")
        played.answer("It is \x1b[31mthere.")
        turn_opens(played, 2)
        played.answer("Bye.")

    chat, _ = talk(work, "look\n\nbye\n")
    assert chat.code == 0
    assert chat.out == "I look.\nIt is \\x1b[31mthere.\nBye.\n"
    assert 'read {"path": "a"}' in chat.err and "read: ok: seen" in chat.err
    assert "foldlog chat s1" in chat.err


def test_P6_a_pipe_never_gets_the_text_of_a_lost_attempt(talk):
    def work(played):
        played.call()
        played.start()
        played.chunk("The answer is ")
        played.resume("w2/1")
        played.chunk("The answer is 42.")
        played.complete("The answer is 42.")
        played.end()

    chat, _ = talk(work, "what is it?\n")
    assert chat.out == "The answer is 42.\n"
    assert "attempt 2 by replace" in chat.err


def test_a_new_session_is_opened_by_the_first_line(shell):
    chat = shell("chat --agent shop", stdin="")
    assert chat.code == 0
    name = re.search(r"foldlog chat (s-\w+)", chat.err).group(1)
    assert shell(f"show {name}").code == 1, "no message, no session"
    other = shell("chat s2 --agent shop", stdin="/help\n/quit\n")
    assert other.code == 0 and "/quit leaves" in other.out


def test_a_pipe_answers_the_questions_for_approval(talk):
    def work(played):
        played.propose("", ("charge", {"cents": 5}), ("mail", {}))
        played.invoke(0, approval="ask")
        played.wait(lambda views: views.turn.calls[0].status == "allowed")
        played.invoke(1, approval="ask")
        played.wait(lambda views: views.turn.calls[1].status == "done")
        played.tool_start()
        played.tool_result("paid")
        played.answer("Done.")

    chat, played = talk(work, "pay\nwhat?\nalways\nn\n")
    assert chat.out == "Done.\n" and chat.code == 0
    assert 'charge (1.1.0) asks to run with {"cents": 5}' in chat.err
    assert chat.err.count("[n]o, [a]lways with exactly these arguments: ") == 3
    (grant,) = played.views.turn.grants
    assert re.fullmatch("charge [0-9a-f]{64}", grant)


def test_a_pipe_that_ends_before_the_answer_leaves_the_question_open(talk):
    def work(played):
        played.propose("", ("charge", {}))
        played.invoke(approval="ask")

    chat, played = talk(work, "pay\n")
    assert chat.code == 1
    assert "foldlog approve s1 1.1.0" in chat.err and "the turn continues" in chat.err
    assert played.views.turn.calls[0].status == "asks"


def test_beyond_3_a_pipe_answers_the_question_about_a_call_in_doubt(talk):
    def work(played):
        played.propose("", ("charge", {}))
        played.invoke()
        played.tool_start()
        played.uncertain()
        played.wait(lambda views: views.turn.calls[0].human == "happened")
        played.answer("Then it is paid.")

    chat, _ = talk(work, "pay\nh\ninvoice 17\n")
    assert chat.out == "Then it is paid.\n"
    assert "charge (1.1.0) may or may not have run" in chat.err


def test_a_refusal_is_printed_and_the_chat_continues(shell):
    shell("open s1")
    shell("terminate s1")
    chat = shell("chat s1", stdin="hello?\nanyone?\n")
    assert chat.err.count("refused: the session is terminated") == 2 and chat.code == 1


def test_S0_6_a_session_of_another_user_is_refused(shell):
    shell("open s1 --user bob")
    refused = shell("chat s1", stdin="hi\n")
    assert refused.code == 1 and "belongs to another user" in refused.err


def test_S2_4_a_chat_records_that_the_answer_was_shown(talk):
    def work(played):
        played.answer("hello")

    _, played = talk(work, "hi\n")
    (sent,) = played.views.transcript.sent
    assert (sent.turn, sent.step, sent.channel) == (1, 1, "chat")


def test_postponing_a_question_from_a_pipe_ends_the_chat(talk):
    """A pipe cannot be asked again. The defect: a chat whose pipe postponed a question waited for
    ever."""
    def work(played):
        played.propose("", ("charge", {}))
        played.invoke()
        played.tool_start()
        played.uncertain()

    chat, _ = talk(work, "pay\nl\n")
    assert chat.code == 1 and "the turn continues" in chat.err


def test_bad_input_a_message_in_place_of_the_session_is_refused_before_the_prompt(shell):
    """The defect: the chat prompted for messages, and refused each of them."""
    ran = shell("chat", "hello there", stdin="hi\n")
    assert ran.code == 2 and "foldlog send SESSION TEXT" in ran.err and ran.out == ""
