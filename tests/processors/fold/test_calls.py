"""The table CALLS: it has one row for every status and event, and its rows keep the invariants."""

from itertools import product

import pytest

from foldlog.processors.fold.call_facts import FACTS
from foldlog.processors.fold.calls import (
    BY_EVENT,
    CALLS,
    CONTRADICTED,
    DOMAINS,
    DONE,
    DOUBT,
    NOT_BEGUN,
    STARTED,
    CallStatus,
    row_for,
)
from foldlog.processors.fold.rulings.producers import STANDS
from foldlog.schemas import events as ev


def combinations(event: type):
    """Every combination of the facts of an event."""
    for values in product(*DOMAINS[event].values()):
        yield dict(zip(DOMAINS[event], values, strict=True))


def matching(event: type, facts: dict) -> list:
    return [
        row for row in BY_EVENT[event]
        if all(facts[name] in values for name, values in row.when.items())
    ]


@pytest.mark.parametrize("event", DOMAINS, ids=lambda event: event.__name__)
def test_every_combination_of_facts_has_exactly_one_row(event):
    for facts in combinations(event):
        rows = matching(event, facts)
        assert len(rows) == 1, (facts, [row.why for row in rows])
        assert row_for(event, *facts.values()) is rows[0]


def test_rows_name_only_facts_and_values_of_their_domain():
    for row in CALLS:
        for name, values in row.when.items():
            assert set(values) <= set(DOMAINS[row.event][name]), row


def test_every_event_about_a_call_has_facts():
    assert set(FACTS) | {ev.TurnEnded} == set(DOMAINS) == {row.event for row in CALLS}


def test_only_an_accepted_event_changes_a_status():
    for row in CALLS:
        assert row.becomes is None or row.ruling.accepted, row


def test_every_row_is_reachable():
    reached = {id(row_for(event, *facts.values())) for event in DOMAINS
               for facts in combinations(event)}
    assert [row for row in CALLS if id(row) not in reached] == []


def test_a_call_that_has_begun_stays_begun():
    moves = {(facts["status"], row_for(event, *facts.values()).becomes)
             for event in DOMAINS for facts in combinations(event)}
    for status, becomes in moves:
        if status not in NOT_BEGUN and becomes is not None:
            assert becomes in (STARTED, DOUBT, CONTRADICTED, DONE), (status, becomes)


def test_only_a_contradiction_reopens_a_finished_call():
    moves = {row.becomes for row in CALLS if DONE in row.when.get("status", CallStatus)}
    assert moves == {None, CONTRADICTED}


def test_every_status_has_a_sentence_for_errors():
    assert set(STANDS) == set(CallStatus)
