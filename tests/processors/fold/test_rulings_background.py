"""Rulings on background work, and on requests that adopt its results."""

from dataclasses import replace

import pytest

from foldlog.processors.fold.rulings.background import may_adopt
from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, opened
from foldlog.tests.processors.fold.histories import code

LOOK = Use("look", "{}", "a")
RESTARTED = "w1/2"  # a newer incarnation of the partition's holder


def long_session() -> History:
    """A session over the soft budget in the middle of a turn. A summary and a short form are
    claimed."""
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
    summary = ev.ContextCompacted(
        upto=claim_of(s, "context").upto, kept_from=8, summary=body, tokens=5, model="cheap"
    )
    return replace(summary, **more)


def short_of(s: History, call: str = "9.1.0") -> ev.ResultCompacted:
    return ev.ResultCompacted(call=call, short=ev.Body(inline=b"rows"), tokens=2)


def end_of(s: History, kind: str, **more) -> ev.BackgroundDone:
    claim = claim_of(s, kind)
    return replace(answers.done(kind, claim.upto, claim.attempt), **more)


def test_a_step_is_due_while_two_background_works_run():
    s = long_session()
    assert sorted(w.kind for w in s.views.background.works) == ["context", "result"]
    assert "N3" in s.rows()


# -- claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
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
def test_law_6_a_claim_is_for_due_work_or_takes_over_under_a_newer_epoch(change, expected):
    s = long_session()
    assert code(s.append(replace(claim_of(s, "context"), **change), "background")) == expected


def test_a_second_summary_is_not_claimed_before_the_first_ends():
    s = long_session()
    s.discharge("N3")
    other = replace(claim_of(s, "context"), upto=s.views.context.fragments[-1].offset)
    assert code(s.append(other, "background")) in ("late", "duplicate")


@pytest.mark.parametrize("kind", ["context", "result"])
def test_constraint_3_no_claim_or_takeover_is_accepted_after_an_abort(kind):
    s = long_session()
    s.cancel()
    takeover = replace(claim_of(s, kind), attempt=2, epoch=1_000_000)
    assert code(s.append(takeover, "background")) == "void"
    s.later(5_000).work(before=("B3a",))
    assert not s.turn.open
    assert code(s.append(takeover, "background")) == "superseded"


def test_an_interrupt_does_not_stop_background_work():
    s = long_session()
    s.say("do this", when_busy="interrupt")
    s.work()
    assert not any(work.stop for work in s.views.background.works)
    assert s.append(summary_of(s), "background").accepted


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "accepted"),
        ({"upto": 3}, "late"),
        ({"kept_from": 0}, "stale"),
        ({"kept_from": -1}, "stale"),
        ({"kept_from": 10_000}, "stale"),
    ],
)
def test_constraint_1_a_summary_is_of_running_work_and_within_the_fragments(change, expected):
    s = long_session()
    assert code(s.append(summary_of(s, **change), "background")) == expected


def test_S3_4_a_summary_that_ends_between_a_call_and_its_result_is_stale():
    s = long_session()
    result = len(s.views.context.fragments) - 1
    assert s.views.context.fragments[result].kind == "result"
    assert code(s.append(summary_of(s, kept_from=result), "background")) == "stale"


def test_law_2_a_second_summary_of_the_same_work_is_ignored():
    s = long_session()
    assert s.append(summary_of(s), "background").accepted
    assert code(s.append(summary_of(s, kept_from=4), "background")) == "duplicate"


@pytest.mark.parametrize(
    ("call", "expected"),
    [("9.1.0", "accepted"), ("9.1.1", "late"), ("8.1.0", "late"), ("x", "late"), ("", "late")],
)
def test_constraint_2_a_short_form_is_of_a_claimed_result(call, expected):
    s = long_session()
    assert code(s.append(short_of(s, call), "background")) == expected


def test_constraint_2_a_result_has_one_short_form():
    s = long_session()
    assert s.append(short_of(s), "background").accepted
    assert code(s.append(short_of(s), "background")) == "duplicate"


