"""Ids are never `.` or `..`, which name a directory in a path; the fold still accepts them."""

import pytest

from foldlog.producers import Sessions
from foldlog.producers.checks import Invalid
from foldlog.schemas import events as ev
from foldlog.schemas.ids import DOTS, is_id, is_logged_id, why_not_an_id
from foldlog.tests.consumers.played import Played, memory_log, settings_in


@pytest.mark.parametrize("text", DOTS)
def test_dots_are_no_id(text):
    assert not is_id(text) and is_logged_id(text)
    assert why_not_an_id("user", text).startswith(f"user must not be '{text}'")


@pytest.mark.parametrize("text", ["...", ".a", "a.", "..a", ".:", "-", "@"])
def test_other_ids_may_contain_dots(text):
    assert is_id(text)


@pytest.mark.parametrize("text", DOTS)
def test_producers_refuse_dots(tmp_path, text):
    sessions = Sessions(memory_log(), settings_in(tmp_path))
    sessions.open("s1", agent="shop")
    for command in (
        lambda: sessions.open(text, agent="shop"),
        lambda: sessions.open("s2", agent=text),
        lambda: sessions.open("s2", agent="shop", user=text),
        lambda: sessions.say(text, "hi"),
        lambda: sessions.say("s1", "hi", message_id=text),
        lambda: sessions.cancel(text),
        lambda: sessions.terminate(text),
        lambda: sessions.lock("s1", text),
    ):
        with pytest.raises(Invalid, match="which names a directory"):
            command()


def test_a_session_of_an_old_log_folds_as_before(tmp_path):
    log = memory_log()
    played = Played(log, "..")
    played.append(ev.SessionOpened(user_id="ana", agent="shop", rules=1), "producer")
    assert played.views.turn.known and played.views.state.user_id == "ana"
