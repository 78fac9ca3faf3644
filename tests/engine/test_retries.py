"""When a failed model call is repeated: not before the provider allows it, and not without end."""

import pytest

from foldlog.local.messages_api import Reply, Rule, text
from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven

AGENT = Agent(name="helper", model="claude-opus-5-5")


def bare(times: int) -> Rule:
    """A gateway's 429, without a retry-after."""
    return Rule(reply=Reply([], fault="rate_limit_bare"), times=times)


def run_through(session: Driven) -> list[str]:
    """Runs until the turn ends, through every pause before a retry. Returns the errors."""
    session.say("hi").run()
    while not session.events(ev.TurnEnded):
        due = session.next_due_ms()
        assert due is not None
        session.ms = max(session.ms, due)
        session.run()
    return [failed.error for failed in session.events(ev.GenFailed)]


@pytest.mark.parametrize("times", [1, 2])
def test_S2_9_a_429_of_a_gateway_is_retried_twice(start_session, times):
    session = start_session(AGENT, bare(times), Rule(reply=Reply([text("ok")])))
    assert run_through(session) == ["rate_limit_bare"] * times
    assert [ended.reason for ended in session.events(ev.TurnEnded)] == ["end_turn"]


def test_S2_9_a_429_that_stays_is_a_spend_limit_after_two_retries(start_session):
    session = start_session(AGENT, bare(9))
    assert run_through(session) == ["rate_limit_bare", "rate_limit_bare", "spend_limit"]
    failed = session.events(ev.GenFailed)[-1]
    assert failed.permanent and "spend limit is reached" in failed.detail


def test_S2_9_a_429_of_a_gateway_is_retried_also_after_other_failures(start_session):
    busy = Rule(reply=Reply([], fault="overloaded"), times=2)
    session = start_session(AGENT, busy, bare(1), Rule(reply=Reply([text("ok")])))
    assert run_through(session) == ["overloaded", "overloaded", "rate_limit_bare"]
    assert [ended.reason for ended in session.events(ev.TurnEnded)] == ["end_turn"]


def test_S2_9_a_retry_is_timed_from_the_moment_when_the_claim_was_read(start_session):
    """The claim is read 4 s after it was written: by the claim's time, the retry would be due at
    once."""
    wait = Rule(reply=Reply([], fault={"name": "rate_limit_ms", "retry_after_ms": 300}), times=1)
    agent = Agent(name="helper", model=AGENT.model, limits=Limits(start_window_ms=5_000))
    session = start_session(agent, wait, Rule(reply=Reply([text("ok")])))
    session.say("hi")
    while not session.events(ev.GenStart):
        assert session._runner.run(session.step())
    session.ms += 4_000
    read_at = session.ms
    session.run()
    (failed,) = session.events(ev.GenFailed)
    assert failed.retry_at >= read_at + 300
    assert session.server.calls() == 1