def test_constraint_3_results_are_ignored_after_an_abort():
    s = long_session()
    s.cancel()
    assert code(s.append(summary_of(s), "background")) == "void"
    assert code(s.append(short_of(s), "background")) in ("void", "late")


# -- ends ------------------------------------------------------------------------------------------


def test_only_the_first_end_of_any_attempt_counts():
    s = long_session()
    s.take(RESTARTED).work(before=("N3",))
    claim = claim_of(s, "context")
    assert [w.attempt for w in s.views.background.works] == [2, 2]
    unclaimed = end_of(s, "context", attempt=3)
    assert code(s.append(unclaimed, "background")) == "stale"
    assert s.append(end_of(s, "context", attempt=1), "background").accepted
    assert code(s.append(end_of(s, "context", attempt=2), "background")) == "duplicate"
    assert s.views.background.tried_upto == claim.upto


def test_B3_a_stopping_worker_releases_only_the_newest_attempt_and_once():
    s = long_session()
    released = end_of(s, "context", ok=False, released=True, why="the worker is ending")
    assert s.append(released, "background").accepted
    assert code(s.append(released, "background")) == "duplicate"
    assert "B3" in s.rows(), "taken over at once"
    s.discharge("B3")
    assert code(s.append(released, "background")) == "superseded"
    assert s.append(end_of(s, "context", attempt=2), "background").accepted


def test_S0_5_the_usage_of_a_released_attempt_counts_after_a_takeover():
    s = long_session()
    released = end_of(s, "context", ok=False, released=True, why="the worker is ending")
    s.take(RESTARTED).work(before=("N3",))
    assert code(s.append(released, "background")) == "superseded"
    assert s.append(end_of(s, "context", attempt=2), "background").accepted
    assert [row.attempt for row in s.views.ledger.spent if row.work == "context"] == [1, 2]


def test_a_failed_summary_is_tried_again_only_after_more_content():
    s = long_session()
    s.append(end_of(s, "context", ok=False, why="no words"), "background")
    assert "context: no words" in s.views.background.said
    repeated = claim_of(s, "context")
    assert code(s.append(repeated, "background")) == "late"
    s.answer("well", read=7_050)
    assert not any(w.kind in ("context", "resume") for w in s.views.background.works)
    s.say("tell me more. " * 200)
    s.answer("more it is", read=8_500)
    assert any(w.kind in ("context", "resume") for w in s.views.background.works)


# -- skips -----------------------------------------------------------------------------------------


def test_only_the_newest_skip_is_accepted_and_once():
    s = opened(agent=variant())
    s.say("tell me more. " * 150)
    s.work().complete(LOOK, read=7_000)
    ((skip, role),) = s.in_flight("B1s")
    assert code(s.append(replace(skip, upto=0), role)) == "late"
    assert s.land([(skip, role), (skip, role)]) == ["accepted", "duplicate"]
    assert "B1s" not in s.rows()


# -- adoption --------------------------------------------------------------------------------------


def adopted() -> History:
    """A session whose last step adopted a summary."""
    s = long_session()
    s.append(summary_of(s), "background")
    s.append(end_of(s, "context"), "background")
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
def test_S1_B_a_request_adopts_only_results_that_are_adopted_or_ready(change, may):
    s = adopted()
    assert may_adopt(s.views, replace(called(s), **change)) is may


def test_S1_B_adopted_short_forms_stay_adopted():
    s = adopted()
    event = replace(called(s), compacted_upto=s.offset)
    assert may_adopt(s.views, event)
    view = s.views.compaction
    raised = type(view)(
        view.shorts, view.summaries, view.candidate_at, view.checkpoint_at, s.offset, 0
    )
    views = type("Views", (), {"compaction": raised})
    assert not may_adopt(views, called(s))


def test_S1_B_a_summary_may_be_adopted_in_a_later_turn():
    s = long_session()
    s.answer("well", read=7_050)
    assert s.append(summary_of(s), "background").accepted
    s.append(end_of(s, "context"), "background")
    s.say("and?")
    s.work()
    assert s.views.context.request.checkpoint == s.views.compaction.checkpoint_at is not None
