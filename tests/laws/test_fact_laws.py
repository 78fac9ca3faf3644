"""The laws of facts: a fold of the facts of a history agrees with its views, after every event."""

from collections import Counter
from typing import Any

from hypothesis import assume, given, strategies as st

from foldlog.processors.advice.prices import list_prices
from foldlog.processors.facts.derive import fact_of
from foldlog.processors.facts.drafts import Draft, completed
from foldlog.processors.fold.views import SessionViews
from foldlog.schemas import facts
from foldlog.schemas.facts import Fact, decode_fact, encode_fact
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import Step, with_calls
from foldlog.tests.kit.known_session import KnownSession, demand_agreement
from foldlog.tests.laws.law import LAW, histories, law
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.laws.test_refold_laws import forked, skipped
from foldlog.web.inspector.cards import Card, TurnDone

PRICES = list_prices()


def paid_until(views: SessionViews, offset: int) -> tuple[Counter, int]:
    """The sums of the ledger's rows up to an offset, and how many have no price."""
    sums: Counter[Any] = Counter()
    unpriced = 0
    for row in views.ledger.spent:
        if row.offset > offset:
            continue
        of, cost = (row.model, row.kind), PRICES.cost(row)
        sums[*of, "requests"] += 1
        sums[*of, "input"] += row.input_tokens
        sums[*of, "read"] += row.cache_read_tokens
        sums[*of, "5m"] += row.cache_write_5m_tokens
        sums[*of, "1h"] += row.cache_write_1h_tokens
        sums[*of, "output"] += row.output_tokens
        sums["picodollars"] += cost or 0
        unpriced += cost is None
    return sums, unpriced


def fact_in(step: Step) -> Fact | None:
    """The fact of a step, as a reader decodes it."""
    fact = fact_of(step.entry, step.before, step.views, step.ruling, PRICES)
    if fact is None:
        return None
    read = decode_fact(*encode_fact(fact))
    assert read == fact and (fact.partition, fact.offset) == (0, step.entry.offset)
    assert (fact.at, fact.session_id) == (step.entry.at, step.views.session_id)
    assert (fact.user_id, fact.agent) == (step.views.state.user_id, step.views.turn.agent)
    return read


@law(forged=True)
def test_a_fold_of_the_facts_agrees_with_the_views_after_every_event(history: RandomHistory):
    known = KnownSession()
    for step in history.steps:
        fact = fact_in(step)
        if fact is not None:
            known.take(fact)
        demand_agreement(known, step.views)


@law(forged=True)
def test_the_usage_of_facts_adds_up_to_the_ledger(history: RandomHistory):
    known, last = KnownSession(), -1
    for step in history.steps:
        fact = fact_in(step)
        if fact is not None:
            known.take(fact)
            last = fact.offset if hasattr(fact, "usage") else last
    sums, unpriced = paid_until(history.views, last)
    assert +known.usage == +sums
    assert known.unpriced == unpriced
    ended = sum(line.kind == "ended" for line in history.views.transcript.lines)
    assert known.turns.total() == ended


OVER = {"ended", "terminated"}


@law(forged=True)
def test_a_turn_pays_for_the_requests_since_the_last_end_or_termination(history: RandomHistory):
    """`derive` reads only the last rows; this reads all of them."""
    for step in history.steps:
        fact = fact_in(step)
        if isinstance(fact, facts.TurnEnded | facts.SessionClosed):
            views, offset = step.views, step.entry.offset
            over = [line.offset for line in views.transcript.lines if line.kind in OVER]
            since = max((each for each in over if each < offset), default=-1)
            rows = [row for row in views.ledger.spent if since < row.offset <= offset]
            assert fact == completed(Draft(fact, rows), PRICES)
            assert rows or not fact.usage


def test_a_turn_that_a_termination_ends_does_not_pay_again():
    history = with_calls(Use("post"))
    history.terminate()
    history.result("1.1.0")
    history.work()
    found = [fact_in(step) for step in history.steps]
    closed, ended = [fact for fact in found if hasattr(fact, "usage")]
    assert isinstance(closed, facts.SessionClosed) and closed.usage[0].requests == 1
    assert isinstance(ended, facts.TurnEnded) and ended.usage == ()


@law(forged=True)
def test_turns_take_as_long_as_the_inspector_says(history: RandomHistory):
    card, shown, told = Card(PRICES, history.blobs.read), [], []
    for step in history.steps:
        shown += [done.ms for done in card.feed(step.views) if isinstance(done, TurnDone)]
        fact = fact_in(step)
        if isinstance(fact, facts.TurnEnded):
            told.append(fact.ms)
    assert told == shown


@law(forged=True)
def test_an_ignored_event_has_no_fact(history: RandomHistory):
    for step in history.steps:
        if not step.ruling.accepted and step.views.frozen is step.before.frozen:
            assert fact_in(step) is None


def some_step(history: RandomHistory, number: int) -> Step:
    """A step of the opened session."""
    steps = [step for step in history.steps if step.views.turn.known and not step.views.frozen]
    assume(steps)
    return steps[number % len(steps)]


@LAW
@given(histories(), st.integers(0, 10_000))
def test_the_first_fact_of_a_fork_says_what_it_inherited(history: RandomHistory, number: int):
    fork = forked(history, some_step(history, number))
    known, fact = KnownSession(), fact_in(fork)
    assert isinstance(fact, facts.SessionOpened) and fact.parent_id == history.session_id
    known.take(fact)
    demand_agreement(known, fork.views)


@LAW
@given(histories(), st.integers(0, 10_000))
def test_the_fact_of_a_skip_says_all_that_is_known(history: RandomHistory, number: int):
    step = skipped(history, some_step(history, number))
    known, fact = KnownSession(is_frozen=True), fact_in(step)
    assert isinstance(fact, facts.SessionRepaired) and fact.usage == ()
    known.take(fact)
    demand_agreement(known, step.views)
