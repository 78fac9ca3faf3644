"""ledger: what was paid for, once per attempt, with what prices tell apart kept apart."""

import pytest

from foldlog.processors.fold.projections import ledger
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, decode
from foldlog.tests.laws.answers import Use, usage
from foldlog.tests.laws.history import opened
from foldlog.tests.schemas.shapes import shapes

LOOK, USED = Use("look", "{}", "a"), usage(900, 90)
STOPS = "end_turn stop_sequence max_tokens tool_use pause_turn refusal compaction"
STOPS += " model_context_window_exceeded never_seen_before"


@pytest.mark.parametrize("stop", STOPS.split())
def test_constraint_5_last_step_tokens_are_input_and_output_whatever_it_stopped_for(stop):
    s = opened()
    s.say("go")
    s.work()
    blocks = [LOOK] if stop == "tool_use" else ["so far"]
    assert s.complete(*blocks, stop=stop, read=70).accepted
    assert s.views.context.last_step_tokens == 70 + 1 + 2 + 3 + 10
    assert s.views.ledger.spent[-1].read_tokens == 70 + 1 + 2 + 3


def test_constraint_5_a_failed_or_stopped_attempt_is_paid_for_and_is_no_last_step():
    s = opened()
    s.say("go")
    s.work()
    s.complete(LOOK, read=500)
    s.work()
    s.result("1.1.0")
    s.work()
    s.fail()
    s.later(1).work()
    s.stopped("half")
    assert s.views.context.last_step_tokens == 500 + 1 + 2 + 3 + 10
    assert [row.outcome for row in s.views.ledger.spent] == ["complete", "failed", "stopped"]


def test_an_attempt_that_failed_is_of_the_model_that_the_step_asked():
    s = opened()
    s.say("go")
    s.work()
    s.fail()
    asked = s.views.context.request.model
    assert [row.model for row in s.views.ledger.spent] == [asked] and asked


def test_what_prices_tell_apart_is_kept_apart():
    s = opened()
    s.say("go")
    s.answer("hi")
    (row,) = s.views.ledger.spent
    assert (row.cache_write_5m_tokens, row.cache_write_1h_tokens) == (2, 3)
    total = s.views.ledger
    assert (total.cache_write_5m_tokens, total.cache_write_1h_tokens) == (2, 3)
    assert total.cache_write_tokens == row.cache_write_tokens == 5


def done(kind="context", upto=7, attempt=1, ok=True, used=USED, earlier=()):
    event = ev.BackgroundDone(
        kind=kind, upto=upto, attempt=attempt, ok=ok, usage=used, model="last", earlier=earlier
    )
    return Entry("s1", 0, 9, 1_000, "background", event)


def test_S1_H_background_work_is_paid_for_once_per_attempt_beside_the_turns():
    view = ledger.initial()
    for entry in (done(), done(), done(attempt=2, ok=False), done(kind="memory"), done(upto=8)):
        view = ledger.apply(view, entry)
    rows = [(row.kind, row.work, row.upto, row.attempt, row.outcome) for row in view.spent]
    assert rows == [
        ("background", "context", 7, 1, "complete"),
        ("background", "context", 7, 2, "failed"),
        ("background", "memory", 7, 1, "complete"),
        ("background", "context", 8, 1, "complete"),
    ]
    assert {(row.turn, row.step) for row in view.spent} == {(0, 0)}
    assert view.input_tokens == 4 * 900 and view.output_tokens == 4 * 90
    assert ledger.apply(view, done(attempt=3, used=None)) == view, "work without a model call"


FAILED = (
    ev.Try(model="first", usage=usage(500, 50)),
    ev.Try(model="second"),
    ev.Try(model="third", usage=usage(700, 70)),
)


@pytest.mark.parametrize("last", [USED, None])
def test_S1_H_each_request_of_background_work_is_a_row_and_one_without_usage_is_none(last):
    view = ledger.apply(ledger.initial(), done(earlier=FAILED, used=last))
    rows = [(row.request, row.model, row.outcome, row.input_tokens) for row in view.spent]
    known = [(1, "first", "failed", 500), (3, "third", "failed", 700)]
    assert rows == known + [(4, "last", "complete", 900)] * (last is not None)
    assert view.input_tokens == sum(row[-1] for row in rows)
    assert {(row.work, row.upto, row.attempt) for row in view.spent} == {("context", 7, 1)}


def test_S0_5_a_repeated_end_counts_none_of_its_requests_again():
    once = ledger.apply(ledger.initial(), done(earlier=FAILED))
    assert ledger.apply(once, done(earlier=FAILED)) == once
    another = ledger.apply(once, done(attempt=2, earlier=FAILED))
    assert len(another.spent) == 2 * len(once.spent) == 6
    assert another.input_tokens == 2 * once.input_tokens


@pytest.mark.parametrize("shape", [s for s in shapes() if s.type == "BACKGROUND_DONE"][:3])
def test_an_end_that_was_written_before_requests_were_told_apart_is_one_row(shape):
    event = decode(shape.value)
    view = ledger.apply(ledger.initial(), Entry("s1", 0, 9, 1_000, "background", event))
    (row,) = view.spent
    assert (row.request, row.input_tokens) == (1, event.usage.input_tokens)
