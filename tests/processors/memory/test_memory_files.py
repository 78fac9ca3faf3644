"""Edited memory files: their events reproduce the file, and lose nothing that others wrote
meanwhile."""

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.memory.files import FileRefused, edits_of, lines_in, paragraphs
from foldlog.processors.memory.fold import MemoryView, apply, text_of
from foldlog.schemas.codec import Entry
from foldlog.tests.processors.memory.memory_log import ANA, NOON, folded, retired, wrote

LINES = st.lists(st.sampled_from(["tea", "coffee", "", "# head", "- a", "- b", " "]), max_size=12)
TEXTS = st.lists(
    st.sampled_from(["tea", "coffee", "", "# head\n", "- a\n- b", "tea\n\ntea"]), max_size=7
)


def view_of(texts):
    return folded([wrote(f"e{n}", text) for n, text in enumerate(texts)])


def apply_all(view: MemoryView, events, times=1) -> MemoryView:
    for event in [event for event in events for _ in range(times)]:
        view = apply(view, Entry(ANA, 0, view.offset + 1, NOON, "producer", event))
    return view


def edit(text: str, base, now=None):
    return edits_of("core.md", lines_in("core.md", text.encode()), base, now or base, "ana")


def as_file(lines):
    return "".join(f"{line}\n" for line in lines)


@given(TEXTS, LINES)
def test_S3_2_a_file_reads_as_it_was_edited(texts, lines):
    base = view_of(texts)
    edits = edit(as_file(lines), base)
    assert edits.conflicts == []
    view = apply_all(base, edits.events)
    assert text_of(view, "core.md") == as_file(lines) and view.refused == 0
    assert edit(as_file(lines), view).events == []


@given(TEXTS, LINES)
def test_law_3_an_edit_applied_twice_counts_once(texts, lines):
    base = view_of(texts)
    edits = edit(as_file(lines), base)
    view = apply_all(base, edits.events)
    assert text_of(apply_all(base, edits.events, times=2), "core.md") == text_of(view, "core.md")
    # After a crash between writing the events and recording the new base:
    assert edit(as_file(lines), base).events == edits.events
    again = apply_all(view, edit(as_file(lines), base, view).events)
    assert text_of(again, "core.md") == text_of(view, "core.md")


@given(TEXTS, LINES, TEXTS)
def test_entries_written_elsewhere_in_the_meantime_are_kept(texts, lines, theirs):
    base = view_of(texts)
    now = apply_all(base, [wrote(f"t{n}", f"theirs {n} {text}") for n, text in enumerate(theirs)])
    view = apply_all(now, edit(as_file(lines), base, now).events)
    texts_now = [kept.text for kept in view.entries]
    assert [t for t in texts_now if t.startswith("theirs")] == [
        f"theirs {n} {text}" for n, text in enumerate(theirs)
    ]
    mine = text_of(view, "core.md").split("\n")
    assert all(line in mine for line in lines)


@given(st.lists(st.sampled_from(["a", "", " ", "x" * 5_000, "y" * 8_000]), max_size=20))
def test_paragraphs_join_to_the_same_lines_and_none_is_too_long(lines):
    texts = paragraphs(lines)
    assert as_file(texts) == as_file(lines)
    assert all(len(text.encode()) <= 8 * 1024 for text in texts)


def test_only_the_edited_paragraph_is_rewritten():
    base = view_of(["# Ana\n", "likes tea", "lives in Oslo"])
    edits = edit("# Ana\n\nlikes coffee\nlives in Oslo\n", base)
    assert [(type(e).__name__, getattr(e, "text", "")) for e in edits.events] == [
        ("MemoryWritten", "likes coffee"), ("MemoryRetired", "")
    ]
    view = apply_all(base, edits.events)
    assert view.ids[0] == "e0" and view.ids[2] == "e2"


def test_a_deleted_line_can_be_added_again():
    base = view_of(["tea", "coffee"])
    without = apply_all(base, edit("coffee\n", base).events)
    restored = apply_all(without, edit("tea\ncoffee\n", without).events)
    again = apply_all(restored, edit("coffee\n", restored).events)
    last = apply_all(again, edit("tea\ncoffee\n", again).events)
    assert text_of(last, "core.md") == "tea\ncoffee\n"


def test_bad_input_a_line_changed_here_and_elsewhere_is_a_conflict_that_keeps_both():
    base = view_of(["likes tea", "lives in Oslo"])
    now = apply_all(base, [wrote("n", "likes cocoa", after="e0"), retired("e0")])
    edits = edit("likes coffee\nlives in Oslo\n", base, now)
    assert len(edits.conflicts) == 1 and "'likes tea' was changed here and elsewhere" in (
        edits.conflicts[0]
    )
    text = text_of(apply_all(now, edits.events), "core.md")
    assert sorted(text.split("\n")) == ["", "likes cocoa", "likes coffee", "lives in Oslo"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (wrote("n", "has a cat"), "likes tea\nlives in Oslo\nhas a cat\n"),
        (retired("e0"), "lives in Oslo\n"),
    ],
)
def test_the_same_edit_here_and_elsewhere_needs_no_event(event, text):
    base = view_of(["likes tea", "lives in Oslo"])
    assert edit(text, base, apply_all(base, [event])) == ([], [])


def test_a_file_without_a_known_base_deletes_nothing():
    now = view_of(["likes tea", "lives in Oslo"])
    edits = edit("likes coffee\nlives in Oslo\n", None, now)
    assert "both kept" in edits.conflicts[0]
    text = text_of(apply_all(now, edits.events), "core.md")
    assert text == "likes coffee\nlikes tea\nlives in Oslo\n"
    assert edit(text, None, apply_all(now, edits.events)) == ([], [])


@pytest.mark.parametrize(
    ("path", "data", "why"),
    [
        ("notes.md", b"x", "not a path of memory"),
        ("../core.md", b"x", "not a path of memory"),
        ("archive/.hidden", b"x", "not a path of memory"),
        ("daily/2026-13-01.md", b"x", "not a path of memory"),
        ("core.md", b"ok\n\xff", "not UTF-8 text, at byte 3"),
        ("core.md", b"a\nb\0c", "line 2: it has the control character"),
        ("core.md", b"a\rb", "line 1: it has the control character"),
        ("core.md", b"x" * 9_000, "line 1: it has 9000 bytes"),
        ("core.md", b"x\n" * 600_000, "1200000 bytes"),
        ("core.md", b"\n" * 30_000, "30000 lines"),
    ],
)
def test_bad_input_a_file_that_cannot_be_memory_is_refused_with_the_reason(path, data, why):
    with pytest.raises(FileRefused, match=why):
        lines_in(path, data)


def test_any_line_ending_is_accepted():
    assert lines_in("core.md", b"\xef\xbb\xbfa\r\nb\r\n") == ["a", "b"]
    assert lines_in("core.md", b"a\n\nb") == ["a", "", "b"] and lines_in("core.md", b"") == []
