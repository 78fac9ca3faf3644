"""A provider's count that cannot be true neither ends turns nor causes compaction."""

import json

import pytest

from foldlog.local.messages_api import Reply, Rule, text
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.schemas import events as ev
from foldlog.schemas.tokens import ABSURD_MORE, believed
from foldlog.tests.engine.driven import Driven

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-5-5"
FIELDS = ("input_tokens", "cache_read_input_tokens", "output_tokens")
STRATEGIES = ("compacted", "full", "sliding_window_4")
EACH = pytest.mark.parametrize("strategy", STRATEGIES)


def absurd(times: int, **usage: int) -> Rule:
    return Rule(reply=Reply([text("Yes.")], usage=usage), times=times)


def sizes(session: Driven) -> list[int]:
    """The estimated tokens of each request."""
    return [called.prompt_tokens for called in session.events(ev.LlmCalled)]


@EACH
@pytest.mark.parametrize("tokens", [60_000, 200_000, 2_000_000, 90_000_000])
@pytest.mark.parametrize("field", FIELDS)
def test_S3_6_one_absurd_usage_changes_nothing_for_the_session(
    start_session, strategy, tokens, field
):
    agent = Agent(name="helper", model=MODEL, strategy=strategy)
    session = start_session(
        agent, absurd(1, **{field: tokens}), Rule(reply=Reply([text("Yes.")]))
    )
    for words in ("one", "two", "three"):
        session.say(words).run()
    assert [ended.reason for ended in session.events(ev.TurnEnded)] == ["end_turn"] * 3
    assert session.events(ev.BackgroundStarted) == [], "compacted for nothing"
    assert max(sizes(session)) < ABSURD_MORE
    came = session.events(ev.GenComplete)[0].usage
    assert json.loads(came.raw)[field] == tokens and tokens in came.counts


def test_S3_6_a_session_whose_usage_is_always_absurd_continues(start_session):
    session = start_session(Agent(name="helper", model=MODEL), absurd(99, input_tokens=2_000_000))
    for number in range(5):
        session.say(f"Question {number}: " + "what is next? " * 300).run()
    session.restart()
    session.say("And now?").run()
    assert [ended.reason for ended in session.events(ev.TurnEnded)] == ["end_turn"] * 6
    assert sizes(session) == sorted(sizes(session)), "the estimate grows with the conversation"
    assert sizes(session)[-1] == pytest.approx(estimated_tokens(session.views.context), rel=0.1)


def test_S3_6_an_absurd_usage_of_a_long_session_compacts_no_earlier(start_session):
    """The requests have about 40,000 tokens, less than the soft budget of 50,000."""
    long = "word " * 25_000
    session = start_session(
        Agent(name="helper", model=MODEL, compaction=Compaction(model=CHEAP)),
        Rule(reply=Reply([text("In short.")]), when=lambda r: r.model == CHEAP),
        absurd(99, output_tokens=2_000_000),
    )
    session.hold = {"resume"}
    session.say(long).run().say("Go on.").run()
    assert {work.kind for work in session.events(ev.BackgroundStarted)} <= {"resume"}
    assert 30_000 < sizes(session)[-1] < 50_000


@pytest.mark.parametrize(
    ("reported", "own", "used"),
    [
        (0, 100, 0),
        (3_000, 100, 3_000),  # an image or two, whose sizes are unknown
        (ABSURD_MORE + 300, 100, ABSURD_MORE + 300),
        (ABSURD_MORE + 301, 100, 100),
        (150_000, 60_000, 150_000),  # the tokens of thinking that is not shown
        (2_000_000, 60_000, 60_000),
        (2_000_000, 0, 0),
    ],
)
def test_a_count_is_absurd_far_above_our_own_estimate(reported, own, used):
    assert believed(reported, own) == used
