"""The view of a memory scope: order, repetitions, limits, and refusals."""

from hypothesis import assume, given, strategies as st

from foldlog.processors.memory import fold
from foldlog.processors.memory.fold import MemoryView, apply, initial, open_todos, text_of
from foldlog.schemas.value import replace
from foldlog.tests.processors.memory.memory_log import (
    ANA,
    NOON,
    SHOP,
    entries,
    folded,
    marked,
    preferred,
    retired,
    todo,
    wrote,
)

IDS = st.sampled_from([f"e{n}" for n in range(6)])
PATHS = st.sampled_from(["core.md", "decisions.md", "daily", "archive/a.md", "../x", ""])
TEXTS = st.sampled_from(["tea", "a\nb", "", "\n", "x" * 9000, "nul\0"])
EVENTS = st.one_of(
    st.builds(wrote, IDS, TEXTS, PATHS, after=st.one_of(st.none(), st.just(""), IDS)),
    st.builds(retired, IDS),
    st.builds(preferred, st.sampled_from(["tone", "tongue"]), st.sampled_from([None, "x"]), IDS),
    st.builds(todo, IDS),
    st.builds(marked, IDS, st.sampled_from(["open", "done", "dropped"]), IDS),
)
HISTORIES = st.lists(EVENTS, max_size=30)
SCOPES = st.sampled_from([ANA, SHOP])


def content_of(view: MemoryView) -> MemoryView:
    """The view with offsets, times and refusals set to zero."""
    bare = tuple(replace(e, offset=0, at=0) for e in view.entries)
    todos = tuple(replace(t, offset=0, at=0) for t in view.todos)
    return replace(view, entries=bare, todos=todos, offset=0, refused=0, why="")


@given(HISTORIES, SCOPES)
def test_law_3_a_repeated_event_counts_once(events, scope):
    twice = [event for event in events for _ in range(2)]
    assert content_of(folded(twice, scope)) == content_of(folded(events, scope))


@given(HISTORIES, SCOPES)
def test_law_3_a_repeated_history_changes_nothing(events, scope):
    view = folded(events, scope)
    assume(not view.refused)  # a refused event may be accepted once there is room
    assert content_of(folded([*events, *events], scope)) == content_of(view)


@given(HISTORIES, st.integers(0, 30), SCOPES)
def test_a_replay_over_a_view_changes_nothing(events, start, scope):
    view = folded(events, scope)
    again = view
    for entry in entries(events, scope)[start:]:
        again = apply(again, entry)
    assert again == view


@given(HISTORIES, SCOPES)
def test_invariants_of_a_view(events, scope):
    view = folded(events, scope)
    assert view.ids == tuple(e.entry_id for e in view.entries)
    assert len(set(view.ids)) == len(view.ids) and not set(view.ids) & set(view.gone)
    assert view.text_bytes == sum(len(e.text.encode()) for e in view.entries)
    assert {e.path for e in view.entries} <= {
        "core.md", "decisions.md", "daily/2026-11-21.md", "archive/a.md"
    }


def test_entries_are_in_the_requested_order():
    view = folded(
        [
            wrote("a", "a"),
            wrote("c", "c"),
            wrote("b", "b", after="a"),
            wrote("first", "first", after=""),
            wrote("lost", "lost", after="no-such-id"),
            wrote("other", "elsewhere", "decisions.md"),
            wrote("astray", "astray", after="other"),
        ]
    )
    assert text_of(view, "core.md") == "first\na\nb\nc\nlost\nastray\n"
    assert text_of(view, "decisions.md") == "elsewhere\n"


def test_S3_2_today_is_the_day_of_the_record():
    view = folded([wrote("a", "tea", "daily")])
    assert [e.path for e in view.entries] == ["daily/2026-11-21.md"]
    assert view.entries[0].at == NOON


def test_a_repeated_event_does_not_restore_a_retired_entry():
    view = folded([wrote("a", "tea"), retired("a"), wrote("a", "tea")])
    assert view.ids == () and view.refused == 0


def test_an_existing_id_with_another_text_is_refused_with_a_reason():
    view = folded([wrote("a", "tea"), wrote("a", "coffee")])
    assert text_of(view, "core.md") == "tea\n"
    assert view.refused == 1 and "another text" in view.why


def test_an_event_of_a_wrong_writer_is_refused():
    view = folded([wrote("a", "tea")], writer="models")
    assert view.ids == () and "models may not write MemoryWritten" in view.why
    assert folded([retired("a")], writer="background").refused == 1


def test_S0_8_preferences_belong_to_users_and_todos_to_projects():
    for event, wrong in ((preferred("tone", "dry", "c1"), SHOP), (todo("t1"), ANA)):
        assert folded([event], wrong).refused == 1
    assert folded([preferred("tone", "dry", "c1")]).preferences == (("tone", "dry"),)
    assert [t.todo_id for t in open_todos(folded([todo("t1")], SHOP))] == ["t1"]


def test_a_repeated_older_command_does_not_revert_a_newer_one():
    view = folded([preferred("tone", "dry", "c1"), preferred("tone", "warm", "c2"),
                   preferred("tone", "dry", "c1")])
    assert view.preferences == (("tone", "warm"),)
    view = folded([todo("t1"), marked("t1", "done", "c1"), marked("t1", "open", "c2"),
                   marked("t1", "done", "c1")], SHOP)
    assert [t.todo_id for t in open_todos(view)] == ["t1"]


def test_bad_input_a_full_scope_refuses_entries_until_one_is_retired(monkeypatch):
    monkeypatch.setattr(fold, "ENTRIES_MAX", 2)
    events = [wrote("a", "a"), wrote("b", "b"), wrote("c", "c")]
    view = folded(events)
    assert view.ids == ("a", "b") and "is full" in view.why
    assert folded([*events, retired("a"), wrote("d", "d")]).ids == ("b", "d")


def test_views_are_bounded():
    events = [wrote(f"e{n}", "x") for n in range(fold.GONE_KEPT + 50)]
    events += [retired(f"e{n}") for n in range(fold.GONE_KEPT + 50)]
    assert len(folded(events).gone) == fold.GONE_KEPT
    events = [preferred(f"p{n}", "x", f"c{n}") for n in range(fold.SEEN_KEPT + 200)]
    view = folded(events)
    assert len(view.preferences) == fold.PREFERENCES_MAX and len(view.seen) <= fold.SEEN_KEPT
    events = [todo("t0"), marked("t0", "done", "0")]
    for n in range(1, 300):
        events += [todo(f"t{n}"), marked(f"t{n}", "done", f"{n}")]
    view = folded(events, SHOP)
    assert len(view.todos) == fold.TODOS_DONE_KEPT and view.todos[-1].todo_id == "t299"
    view = folded([todo(f"t{n}") for n in range(300)], SHOP)
    assert len(view.todos) == fold.TODOS_OPEN_MAX and "are open" in view.why


def test_a_view_without_events_is_empty():
    assert initial(ANA) == MemoryView(ANA) and text_of(initial(ANA), "core.md") == ""
