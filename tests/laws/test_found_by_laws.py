"""Histories that the laws of requests and compaction found, written by hand: one per bug."""

from dataclasses import replace

from foldlog.tests.laws.agents import AGENT
from foldlog.tests.laws.history import opened


def test_S1_H_a_turn_that_ended_before_its_first_step_may_be_remembered():
    """Without a request there is no prefix: making the task raised, and the session was stuck."""
    s = opened(agent=replace(AGENT, memory=True))
    s.say("I like tea")
    s.cancel()
    s.work()
    ((what, begin),) = s.discharge("B2").begun
    assert what == "work" and "I like tea" in begin.task.request.decode()
