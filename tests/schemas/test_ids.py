"""Ids are never `.` or `..`, which name a directory in a path."""

import pytest

from foldlog.producers import Sessions
from foldlog.producers.checks import Invalid
from foldlog.schemas import events as ev
from foldlog.schemas.ids import DOTS, is_id, is_logged_id, why_not_an_id
from foldlog.tests.kit.played import Played, memory_log, settings_in


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


def test_a_message_of_an_old_log_keeps_its_place(tmp_path):
    """It was acknowledged, and nothing uses its id in a path."""
    played = Played(memory_log(), "s1")
    played.append(ev.SessionOpened(user_id="ana", agent="shop", rules=1), "producer")
    content = ev.Body(inline=b'[{"type":"text","text":"hi"}]')
    played.append(ev.MessageReceived(
        message_id="..", role="user", content=content, tokens=9, channel="c", when_busy="queue",
        by_user="ana",
    ), "producer")
    assert played.views.turn.open
