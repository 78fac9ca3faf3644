"""The reasons why a session waits, in words: each condition of WAKE has words, and what could
happen next is another row of WAKE's table."""

import re

import pytest

from foldlog.processors.fold.calls import CALLS
from foldlog.processors.wake.table import BY_ID, WAKE
from foldlog.schemas import events as ev
from foldlog.web.inspector.why import CALL_CHANGES, ROWS, SAYS, conditions, next_rows


@pytest.mark.parametrize("row", WAKE, ids=lambda row: row.id)
def test_every_condition_has_words(row):
    for name, values in row.when.items():
        assert any((name, value) in SAYS for value in values), (name, values)
    assert len(conditions(row)) == len(row.when)


def test_every_row_has_words_of_its_own_without_the_words_of_the_code():
    assert ROWS.keys() == BY_ID.keys()
    assert len(set(ROWS.values())) == len(ROWS), "two rows are never told apart by their id alone"
    for words in (*ROWS.values(), *SAYS.values()):
        assert not re.search(r"\b(my|mine|owner|slot|facts?|lane|gate)\b", words), words


def test_every_change_of_a_call_has_words():
    by_other_means = {ev.ApprovalExpired, ev.TurnEnded}  # time, and the end of the turn
    changes = {row.event for row in CALLS if row.becomes is not None}
    assert changes - by_other_means == set(CALL_CHANGES)


@pytest.mark.parametrize("row", WAKE, ids=lambda row: row.id)
def test_what_could_happen_next_is_another_row_of_the_table(row):
    for found in next_rows(row):
        assert found["row"] in BY_ID and found["row"] != row.id
        assert found["then"] == ROWS[found["row"]]


def test_an_approval_ends_by_a_decision_or_with_time():
    found = {(one["when"], one["row"]) for one in next_rows(BY_ID["T2w"])}
    assert {("A person allows it", "T3"), ("A person denies it", "N3"),
            ("The approval expires", "T2")} <= found
