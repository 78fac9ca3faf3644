"""The view `ledger`: the usage of each attempt counts once, by the classes that have separate
prices."""

import pytest

from foldlog.processors.fold.projections import ledger
from foldlog.schemas import events as ev
from foldlog.schemas.codec import Entry, decode
from foldlog.tests.kit.answers import Use, usage
from foldlog.tests.kit.history import opened
from foldlog.tests.schemas.shapes import shapes

LOOK, USED = Use("look", "{}", "a"), usage(900, 90)
STOPS = "end_turn stop_sequence max_tokens tool_use pause_turn refusal compaction"
STOPS += " model_context_window_exceeded never_seen_before"


@pytest.mark.parametrize("stop", STOPS.split())
def test_constraint_5_last_step_tokens_are_input_and_output_for_every_stop_reason(stop):
    s = opened()
    s.say("go")
    s.work()
    blocks = [LOOK] if stop == "tool_use" else ["so far"]
    assert s.complete(*blocks, stop=stop, read=70).accepted
    assert s.views.context.last_step_tokens == 70 + 1 + 2 + 3 + 10
    assert s.views.ledger.spent[-1].read_tokens == 70 + 1 + 2 + 3


def test_constraint_5_a_failed_or_stopped_attempt_is_counted_and_is_not_the_last_step():
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


def test_a_failed_attempt_has_the_model_of_its_step():
    s = opened()
    s.say("go")
    s.work()
    s.fail()
    model = s.views.context.request.model
    assert [row.model for row in s.views.ledger.spent] == [model] and model


def test_cache_writes_are_counted_by_their_lifetime():
    s = opened()
    s.say("go")
    s.answer("hi")
    (row,) = s.views.ledger.spent
    assert (row.cache_write_5m_tokens, row.cache_write_1h_tokens) == (2, 3)
    total = s.views.ledger
    assert (total.cache_write_5m_tokens, total.cache_write_1h_tokens) == (2, 3)
    assert total.cache_write_tokens == row.cache_write_tokens == 5


def end(kind="context", upto=7, attempt=1, ok=True, used=USED, earlier=()):
    event = ev.BackgroundDone(
        kind=kind, upto=upto, attempt=attempt, ok=ok, usage=used, model="last", earlier=earlier
    )
    return Entry("s1", 0, 9, 1_000, "background", event)


def test_S1_H_background_work_is_counted_once_per_attempt_and_apart_from_turns():
    view = ledger.initial()
    for entry in (end(), end(), end(attempt=2, ok=False), end(kind="memory"), end(upto=8)):
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
    assert ledger.apply(view, end(attempt=3, used=None)) == view, "no model call, no usage"


FAILED = (
    ev.Try(model="first", usage=usage(500, 50)),
    ev.Try(model="second"),
    ev.Try(model="third", usage=usage(700, 70)),
)


@pytest.mark.parametrize("last", [USED, None])
def test_S1_H_each_request_of_background_work_with_usage_is_a_row(last):
    view = ledger.apply(ledger.initial(), end(earlier=FAILED, used=last))
    rows = [(row.request, row.model, row.outcome, row.input_tokens) for row in view.spent]
    with_usage = [(1, "first", "failed", 500), (3, "third", "failed", 700)]
    assert rows == with_usage + [(4, "last", "complete", 900)] * (last is not None)
    assert view.input_tokens == sum(row[-1] for row in rows)
    assert {(row.work, row.upto, row.attempt) for row in view.spent} == {("context", 7, 1)}


def test_S0_5_a_duplicate_end_of_background_work_is_not_counted():
    once = ledger.apply(ledger.initial(), end(earlier=FAILED))
    assert ledger.apply(once, end(earlier=FAILED)) == once
    another = ledger.apply(once, end(attempt=2, earlier=FAILED))
    assert len(another.spent) == 2 * len(once.spent) == 6
    assert another.input_tokens == 2 * once.input_tokens


@pytest.mark.parametrize("shape", [s for s in shapes() if s.type == "BACKGROUND_DONE"][:3])
def test_an_end_of_an_older_version_without_its_requests_is_one_row(shape):
    event = decode(shape.value)
    view = ledger.apply(ledger.initial(), Entry("s1", 0, 9, 1_000, "background", event))
    (row,) = view.spent
    assert (row.request, row.input_tokens) == (1, event.usage.input_tokens)
