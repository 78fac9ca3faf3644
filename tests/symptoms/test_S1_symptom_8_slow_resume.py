"""Symptom 8: "a resume takes five seconds every time".

Cause there: the summary was made when the user came back. Here it is made while the session is
idle (S1.H), and the first request after the pause adopts it without a model call before it.
"""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.schemas import events as ev
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    cheap_model,
    due,
    opened,
    talked,
    worked,
)

PAUSE_MS = 3_600_000  # an hour: nobody keeps the prefix so long


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(cheap_model) as server:
        yield server


def idle(turns: int = 10):
    """A session above the size that gets a summary when it rests."""
    history = opened()
    talked(history, turns)
    assert not history.turn.open
    return history


def test_S1_H_symptom_8_an_idle_session_has_its_summary_before_it_is_needed(server, tmp_path):
    history = idle()
    assert due(history) == ["resume"]
    worked(history, server, tmp_path)
    before = len(history.records)
    history.later(PAUSE_MS)
    history.say("I am back")
    history.work()
    assert SUMMARY in history.request_bytes().decode()
    events = [step.entry.event for step in history.steps if step.entry.offset >= before]
    kinds = [type(event) for event in events]
    assert kinds == [ev.MessageReceived, ev.LlmCalled, ev.GenStart], "no model call before it"
    assert events[1].checkpoint == history.views.compaction.checkpoint.offset
    assert events[1].prompt_tokens < LIMITS.soft_tokens


def test_S1_H_symptom_8_whoever_is_back_too_soon_does_not_wait_for_it():
    """The summary is still being made: the answer is not delayed by it."""
    history = idle()
    history.later(PAUSE_MS)
    history.say("I am back")
    history.work()
    assert due(history) == ["resume"] and history.turn.generation.status == "running"
    assert SUMMARY not in history.request_bytes().decode()


def test_S1_H_symptom_8_a_small_session_needs_none():
    assert due(idle(turns=3)) == []


def test_S1_H_symptom_8_an_abort_stops_it_too(server):
    """Constraint 3: compaction included."""
    history = idle()
    history.say("more")
    history.work()
    history.cancel()
    assert [work.stop for work in history.views.background.works] == [True]
    assert ("abort", "background") in {(o.owed, o.role) for o in history.owed()}
