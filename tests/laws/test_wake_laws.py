"""The laws of WAKE: its rows do not overlap, and the fold accepts every event that they require."""

from collections import Counter
from functools import partial
from itertools import product

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import wake
from foldlog.processors.wake.table import BY_ID, BY_LANE, DOMAINS, WAKE, match
from foldlog.schemas import events as ev
from foldlog.schemas.events import BY_NAME
from foldlog.tests.kit.history import ROLES
from foldlog.tests.kit.law9 import WAIT, check_law_9
from foldlog.tests.kit.recorded_actions import RecordedActions
from foldlog.tests.laws.law import LAW, SEEDS, histories, history_of, law
from foldlog.tests.laws.test_fold_laws import parts, through_the_store

# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", DOMAINS)
def test_law_4_at_most_one_row_of_a_lane_matches_any_combination_of_facts(lane):
    names, reached = list(DOMAINS[lane]), set()
    for values in product(*DOMAINS[lane].values()):
        facts = dict(zip(names, values, strict=True))
        rows = [
            row.id
            for row in BY_LANE[lane]
            if all(facts[name] in allowed for name, allowed in row.when.items())
        ]
        assert len(rows) <= 1, (facts, rows)
        found = match(lane, facts)
        assert (found.id if found else None) == (rows[0] if rows else None)
        reached.update(rows)
    assert reached == {row.id for row in BY_LANE[lane]}, "a row that no facts match"


def test_the_table_names_only_facts_and_values_that_exist():
    for row in WAKE:
        for name, values in row.when.items():
            assert set(values) <= set(DOMAINS[row.lane][name]), (row.id, name)
        assert row.why and row.role in ROLES
        if row.owed not in ("begin", "abort", WAIT):
            assert row.role in BY_NAME[row.owed].writers, row.id
    assert len(BY_ID) == len(WAKE)


def test_a_halted_session_owes_only_answers_and_questions_about_doubts():
    for row in WAKE:
        gates = row.when.get("gate", ("live", "halted"))
        assert gates == ("live",) or row.owed in ("REFUSED", "HUMAN_NEEDED") or (
            row.when["status"] == ("doubt",)
        ), row.id


# -- law 9 -----------------------------------------------------------------------------------------


@LAW
@given(histories(), st.integers(0, 10_000))
def test_law_9_what_wake_owes_is_accepted_at_that_view_and_discharges_its_row(history, number):
    if history.steps:
        check_law_9(history, history.steps[number % len(history.steps)], Counter())
        check_law_9(history, history.steps[-1], Counter())


def test_law_9_holds_at_views_of_all_long_histories_which_reach_most_rows():
    rows: Counter = Counter()
    for seed in range(SEEDS):
        history = history_of(seed)
        for step in history.steps[seed % 5 :: 5]:
            check_law_9(history, step, rows)
    never = set(BY_ID) - set(rows)  # each row has its own history in test_wake_rows.py
    assert len(never) <= 6, sorted(never)


# -- wake changes nothing --------------------------------------------------------------------------


@law(forged=True)
def test_waking_twice_is_waking_once(history):
    for step in history.steps[-5:]:
        before = parts(step.views)
        rules = rules_of(history.agent)
        first = wake(step.views, step.holders, step.at, rules)
        assert wake(step.views, step.holders, step.at, rules) == first
        assert parts(step.views) == before
        subjects = [(owed.lane, owed.subject) for owed in first]
        assert len(set(subjects)) == len(subjects), "one row per lane and subject"


@law()
def test_an_event_in_flight_is_not_written_again(history):
    for step in history.steps[-3:]:
        for owed in wake(step.views, step.holders, step.at, rules_of(history.agent)):
            holder = step.holders.holder(owed.role)
            if holder is None or owed.owed == WAIT:
                continue
            worker = RecordedActions(holder.owner, history.blobs, partial(int, step.at))
            place = (step.views, step.holders, owed, history.agent, step.at)
            assert any(worker.discharge(*place)) or owed.row in ("T6", "T8")
            second = worker.discharge(*place)
            assert not (second.written or second.begun or second.reported), owed


@LAW
@given(histories(), st.integers(0, 10_000))
def test_S2_6_a_worker_that_has_only_the_store_decides_the_same(history, number):
    if not history.steps:
        return
    step = history.steps[number % len(history.steps)]
    stored = through_the_store(step.views)
    rules = rules_of(history.agent)
    owed = wake(step.views, step.holders, step.at, rules)
    assert wake(stored, step.holders, step.at, rules) == owed
    for each in owed:
        holder = step.holders.holder(each.role)
        if holder is None or each.owed == WAIT:
            continue
        done = [
            RecordedActions(holder.owner, history.blobs, partial(int, step.at)).discharge(
                views, step.holders, each, history.agent, step.at
            )
            for views in (step.views, stored)
        ]
        assert done[0].written == done[1].written and done[0].reported == done[1].reported


@law()
def test_a_session_of_an_unknown_agent_owes_only_answers_and_the_end_of_an_aborted_turn(history):
    grace = rules_of(history.agent).limits.grace_ms
    for step in history.steps:
        closing = step.views.turn.closing
        found = wake(step.views, step.holders, step.at, None)
        assert all(one.owed in ("REFUSED", "HUMAN_NEEDED") or one.lane == "C" for one in found)
        if closing is not None and step.views.frozen is None:
            later = wake(step.views, step.holders, closing.since + grace, None)
            assert [one.owed for one in later if one.lane == "C"] == ["TURN_ENDED"]


@law()
def test_law_4_an_open_turn_has_an_obligation_unless_it_waits_for_a_person(history):
    for step in history.steps:
        turn = step.views.turn
        waits_for_person = any(call.status == "doubt" and call.told for call in turn.calls)
        if turn.open and not waits_for_person:
            assert wake(step.views, step.holders, step.at, rules_of(history.agent)), step.entry


def test_a_gen_start_belongs_to_the_decision_it_was_made_for():
    assert {"called", "epoch", "deadline"} <= set(ev.GenStart.__dataclass_fields__)
