"""S3.6: a request of exactly the hard cap is sent; one token more ends the turn."""

from dataclasses import replace

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.wake.budget import Budget, plan
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas import events as ev
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, opened

LOOK = Use("look", "{}", "a")
WINDOW = "sliding_window_8"


def capped(agent: Agent, tokens: int) -> Agent:
    """The agent with this hard cap; its soft budget is equal, so it is never exceeded before the
    cap."""
    return replace(agent, limits=replace(agent.limits, hard_tokens=tokens, soft_tokens=tokens))


def answered(agent: Agent) -> History:
    """A session whose second step is due and that has nothing to compact."""
    s = opened(agent=agent)
    s.say("go")
    s.answer(LOOK)
    assert s.result("1.1.0").accepted and s.rows() == ["N3"]
    return s


def tokens_of(s: History) -> int:
    return plan(s.views, rules_of(s.agent)).tokens


def test_S3_6_a_step_of_exactly_the_hard_cap_is_sent():
    s = answered(variant("full"))
    cap = tokens_of(s)
    s.agent = capped(s.agent, cap)
    assert s.rows() == ["N3"]
    s.work()
    called = s.steps[-2].entry.event
    assert isinstance(called, ev.LlmCalled)
    assert called.step == 2 and called.prompt_tokens == cap == called.budget.hard_tokens


def test_S3_6_a_step_one_token_over_the_hard_cap_is_not_sent():
    s = answered(variant("full"))
    cap = tokens_of(s) - 1
    s.agent = capped(s.agent, cap)
    assert s.rows() == ["N2"]
    s.work()
    ended = s.steps[-1].entry.event
    assert (ended.reason, ended.limit, ended.used) == ("budget_exceeded", cap, cap + 1)


def first_step(cap: int | None) -> History:
    """A session after its first step. The estimate of the request includes the prefix."""
    agent = variant("full", system="Be brief. " * 200)
    s = opened(agent=agent if cap is None else capped(agent, cap))
    s.say("go")
    return s.work()


def called(s: History) -> list[int]:
    events = [step.entry.event for step in s.steps]
    return [event.prompt_tokens for event in events if isinstance(event, ev.LlmCalled)]


def test_S3_6_the_first_step_counts_its_prefix_to_the_token():
    (estimate,) = called(first_step(None))
    assert called(first_step(estimate)) == [estimate]
    over = first_step(estimate - 1)
    assert called(over) == [] and over.end_reason() == "budget_exceeded"


@pytest.mark.parametrize(("more", "fits"), [(0, True), (-1, False)])
def test_S3_6_a_shorter_prefix_counts_to_the_token(more, fits):
    short = variant("full", system="Be brief.")

    def second_turn(agent: Agent, cap: int | None) -> History:
        s = opened(agent=variant("full", system="Be brief. " * 200))
        s.say("go")
        s.answer("well", read=3_000)
        s.agent = agent if cap is None else capped(agent, cap)
        s.say("on", "m2")
        assert s.rows() == (["N3"] if cap is None else ["N2"]), "estimated with the old prefix"
        return s.work()

    _, estimate = called(second_turn(short, None))
    s = second_turn(short, estimate + more)
    assert len(called(s)) == (2 if fits else 1)
    assert s.end_reason("m2") == ("" if fits else "budget_exceeded")


def test_S3_6_a_window_of_exactly_the_cap_is_not_halved():
    s = opened(agent=variant(WINDOW))
    for number in range(6):
        s.say(f"question {number} " * 9, f"m{number}")
        s.answer("well " * 9, read=2_000)
    s.say("on", "m9")
    cap = tokens_of(s)
    assert plan(s.views, rules_of(capped(s.agent, cap))).strategy == WINDOW
    assert plan(s.views, rules_of(capped(s.agent, cap - 1))).strategy == "sliding_window_4"


def test_S3_6_a_summary_is_required_only_over_the_cap():
    s = answered(variant("compacted"))
    for cap, required in ((tokens_of(s), False), (tokens_of(s) - 1, True)):
        rules = rules_of(capped(s.agent, cap))
        assert Budget(s.views, rules).needs_room == required
        summaries = [due for due in Budget(s.views, rules).works if due.kind == "context"]
        assert bool(summaries) == required
