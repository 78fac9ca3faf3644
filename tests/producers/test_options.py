"""The options of a command are read by one description, whatever a person types."""

import pytest

from foldlog.producers.checks import Invalid
from foldlog.producers.options import REMEMBER, SAME_ARGUMENTS, WHEN_BUSY


@pytest.mark.parametrize("given", [{}, {"when_busy": None}, {"when_busy": ""}])
def test_a_word_that_is_not_given_is_the_first(given):
    assert WHEN_BUSY.of(given) == {"when_busy": "queue"}


@pytest.mark.parametrize("word", ["shout", 5, ["queue"], {"queue": 1}, True])
def test_bad_input_a_word_that_is_none_of_the_known_is_refused(word):
    with pytest.raises(Invalid, match="when_busy must be one of queue, interrupt, steer, not"):
        WHEN_BUSY.of({"when_busy": word})


@pytest.mark.parametrize(
    "value, counts", [(True, True), (1, False), ("true", False), (None, False)]
)
def test_a_flag_counts_only_if_it_is_true(value, counts):
    assert REMEMBER.of({"remember": value}) == {"remember": counts}
    assert REMEMBER.of({"remember": True}) == SAME_ARGUMENTS
