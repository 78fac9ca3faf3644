"""Rulings on background work and on adoption: each reason to ignore an event, and what counts."""

from dataclasses import replace

import pytest

from foldlog.processors.fold.rulings.background import may_adopt
from foldlog.schemas import events as ev
from foldlog.tests.laws import answers
from foldlog.tests.laws.agents import variant
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.history import History, opened

LOOK = Use("look", "{}", "a")
SAME_AGAIN, ANOTHER = "w1/2", "w2/1"


def word(ruling) -> str:
    return ruling.code or ruling.verdict


def long_session() -> History:
    """Over the soft budget in the middle of a turn: a summary and a short form are claimed."""
    s = opened(agent=variant())
    for _ in range(8):
        s.say("tell me more. " * 150)
        s.answer("more it is", read=3_000)
    s.say()
    s.answer(LOOK, read=7_000)
    s.result("9.1.0", "a row\n" * 400)
    return s.work(before=("N3",))


def claim_of(s: History, kind: str) -> ev.BackgroundStarted:
    claims = (x.entry.event for x in s.steps if isinstance(x.entry.event, ev.BackgroundStarted))
    return next(claim for claim in claims if claim.kind == kind)


def summary_of(s: History, **more) -> ev.ContextCompacted:
    body = ev.Body(inline=b'[{"type":"text","text":"so far"}]')
    made = ev.ContextCompacted(
        upto=claim_of(s, "context").upto, kept_from=8, summary=body, tokens=5, model="cheap"
    )
    return replace(made, **more)


def short_of(s: History, call: str = "9.1.0") -> ev.ResultCompacted:
    return ev.ResultCompacted(call=call, short=ev.Body(inline=b"rows"), tokens=2)


def done_of(s: History, kind: str, **more) -> ev.BackgroundDone:
    claim = claim_of(s, kind)
    return replace(answers.done(kind, claim.upto, claim.attempt), **more)


def test_both_works_run_at_once_and_a_step_is_decided_meanwhile():
    s = long_session()
    assert sorted(w.kind for w in s.views.background.works) == ["context", "result"]
    assert "N3" in s.rows()


# -- claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "tidying"}, "unsupported"),
        ({}, "duplicate"),
        ({"attempt": 3}, "duplicate"),
        ({"attempt": 2}, "superseded"),
        ({"attempt": 2, "epoch": 1_000_000}, "accepted"),
        ({"upto": 3}, "late"),
        ({"upto": 3, "attempt": 2}, "duplicate"),
        ({"kind": "resume"}, "late"),
        ({"kind": "memory"}, "late"),
    ],
)
def test_law_6_a_claim_is_of_what_is_due_or_takes_over_under_a_newer_epoch(change, said):
    s = long_session()
    assert word(s.append(replace(claim_of(s, "context"), **change), "background")) == said


def test_a_second_summary_waits_until_the_first_is_done():
    s = long_session()
    s.discharge("N3")
    other = replace(claim_of(s, "context"), upto=s.views.context.fragments[-1].offset)
    assert word(s.append(other, "background")) in ("late", "duplicate")


@pytest.mark.parametrize("kind", ["context", "result"])
def test_constraint_3_after_an_abort_nothing_is_claimed_or_taken_over(kind):
    s = long_session()
    s.cancel()
    again = replace(claim_of(s, kind), attempt=2, epoch=1_000_000)
    assert word(s.append(again, "background")) == "void"
    s.later(5_000).work(before=("B3a",))
    assert not s.turn.open
    assert word(s.append(again, "background")) == "superseded"


def test_an_interrupt_is_no_abort_and_lets_what_runs_beside_go_on():
    s = long_session()
    s.say("rather this", when_busy="interrupt")
    s.work()
    assert not any(work.stop for work in s.views.background.works)
    assert s.append(summary_of(s), "background").accepted


# -- what was made ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "accepted"),
        ({"upto": 3}, "late"),
        ({"kept_from": 0}, "stale"),
        ({"kept_from": -1}, "stale"),
        ({"kept_from": 10_000}, "stale"),
    ],
)
def test_constraint_1_a_summary_is_of_the_work_that_runs_and_ends_within(change, said):
    s = long_session()
    assert word(s.append(summary_of(s, **change), "background")) == said


def test_S3_4_a_summary_that_ends_between_a_call_and_its_result_is_stale():
    s = long_session()
    result = len(s.views.context.fragments) - 1
    assert s.views.context.fragments[result].kind == "result"
    assert word(s.append(summary_of(s, kept_from=result), "background")) == "stale"


def test_law_2_a_summary_counts_once_whoever_made_it():
    s = long_session()
    assert s.append(summary_of(s), "background").accepted
    assert word(s.append(summary_of(s, kept_from=4), "background")) == "duplicate"


@pytest.mark.parametrize(
    ("call", "said"),
    [("9.1.0", "accepted"), ("9.1.1", "late"), ("8.1.0", "late"), ("x", "late"), ("", "late")],
)
def test_constraint_2_a_short_form_is_of_a_result_that_somebody_claimed(call, said):
    s = long_session()
    assert word(s.append(short_of(s, call), "background")) == said


