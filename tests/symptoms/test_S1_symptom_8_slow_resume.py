"""Symptom 8: "a resume takes five seconds every time".

The cause was that the summary was written only when the user came back. foldlog writes the summary
while the session is idle (S1.H), and the first request after the pause adopts it, without a model
call before that request.
"""

from foldlog.schemas import events as ev
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    claimed_kinds,
    opened,
    run_work,
    talk,
)

PAUSE_MS = 3_600_000  # an hour: no provider caches a prefix that long


def idle(turns: int = 10):
    """Returns an idle session that is large enough for a summary."""
    history = opened()
    talk(history, turns)
    assert not history.turn.open
    return history


def test_S1_H_symptom_8_an_idle_session_has_its_summary_before_it_is_needed(server, tmp_path):
    history = idle()
    assert claimed_kinds(history) == ["resume"]
    run_work(history, server, tmp_path)
    before = len(history.records)
    history.later(PAUSE_MS)
    history.say("I am back")
    history.work()
    assert SUMMARY in history.request_bytes().decode()
    events = [step.entry.event for step in history.steps if step.entry.offset >= before]
    kinds = [type(event) for event in events]
    assert kinds == [ev.MessageReceived, ev.LlmCalled, ev.GenStart], "no earlier model call"
    assert events[1].checkpoint == history.views.compaction.checkpoint.offset
    assert events[1].prompt_tokens < LIMITS.soft_tokens


def test_S1_H_symptom_8_a_summary_in_progress_does_not_delay_the_answer():
    history = idle()
    history.later(PAUSE_MS)
    history.say("I am back")
    history.work()
    assert claimed_kinds(history) == ["resume"] and history.turn.generation.status == "running"
    assert SUMMARY not in history.request_bytes().decode()


def test_S1_H_symptom_8_a_small_session_is_not_summarized():
    assert claimed_kinds(idle(turns=3)) == []


def test_S1_H_symptom_8_constraint_3_an_abort_stops_a_summary_in_progress(server):
    history = idle()
    history.say("more")
    history.work()
    history.cancel()
    assert [work.stop for work in history.views.background.works] == [True]
    assert ("abort", "background") in {(o.owed, o.role) for o in history.owed()}
