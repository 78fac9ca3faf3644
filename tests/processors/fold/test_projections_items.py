"""The fold of items equals a plain list, for any sequence of batches, retractions and
repetitions."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.fold.projections.items import last_item, newest_first, version
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.store.views_codec import view_parts
from foldlog.schemas import events as ev
from foldlog.tests.kit.history import History, opened

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("pop"), st.just(1)),
        st.tuples(st.just("stale"), st.integers(0, 5)),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("again"), st.integers(1, 4)),
    ),
    max_size=30,
)


def added(name: str, items: list, by: str = "ana", count: int | None = None) -> ev.ItemAdded:
    content = ev.Body(inline=json.dumps(items).encode())
    number = len(items) if count is None else count
    return ev.ItemAdded(item_id=name, content=content, items=number, by_user=by)


def retracted(name: str, item_id: str, index: int, seen: int = 1) -> ev.ItemRetracted:
    return ev.ItemRetracted(
        item_id=item_id, index=index, seen=seen, command_id=name, by_user="ana"
    )


def cleared(name: str) -> ev.ItemRetracted:
    return ev.ItemRetracted(item_id="", all=True, command_id=name, by_user="ana")


def live_items(views: SessionViews) -> list:
    runs = [json.loads(b.content.inline)[:items] for b, items in newest_first(views.items)]
    return [item for run in reversed(runs) for item in run]


def play(s: History, moves: list) -> list:
    """Apply the moves to a session and to a plain list of (batch, index). Returns the list."""
    model: list[tuple[str, int]] = []
    first = len(s.records)
    for number, (move, size) in enumerate(moves):
        name, before, now = f"c{number}", s.views, version(s.views.items)
        match move:
            case "add":
                batch = [(f"c{number}", n) for n in range(size)]
                assert s.append(added(name, batch), "producer").accepted
                model += batch
            case "pop" if model:
                assert s.append(retracted(name, *model.pop(), now), "producer").accepted
            case "stale" if size < len(model) - 1:
                assert s.append(retracted(name, *model[size], now), "producer").code == "stale"
                assert s.append(retracted(name, *model[-1], now - 1), "producer").code == "stale"
                assert s.views == before
            case "clear":
                assert s.append(cleared(name), "producer").accepted
                model = []
            case "again" if size <= len(s.records) - first:
                # A duplicate record, after later ones.
                ruling = s.again(-size)
                assert ruling.code in ("duplicate", "stale") and s.views == before
        assert [tuple(item) for item in live_items(s.views)] == model
        assert s.views.items.live == len(model)
        assert last_item(s.views.items) == (model[-1] if model else None)
    return model


@given(MOVES)
def test_law_1_items_are_a_list_that_grows_and_is_cut_at_its_end(moves):
    play(opened(), moves)


@given(MOVES)
def test_law_4_items_owe_no_work_and_rewrite_no_row(moves):
    s = opened()
    for end in range(len(moves)):
        before = s.views.items
        if moves[end][0] == "add":
            s.append(added(f"n{end}", [1] * moves[end][1]), "producer")
        elif (last := last_item(before)) is not None:
            assert s.append(retracted(f"n{end}", *last, version(before)), "producer").accepted
        assert s.views.items.batches.extends(before.batches)
        assert s.views.items.retractions.extends(before.retractions)
    assert s.rows() == []


def test_a_batch_counts_once_and_its_id_is_used_once():
    s = opened()
    assert s.append(added("b1", [1, 2]), "producer").accepted
    assert s.append(added("b1", [1, 2]), "producer").code == "duplicate"
    assert s.append(added("b1", [1, 3]), "producer").code == "item_id_reused"
    assert live_items(s.views) == [1, 2]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (added("b2", [], count=0), "invalid_content"),
        (added("b2", [1], count=2), "invalid_content"),
        (added("b2", [1], count=-1), "invalid_content"),
        (added("b 2", [1]), "invalid_id"),
        (added("b2", [1], by="bob"), "not_your_session"),
        (ev.ItemAdded(item_id="b2", content=ev.Body(inline=b"{"), items=1, by_user="ana"),
         "invalid_content"),
        (ev.ItemAdded(item_id="b2", content=ev.Body(inline=b"[" * 9999), items=1, by_user="ana"),
         "invalid_content"),
        (ev.ItemAdded(item_id="b2", content=ev.Body(inline=b"1")), "not_your_session"),
        (retracted("", "b1", 0), "invalid_id"),
        (retracted("c1", "b1", 1), "stale"),
        (retracted("c1", "b9", 0), "stale"),
        (retracted("c1", "b1", 0, seen=0), "stale"),
    ],
)
def test_bad_input_leaves_the_items_as_they_are(event, code):
    s = opened()
    s.append(added("b1", [1]), "producer")
    items = s.views.items
    assert s.append(event, "producer").code == code
    assert s.views.items == items and s.views.frozen is None


def test_items_change_neither_the_context_nor_the_transcript():
    s = opened()
    before = dict(view_parts(s.views))
    s.append(added("b1", [1]), "producer")
    after = dict(view_parts(s.views))
    assert {name for name in before if before[name] != after[name]} == {"items", "turn"}
