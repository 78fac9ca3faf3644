"""Symptom 2: "automatic compaction never fires, use grows until it overflows".

The cause was that the size of the last step was not updated after each step. In foldlog, every
GEN_COMPLETE updates the size, and WAKE decides by it, so a growing session is summarized in time.
"""

from foldlog.processors.fold.projections.context import all_input
from foldlog.schemas import events as ev
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    claimed_kinds,
    opened,
    run_work,
    talk,
    use,
)


def test_S1_symptom_2_constraint_5_last_step_tokens_are_those_of_the_last_step():
    history = opened()
    talk(history, 3)
    history.say("look")
    history.answer(use(), read=7_000)
    history.result("4.1.0", "seen")
    history.answer("done", read=7_100)
    steps = [s for s in history.steps if isinstance(s.entry.event, ev.GenComplete)]
    assert len(steps) == 5
    for step in steps:
        usage = step.entry.event.usage
        assert step.views.context.last_step_tokens == all_input(usage) + usage.output_tokens


def test_S3_6_symptom_2_over_the_soft_budget_a_summary_is_written_and_adopted(server, tmp_path):
    history = opened()
    talk(history, 8, tokens=900)  # 7,200: below both budgets
    assert claimed_kinds(history) == [] and history.views.background.tried_upto == -1
    history.say("look")
    history.answer(use(), read=LIMITS.soft_tokens + 1)
    assert claimed_kinds(history) == ["context"], "the last step alone makes it claimed_kinds"
    before = len(history.request_bytes())
    summary, finished = run_work(history, server, tmp_path)
    assert isinstance(summary, ev.ContextCompacted) and finished.ok
    assert history.views.compaction.checkpoint is None, "in force only after adoption"
    history.result("9.1.0", "seen")
    history.work()
    assert history.views.context.request.checkpoint == history.views.compaction.checkpoint.offset
    assert SUMMARY in history.request_bytes().decode() and not findings(history.request_bytes())
    assert len(history.request_bytes()) < before / 1.2
    assert len(history.messages()) > 12, "S3.4: the newest twelve follow the summary"


def test_S3_6_symptom_2_a_session_that_keeps_growing_never_reaches_the_hard_cap(server, tmp_path):
    """The model reports the real size of each request, at about 2.6 characters per token."""
    history, largest, summaries = opened(), 0, 0
    for number in range(40):
        history.say(f"{number}: " + "the user repeats an earlier message " * 60)
        history.work()
        tokens = int(len(history.request_bytes()) / 2.6)
        largest = max(largest, tokens)
        assert history.complete("I see.", read=tokens).accepted
        history.work()
        while claimed_kinds(history):
            run_work(history, server, tmp_path)
            history.work()
            summaries += 1
    assert summaries >= 2 and largest < LIMITS.hard_tokens / 3
