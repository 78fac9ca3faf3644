"""chat from a pipe: stdout has the answers, everything about them goes to stderr.

The worker is played by hand in a thread, so each test decides what the model and its crashes do.
"""

import re

import pytest

from foldlog.tests.cli.harness import make_shell, playing, turn_opens
from foldlog.tests.consumers.played import Played


@pytest.fixture
def shell(tmp_path, capsys):
    return make_shell(tmp_path, capsys, threaded=True)


def test_a_pipe_gets_the_answers_on_stdout_and_the_rest_on_stderr(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.chunk("I look.")
        played.complete("I look.", [("read", {"path": "a"})])
        played.invoke()
        played.tool_start()
        played.tool_result("seen")
        played.answer("It is \x1b[31mthere.")
        turn_opens(played, 2)
        played.answer("Bye.")

    with playing(work):
        talked = shell("chat s1", stdin="look\n\nbye\n")
    assert talked.code == 0
    assert talked.out == "I look.\nIt is \\x1b[31mthere.\nBye.\n"
    assert 'read {"path": "a"}' in talked.err and "read: ok: seen" in talked.err
    assert "foldlog chat s1" in talked.err


def test_P6_a_pipe_never_gets_a_lost_attempts_words(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.chunk("The answer is ")
        played.resume("w2/1")
        played.chunk("The answer is 42.")
        played.complete("The answer is 42.")
        played.end()

    with playing(work):
        talked = shell("chat s1", stdin="what is it?\n")
    assert talked.out == "The answer is 42.\n"
    assert "attempt 2 by replace" in talked.err


def test_a_new_session_is_opened_by_the_first_line(shell):
    talked = shell("chat --agent shop", stdin="")
    assert talked.code == 0
    name = re.search(r"foldlog chat (s-\w+)", talked.err).group(1)
    assert shell(f"show {name}").code == 1, "nothing was said, nothing was opened"
    left = shell("chat s2 --agent shop", stdin="/help\n/quit\n")
    assert left.code == 0 and "/quit leaves" in left.out


def test_an_approval_is_asked_for_and_answered_from_the_pipe(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.complete("", [("charge", {"cents": 5}), ("mail", {})])
        played.invoke(0, approval="ask")
        played.wait(lambda views: views.turn.calls[0].status == "allowed")
        played.invoke(1, approval="ask")
        played.wait(lambda views: views.turn.calls[1].status == "done")
        played.tool_start()
        played.tool_result("paid")
        played.answer("Done.")

    with playing(work):
        talked = shell("chat s1", stdin="pay\nwhat?\nalways\nn\n")
    assert talked.out == "Done.\n" and talked.code == 0
    assert 'charge (1.1.0) asks to run with {"cents": 5}' in talked.err
    assert talked.err.count("[n]o, [a]lways with exactly these arguments: ") == 3
    (grant,) = played.views.turn.grants
    assert re.fullmatch("charge [0-9a-f]{64}", grant)


def test_a_pipe_that_ends_before_the_answer_leaves_the_question_open(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.complete("", [("charge", {})])
        played.invoke(approval="ask")

    with playing(work):
        talked = shell("chat s1", stdin="pay\n")
    assert talked.code == 1
    assert "foldlog approve s1 1.1.0" in talked.err and "the turn continues" in talked.err
    assert played.views.turn.calls[0].status == "asks"


def test_beyond_3_a_doubt_is_asked_about(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.complete("", [("charge", {})])
        played.invoke()
        played.tool_start()
        played.uncertain()
        played.wait(lambda views: views.turn.calls[0].human == "happened")
        played.answer("Then it is paid.")

    with playing(work):
        talked = shell("chat s1", stdin="pay\nh\ninvoice 17\n")
    assert talked.out == "Then it is paid.\n"
    assert "charge (1.1.0) may or may not have run" in talked.err


def test_refusals_are_said_and_the_chat_goes_on(shell):
    shell("open s1")
    shell("terminate s1")
    talked = shell("chat s1", stdin="hello?\nanyone?\n")
    assert talked.err.count("refused: the session is terminated") == 2 and talked.code == 1


def test_S0_6_a_session_of_somebody_else_is_refused(shell):
    shell("open s1 --user bob")
    refused = shell("chat s1", stdin="hi\n")
    assert refused.code == 1 and "belongs to another user" in refused.err


def test_S2_4_a_chat_notes_that_the_answer_was_shown(shell):
    shell("open s1")
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.answer("hello")

    with playing(work):
        shell("chat s1", stdin="hi\n")
    (sent,) = played.views.transcript.sent
    assert (sent.turn, sent.step, sent.channel) == (1, 1, "chat")


def test_later_from_a_pipe_ends_the_wait(shell):
    """Nobody can be asked again, so a pipe that put a doubt off waited for ever."""
    played = Played(shell.log, "s1")

    def work():
        turn_opens(played)
        played.call()
        played.start()
        played.complete("", [("charge", {})])
        played.invoke()
        played.tool_start()
        played.uncertain()

    with playing(work):
        talked = shell("chat s1", stdin="pay\nl\n")
    assert talked.code == 1 and "the turn continues" in talked.err
