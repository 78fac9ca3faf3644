"""`foldlog search`: which hits it finds, its output and its exit codes."""

import pytest

from foldlog.reports.search.search_index import index_path
from foldlog.tests.kit.played import Played


@pytest.fixture
def talk(shell):
    """The session s1 of ana and the session s2 of bob, with one turn each; s1 has a tool's
    result."""
    shell("open s1 --agent shop")
    shell("send s1", "where is the walrus \x1b[2J", "--message-id=m1")
    played = Played(shell.log, "s1")
    played.propose("I look.", ("read", {"path": "a"}))
    played.run_tool("a penguin, no walrus")
    played.answer("The walrus swims in the zoo.")
    shell("open s2 --user bob")
    shell("send s2 --user bob", "a walrus of bob")
    return played


def test_a_hit_shows_place_author_time_and_the_marked_match(shell, talk):
    ran = shell("search walruses --session s1")
    assert ran.code == 0 and ran.err == ""
    heads, snippets = ran.out.splitlines()[::2], ran.out.splitlines()[1::2]
    assert len(heads) == 3 and all(head.startswith("s1  20") for head in heads)
    assert "  The *walrus* swims in the zoo." in snippets
    assert any("said by ana, turn 1, offset 1 of" in head for head in heads)
    assert any("answered by shop, turn 1.2" in head for head in heads)
    assert any("result by read, turn 1.1" in head for head in heads)


def test_a_message_cannot_control_the_terminal(shell, talk):
    ran = shell("search where")
    assert "\x1b" not in ran.out and "\\x1b[2J" in ran.out


def test_json_is_one_hit_per_line(shell, talk):
    hits = shell("search --json penguin walrus").json
    first = hits[0]
    assert (first["session_id"], first["kind"]) == ("s1", "result")
    assert first["snippet"] == "a penguin, no walrus" and first["marks"] == [[2, 9], [14, 20]]
    assert (first["user_id"], first["who"], first["turn"], first["step"]) == ("ana", "read", 1, 1)
    assert first["offset"] > 0 and first["at"] > 0 and 0 < first["score"] < 1
    assert {hit["user_id"] for hit in hits} == {"ana", "bob"}


def test_a_phrase_without_spaces_is_marked_once(shell, talk):
    shell("send s1", "新しい価格を決める予定です", "--message-id=m2")
    assert "  新しい*価格を決める*予定です" in shell("search 価格を決める").out.splitlines()
    (hit,) = shell("search 価格を決める --json").json
    assert hit["marks"] == [[3, 9]]


def test_user_session_and_limit_narrow(shell, talk):
    assert [h["session_id"] for h in shell("search walrus --json --user bob").json] == ["s2"]
    assert len(shell("search walrus --json --limit 2").json) == 2
    assert shell("search walrus --json --session s3").json == []
    assert "nothing found with this --user or --session" in shell("search walrus --session s3").err


def test_no_hit_is_reported_and_is_not_an_error(shell, talk):
    ran = shell("search giraffe")
    assert (ran.code, ran.out) == (0, "") and "nothing found" in ran.err


@pytest.mark.parametrize(
    ("command", "words"), [("search", "???"), ("search --limit 0", "x"), ("search", "--x")]
)
def test_wrong_use_is_exit_code_2(shell, command, words):
    assert shell(command, words).code == 2


def test_no_words_are_exit_code_2(shell):
    assert shell("search").code == 2


@pytest.mark.parametrize("words", ['"', "walrus*", "NEAR(walrus", "-walrus", "a:b OR walrus"])
def test_a_query_has_no_syntax(shell, talk, words):
    ran = shell("search --json --", words)
    assert ran.code == (0 if "walrus" in words else 2)
    assert len([each for each in ran.json if "session_id" in each]) == 4 * ("walrus" in words)


def test_an_index_that_cannot_be_written_is_an_error_without_a_traceback(shell, talk):
    path = index_path(shell.settings)
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.write_text("a file in place of the directory")
    ran = shell("search walrus")
    assert ran.code == 1 and "cannot be used" in ran.err and "The log was not touched" in ran.err


def test_help_has_an_example(shell):
    assert "Example" in shell("search --help").out
