"""A draft survives packing, and its usage is the sum of its requests."""

import pytest

from foldlog.processors.advice.prices import list_prices
from foldlog.processors.facts.drafts import USAGES_MAX, Draft, completed, pack, unpack
from foldlog.processors.fold.projections.ledger import Spent
from foldlog.schemas.bounds import SUM_MAX
from foldlog.schemas.facts import FACT_TYPES, SessionClosed
from foldlog.tests.schemas.arbitrary import example_of

CLOSED = example_of(SessionClosed)
MODEL = "claude-opus-5-5"


def spent(model: str = MODEL, tokens: int = 10, **more) -> Spent:
    return Spent(1, 1, 1, "complete", model, tokens, 2, 3, 4, 5, "r", 7, **more)


@pytest.mark.parametrize("cls", [row.cls for row in FACT_TYPES], ids=lambda cls: cls.__name__)
def test_a_draft_survives_packing(cls):
    draft = Draft(example_of(cls), [spent(), spent("other", kind="background", work="memory")])
    assert unpack(pack(draft)) == draft


@pytest.mark.parametrize("data", [b"", b"TURN_BEGUN", b"TURN_BEGUN\0\x80", b"X\0\x80"])
def test_other_bytes_are_no_draft(data):
    with pytest.raises(ValueError):
        unpack(data)


def usage(*rows: Spent):
    fact = completed(Draft(CLOSED, rows), list_prices())
    assert isinstance(fact, SessionClosed)
    return fact.usage


def test_requests_are_added_up_by_model_and_work():
    first, second, third = usage(
        spent(), spent(tokens=20), spent(kind="background"), spent("unknown")
    )
    assert (first.model, first.work, first.requests, first.input_tokens) == (MODEL, "answer", 2, 30)
    assert (first.cache_read_tokens, first.output_tokens) == (4, 10)
    assert first.picodollars == sum(list_prices().cost(row) for row in (spent(), spent(tokens=20)))
    assert (second.work, second.requests) == ("background", 1)
    assert third.picodollars is None


def test_the_rows_of_a_fact_and_its_cost_are_bounded():
    rows = usage(*(spent(f"m{number}") for number in range(USAGES_MAX + 9)))
    assert len(rows) == USAGES_MAX and sum(row.requests for row in rows) == USAGES_MAX + 9
    (one,) = usage(*[spent(tokens=10**15)] * 9)
    assert one.picodollars == SUM_MAX
