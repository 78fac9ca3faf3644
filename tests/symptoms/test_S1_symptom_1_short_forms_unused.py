"""Symptom 1: "shortening has no effect, results still reach the model in full size".

Cause there: the cache was written under one key and read under another. Here both sides name the
call by TURN.STEP.INDEX, which no provider can repeat, and the builder looks it up by that name.
"""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.schemas import events as ev
from foldlog.tests.laws.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    SHORT,
    cheap_model,
    due,
    long_result,
    opened,
    use,
    worked,
)


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(cheap_model) as server:
        yield server


def results(history) -> dict[str, str]:
    """What the newest request shows for each call, by the id that the request gives it."""
    blocks = [b for m in history.request()["messages"] for b in m["content"]]
    assert not findings(history.request_bytes())
    return {b["tool_use_id"]: b["content"] for b in blocks if b["type"] == "tool_result"}


def asked(*uses):
    history = opened()
    history.say("look for errors")
    return history.answer(*uses)


def claimed(history) -> None:
    """Everything up to the next step's decision."""
    history.work(before=("N3",))


def test_S1_E_symptom_1_the_next_request_shows_the_short_form(server, tmp_path):
    history = asked(use())
    whole = long_result(history)
    claimed(history)
    assert due(history) == ["result"]
    (short, done) = worked(history, server, tmp_path)
    assert short.call == "1.1.0" and done.ok
    history.work()
    shown = results(history)["a"]
    assert shown.startswith(SHORT) and "line 7 of" not in shown
    assert "The whole is kept" in shown, "this agent has no tool to read on with"
    assert len(history.request_bytes()) < len(whole) / 4


def test_S1_symptom_1_constraint_2_the_key_is_the_call_also_where_a_provider_repeats_its_ids(
    server, tmp_path
):
    history = asked(use(id="x"), use(id="x"))
    history.result("1.1.0", "a short answer")
    long_result(history, "1.1.1")
    claimed(history)
    worked(history, server, tmp_path)
    history.work()
    first, second = results(history).values()
    assert first == "a short answer" and second.startswith(SHORT)


def test_S1_E_symptom_1_what_was_sent_in_full_stays_until_the_prefix_may_move(server, tmp_path):
    """A short form that comes too late must not edit what was said: that would cost the cache."""
    history = asked(use())
    long_result(history)
    history.work()
    sent = results(history)["a"]
    worked(history, server, tmp_path)
    history.answer(use(id="b"))
    history.result("1.2.0", "seen")
    history.work()
    assert results(history)["a"] == sent and SHORT not in sent
    history.answer("done")
    history.later(600_000)  # nobody has the prefix any more, so moving it costs nothing
    history.say("and now?")
    history.work()
    assert results(history)["a"].startswith(SHORT)
    assert history.views.context.request.compacted_upto >= 0


def test_S1_E_symptom_1_it_is_shortened_once(server, tmp_path):
    history = asked(use())
    long_result(history)
    claimed(history)
    short, _ = worked(history, server, tmp_path)
    assert history.append(short, "background").code == "duplicate"
    history.work()
    assert due(history) == [] and not isinstance(history.owed(), ev.BackgroundStarted)