def test_constraint_2_a_result_has_one_short_form():
    s = long_session()
    assert s.append(short_of(s), "background").accepted
    assert word(s.append(short_of(s), "background")) == "duplicate"


def test_constraint_3_what_was_made_after_an_abort_counts_no_more():
    s = long_session()
    s.cancel()
    assert word(s.append(summary_of(s), "background")) == "void"
    assert word(s.append(short_of(s), "background")) in ("void", "late")


# -- the end of it ---------------------------------------------------------------------------------


def test_the_first_end_of_any_attempt_counts_and_the_others_do_not():
    s = long_session()
    s.take(SAME_AGAIN).work(before=("N3",))
    claim = claim_of(s, "context")
    assert [w.attempt for w in s.views.background.works] == [2, 2]
    ahead = done_of(s, "context", attempt=3)
    assert word(s.append(ahead, "background")) == "stale"
    assert s.append(done_of(s, "context", attempt=1), "background").accepted
    assert word(s.append(done_of(s, "context", attempt=2), "background")) == "duplicate"
    assert s.views.background.tried_upto == claim.upto


def test_B3_a_worker_that_leaves_hands_its_work_on_once_and_only_the_newest_attempt():
    s = long_session()
    leaving = done_of(s, "context", ok=False, released=True, why="the worker is ending")
    assert s.append(leaving, "background").accepted
    assert word(s.append(leaving, "background")) == "duplicate"
    assert "B3" in s.rows(), "whoever holds the partition takes it over at once"
    s.discharge("B3")
    assert word(s.append(leaving, "background")) == "superseded"
    assert s.append(done_of(s, "context", attempt=2), "background").accepted


def test_S0_5_what_a_worker_left_after_another_had_taken_it_over_is_paid_for():
    s = long_session()
    leaving = done_of(s, "context", ok=False, released=True, why="the worker is ending")
    s.take(SAME_AGAIN).work(before=("N3",))
    assert word(s.append(leaving, "background")) == "superseded"
    assert s.append(done_of(s, "context", attempt=2), "background").accepted
    assert [row.attempt for row in s.views.ledger.spent if row.work == "context"] == [1, 2]


def test_a_summary_that_came_to_nothing_is_tried_again_when_there_is_more_and_not_before():
    s = long_session()
    s.append(done_of(s, "context", ok=False, why="no words"), "background")
    assert "context: no words" in s.views.background.said
    again = claim_of(s, "context")
    assert word(s.append(again, "background")) == "late"
    s.answer("well", read=7_050)
    assert not any(w.kind in ("context", "resume") for w in s.views.background.works)
    s.say("tell me more. " * 200)
    s.answer("more it is", read=8_500)
    assert any(w.kind in ("context", "resume") for w in s.views.background.works)


# -- skipping --------------------------------------------------------------------------------------


def test_a_skip_is_said_once_and_of_the_newest_only():
    s = opened(agent=variant())
    s.say("tell me more. " * 150)
    s.work().complete(LOOK, read=7_000)
    ((skip, role),) = s.in_flight("B1s")
    assert word(s.append(replace(skip, upto=0), role)) == "late"
    assert s.land([(skip, role), (skip, role)]) == ["accepted", "duplicate"]
    assert "B1s" not in s.rows()


# -- adoption --------------------------------------------------------------------------------------


def adopted() -> History:
    """A session whose last step adopted a summary."""
    s = long_session()
    s.append(summary_of(s), "background")
    s.append(done_of(s, "context"), "background")
    s.discharge("N3")
    assert s.views.compaction.checkpoint is not None
    return s


def called(s: History) -> ev.LlmCalled:
    calls = [x.entry.event for x in s.steps if isinstance(x.entry.event, ev.LlmCalled)]
    return calls[-1]


@pytest.mark.parametrize(
    ("change", "may"),
    [
        ({}, True),
        ({"strategy": "full", "checkpoint": None}, True),
        ({"strategy": "sliding_window_5", "checkpoint": None}, True),
        ({"strategy": "full"}, False),
        ({"strategy": "sliding_window_0", "checkpoint": None}, False),
        ({"strategy": "whatever", "checkpoint": None}, False),
        ({"checkpoint": None}, False),
        ({"checkpoint": 1}, False),
        ({"compacted_upto": 10_000}, True),
    ],
)
def test_S1_B_a_request_names_what_is_in_force_or_ready_and_nothing_else(change, may):
    s = adopted()
    assert may_adopt(s.views, replace(called(s), **change)) is may


def test_S1_B_short_forms_that_were_adopted_stay():
    s = adopted()
    event = replace(called(s), compacted_upto=s.offset)
    assert may_adopt(s.views, event)
    view = s.views.compaction
    raised = type(view)(
        view.shorts, view.summaries, view.candidate_at, view.checkpoint_at, s.offset, 0
    )
    views = type("Views", (), {"compaction": raised})
    assert not may_adopt(views, called(s))


def test_S1_B_what_runs_beside_may_end_and_be_adopted_in_a_later_turn():
    s = long_session()
    s.answer("well", read=7_050)
    assert s.append(summary_of(s), "background").accepted
    s.append(done_of(s, "context"), "background")
    s.say("and?")
    s.work()
    assert s.views.context.request.checkpoint == s.views.compaction.checkpoint_at is not None
