"""Symptom 2: "automatic compaction never fires, use grows until it overflows".

Cause there: the size of the last step was not updated after each step. Here it is a fold of each
GEN_COMPLETE, and what WAKE decides by; a session that grows gets its summary in time.
"""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.fold.projections.context import all_input
from foldlog.schemas import events as ev
from foldlog.tests.laws.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    cheap_model,
    due,
    opened,
    talked,
    use,
    worked,
)


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(cheap_model) as server:
        yield server


def test_S1_symptom_2_constraint_5_last_step_tokens_are_those_of_the_last_step():
    history = opened()
    talked(history, 3)
    history.say("look")
    history.answer(use(), read=7_000)
    history.result("4.1.0", "seen")
    history.answer("done", read=7_100)
    steps = [s for s in history.steps if isinstance(s.entry.event, ev.GenComplete)]
    assert len(steps) == 5
    for step in steps:
        usage = step.entry.event.usage
        assert step.views.context.last_step_tokens == all_input(usage) + usage.output_tokens


def test_S3_6_symptom_2_over_the_soft_budget_a_summary_is_made_and_adopted(server, tmp_path):
    history = opened()
    talked(history, 8, tokens=900)  # 7,200: below both budgets
    assert due(history) == [] and history.views.background.tried_upto == -1
    history.say("look")
    history.answer(use(), read=LIMITS.soft_tokens + 1)
    assert due(history) == ["context"], "the last step alone says that it is due"
    before = len(history.request_bytes())
    made, done = worked(history, server, tmp_path)
    assert isinstance(made, ev.ContextCompacted) and done.ok
    assert history.views.compaction.checkpoint is None, "in force only when it is adopted"
    history.result("9.1.0", "seen")
    history.work()
    assert history.views.context.request.checkpoint == history.views.compaction.checkpoint.offset
    assert SUMMARY in history.request_bytes().decode() and not findings(history.request_bytes())
    assert len(history.request_bytes()) < before / 1.2
    assert len(history.messages()) > 12, "S3.4: the newest twelve stay, behind the summary"


def test_S3_6_symptom_2_a_session_that_grows_for_ever_never_reaches_the_hard_cap(server, tmp_path):
    """Each request's size is what it really is, about 2.6 characters a token."""
    history, largest, summaries = opened(), 0, 0
    for number in range(40):
        history.say(f"{number}: " + "what was said before is said again " * 60)
        history.work()
        tokens = int(len(history.request_bytes()) / 2.6)
        largest = max(largest, tokens)
        assert history.complete("I see.", read=tokens).accepted
        history.work()
        while due(history):
            worked(history, server, tmp_path)
            history.work()
            summaries += 1
    assert summaries >= 2 and largest < LIMITS.hard_tokens / 3
