"""Regression tests of requests and compaction: histories that broke a law, one for each bug."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from foldlog.processors.fold.projections.compaction import Summary
from foldlog.processors.request.build import compaction_request
from foldlog.processors.wake.background_tasks import task_of
from foldlog.processors.wake.budget import Budget
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas.codec import entry_of
from foldlog.schemas.events.parts import Body
from foldlog.schemas.value import replace as replaced
from foldlog.tests.kit.agents import AGENT, variant
from foldlog.tests.kit.answers import Use, dumps, thinking
from foldlog.tests.kit.background_ends import ends_of
from foldlog.tests.kit.history import History, opened

LOOK = Use("look", "{}", "a")


def test_S1_H_memory_is_extracted_from_a_turn_that_ended_before_its_first_step():
    """The defect: such a turn has no request and so no prefix, and building the task raised an
    exception."""
    s = opened(agent=replace(AGENT, memory=True))
    s.say("I like tea")
    s.cancel()
    s.work()
    ((what, begin),) = s.discharge("B2").begun
    assert what == "work" and "I like tea" in begin.task.request.decode()


def began_with_thinking(s: History) -> bool:
    """Whether the last answer in the newest request begins with thinking, as the API requires under
    a fixed budget."""
    answers = [m for m in s.request()["messages"] if m["role"] == "assistant"]
    return answers[-1]["content"][0]["type"] == "thinking"


def fixed(**more) -> History:
    """A session with a fixed thinking budget, in the middle of its third turn."""
    s = opened(agent=variant(**{"thinking": "fixed", **more}))
    for words in ("one", "two"):
        s.say(words)
        s.answer(thinking("hm"), "well")
    s.say("three")
    return s.answer(thinking("hm"), LOOK)


def test_S1_C_a_sliding_window_does_not_move_between_a_call_and_its_result():
    """The defect: the window moved and omitted the thinking before the call, and the API rejected
    the request."""
    s = fixed(strategy="sliding_window_2")
    s.result("3.1.0")
    s.work()
    assert began_with_thinking(s)
    s.answer(thinking("hm"), "done").say("four")
    s.work()
    assert len(s.request()["messages"]) <= 3 + 1, "then it moves"


@pytest.mark.parametrize("change", [{"system": "Be rude."}, {"strategy": "sliding_window_2"}])
def test_S1_C_an_edited_agent_waits_until_the_calls_of_an_ended_turn_are_answered(change):
    s = fixed()
    s.cancel()
    s.later(5_000).work()
    s.agent = variant(**{"thinking": "fixed", **change})
    s.say("and?")
    s.work()
    assert began_with_thinking(s) and "Be brief." in str(s.request()["system"])
    s.answer(thinking("hm"), "done").say("on")
    s.work()
    assert ("Be rude." in str(s.request()["system"])) == ("system" in change)


def test_S1_C_an_answer_without_text_does_not_end_the_thinking_of_its_call():
    s = fixed()
    s.result("3.1.0")
    s.answer(dumps({"type": "text", "text": " "}))
    s.agent = variant(thinking="fixed", system="Be rude.")
    s.say("and?")
    s.work()
    assert began_with_thinking(s)


def test_S1_C_thinking_that_is_switched_on_begins_after_the_open_calls():
    s = fixed(thinking="")
    s.agent = variant(thinking="fixed")
    s.result("3.1.0")
    s.work()
    assert "thinking" not in s.request()
    s.answer("done").say("on")
    s.work()
    assert s.request()["thinking"]["type"] == "enabled"


def test_law_11_a_late_prefix_does_not_change_that_of_a_running_turn():
    """A worker writes the prefix for a first step that another worker has decided in the
    meantime."""
    s = opened()
    s.say("go")
    s.agent = replace(AGENT, system="Be rude.")
    late = s.in_flight("N3")
    s.agent = AGENT
    s.work()
    assert s.land(late) == ["stale", "duplicate"]
    s.answer(LOOK)
    s.result("1.1.0")
    s.work()
    assert "Be brief." in str(s.request()["system"])


def test_law_2_a_copied_claim_of_a_finished_summary_claims_nothing():
    """The defect: the fold took a copy of the record for a new claim, and the summary was made
    twice."""
    s = opened()
    for _ in range(8):
        s.say("long " * 200)
        s.answer("well")
    s.say()
    s.answer(LOOK, read=5_000)
    (claim,) = (n for n, r in enumerate(s.records) if r.header("t") == b"BACKGROUND_STARTED")
    ((_, begin),) = s.discharge("B2").begun
    for event in ends_of(entry_of(s.records[claim]).event, begin.task, s.agent, "So.", s.blobs):
        assert s.append(event, "background").accepted
    assert s.again(claim).code == "late" and not s.views.background.works


def test_S3_4_the_cheap_model_summarizes_a_single_block():
    """The defect: the provider finds nothing to summarize in a single block, so the step waited
    until its deadline."""
    s = opened(agent=variant(provider=True))
    s.say("tell me all of it. " * 1_500)
    s.answer(LOOK, read=25_000)
    s.result("1.1.0", "a row\n" * 8_000)
    s.work()
    begun = [begin for owed in s.owed() if owed.row == "B2" for _, begin in s.do(owed).begun]
    (summary,) = (begin for begin in begun if begin.kind == "context")
    assert summary.task.kept_from == 1 and b'"summarize"' not in summary.task.request


def test_S1_E_the_provider_is_not_asked_for_a_summary_of_answers_without_thinking():
    """With a fixed budget, the API rejects results after an answer that does not begin with
    thinking. The cheap model writes such a summary; otherwise, the conversation could not
    shrink."""
    s = opened(agent=variant(thinking="fixed", provider=True))
    s.say("one")
    s.answer(LOOK).result("1.1.0")
    s.work()
    s.complete("done")
    kinds = [fragment.kind for fragment in s.views.context.fragments]
    assert compaction_request(s.views, kinds.index("result") + 1, s.blobs.read) is None
    whole = compaction_request(s.views, len(kinds), s.blobs.read)
    assert whole is not None and b'"compaction"' in whole


def test_constraint_6_a_late_result_during_a_decision_is_a_reminder_in_the_next_step():
    """The result is not an input of the decision and does not move its basis, so the decision is
    valid without it."""
    s = opened()
    s.say("post it")
    s.answer(Use("post", '{"text":"dear"}', "a"))
    s.cancel()
    s.work()
    s.later(60_000).work()
    s.say("and?")
    late = s.in_flight("N3")
    assert s.result("1.1.0", "posted").accepted
    assert s.land(late) == ["accepted"]
    assert "posted" not in str(s.request()["messages"]) and len(s.turn.reminders) == 1
    s.answer("well").say("and now?")
    s.work()
    assert "posted" in str(s.request()["messages"]) and not s.turn.reminders


def test_law_9_a_claimed_summary_is_skipped_when_another_covers_as_much():
    """The defect: another summary already covered as much, and the fold refused the claimed summary
    after it was paid for."""
    s = opened(agent=variant())
    for n in range(10):
        s.say(f"and {n}?")
        s.answer("well")
    cut = Budget(s.views, rules_of(s.agent)).best_cut
    for kept, made in ((cut - 1, True), (cut, False), (cut + 1, False)):
        ready = Summary(s.offset, 1, kept, Body(inline=b"[]"), 40, "m")
        summaries = s.views.compaction.summaries.append(ready)
        view = replaced(s.views.compaction, summaries=summaries, candidate_at=ready.offset)
        views = replaced(s.views, compaction=view)
        task = task_of(views, SimpleNamespace(kind="resume"), s.agent, s.blobs.read)
        assert (task is not None) is made
