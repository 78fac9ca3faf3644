"""S3.4: exactly one row of the table ADOPT says whether a request adopts compactions."""

from itertools import product

import pytest

from foldlog.processors.wake.budget import ADOPT, Least, Over, Thinking

EVERY = list(product(Over, (False, True), Thinking))


@pytest.mark.parametrize(("over", "cold", "thinking"), EVERY)
def test_S3_4_exactly_one_row_applies(over, cold, thinking):
    rows = [
        row for row in ADOPT
        if over in row.over and cold in row.cold and thinking in row.thinking
    ]
    assert len(rows) == 1, rows


def row_of(over, cold, thinking):
    return next(
        row for row in ADOPT
        if over in row.over and cold in row.cold and thinking in row.thinking
    )


@pytest.mark.parametrize(("over", "cold", "thinking"), EVERY)
def test_S3_4_signed_thinking_is_kept_unless_the_request_cannot_be_sent(over, cold, thinking):
    least = row_of(over, cold, thinking).least
    if thinking is Thinking.KEPT:
        assert least is None, "the model would refuse the request"
    if thinking is Thinking.COVERED:
        assert (least is not None) == (over is Over.HARD)


@pytest.mark.parametrize(("over", "cold"), list(product(Over, (False, True))))
def test_S3_4_the_cache_is_given_up_only_for_a_saving_that_pays(over, cold):
    row = row_of(over, cold, Thinking.FREE)
    expected = {
        (Over.NO, False): (None, False),
        (Over.NO, True): (Least.TENTH, True),
        (Over.SOFT, False): (Least.FIFTH, False),
        (Over.SOFT, True): (Least.TENTH, True),
        (Over.HARD, False): (Least.ANYTHING, True),
        (Over.HARD, True): (Least.ANYTHING, True),
    }
    assert (row.least, row.always) == expected[over, cold]
