"""Edited files: what comes back as events is what the file says, and nothing written is lost."""

import pytest
from hypothesis import given, strategies as st

from foldlog.processors.memory.files import FileRefused, edits_of, lines_in, paragraphs
from foldlog.processors.memory.fold import MemoryView, apply, text_of
from foldlog.schemas.codec import Entry
from foldlog.tests.processors.memory.desk import ANA, NOON, folded, retired, wrote

LINES = st.lists(st.sampled_from(["tea", "coffee", "", "# head", "- a", "- b", " "]), max_size=12)
TEXTS = st.lists(
    st.sampled_from(["tea", "coffee", "", "# head\n", "- a\n- b", "tea\n\ntea"]), max_size=7
)


def filed(texts):
    return folded([wrote(f"e{n}", text) for n, text in enumerate(texts)])


def take(view: MemoryView, events, times=1) -> MemoryView:
    for event in [event for event in events for _ in range(times)]:
        view = apply(view, Entry(ANA, 0, view.offset + 1, NOON, "producer", event))
    return view


def edit(text: str, base, now=None):
    return edits_of("core.md", lines_in("core.md", text.encode()), base, now or base, "ana")


def as_file(lines):
    return "".join(f"{line}\n" for line in lines)


@given(TEXTS, LINES)
def test_S3_2_whatever_a_file_is_edited_to_is_what_it_is_afterwards(texts, lines):
    base = filed(texts)
    edits = edit(as_file(lines), base)
    assert edits.conflicts == []
    view = take(base, edits.events)
    assert text_of(view, "core.md") == as_file(lines) and view.refused == 0
    assert edit(as_file(lines), view).events == []


@given(TEXTS, LINES)
def test_law_3_an_edit_that_is_taken_twice_counts_once(texts, lines):
    base = filed(texts)
    edits = edit(as_file(lines), base)
    view = take(base, edits.events)
    assert text_of(take(base, edits.events, times=2), "core.md") == text_of(view, "core.md")
    # A crash after the events were written and before the new base was noted:
    assert edit(as_file(lines), base).events == edits.events
    again = take(view, edit(as_file(lines), base, view).events)
    assert text_of(again, "core.md") == text_of(view, "core.md")


@given(TEXTS, LINES, TEXTS)
def test_what_was_written_elsewhere_meanwhile_is_never_lost(texts, lines, theirs):
    base = filed(texts)
    now = take(base, [wrote(f"t{n}", f"theirs {n} {text}") for n, text in enumerate(theirs)])
    view = take(now, edit(as_file(lines), base, now).events)
    held = [kept.text for kept in view.entries]
    assert [t for t in held if t.startswith("theirs")] == [
        f"theirs {n} {text}" for n, text in enumerate(theirs)
    ]
    mine = text_of(view, "core.md").split("\n")
    assert all(line in mine for line in lines)


@given(st.lists(st.sampled_from(["a", "", " ", "x" * 5_000, "y" * 8_000]), max_size=20))
def test_paragraphs_are_the_lines_again_and_none_is_too_long(lines):
    texts = paragraphs(lines)
    assert as_file(texts) == as_file(lines)
    assert all(len(text.encode()) <= 8 * 1024 for text in texts)


def test_only_the_paragraph_that_was_edited_is_written_anew():
    base = filed(["# Ana\n", "likes tea", "lives in Oslo"])
    edits = edit("# Ana\n\nlikes coffee\nlives in Oslo\n", base)
    assert [(type(e).__name__, getattr(e, "text", "")) for e in edits.events] == [
        ("MemoryWritten", "likes coffee"), ("MemoryRetired", "")
    ]
    view = take(base, edits.events)
    assert view.ids[0] == "e0" and view.ids[2] == "e2"


def test_a_line_that_was_deleted_can_be_written_again_by_hand():
    base = filed(["tea", "coffee"])
    gone = take(base, edit("coffee\n", base).events)
    back = take(gone, edit("tea\ncoffee\n", gone).events)
    again = take(back, edit("coffee\n", back).events)
    assert text_of(take(again, edit("tea\ncoffee\n", again).events), "core.md") == "tea\ncoffee\n"


def test_bad_input_a_line_changed_here_and_elsewhere_is_a_conflict_and_both_are_kept():
    base = filed(["likes tea", "lives in Oslo"])
    now = take(base, [wrote("n", "likes cocoa", after="e0"), retired("e0")])
    edits = edit("likes coffee\nlives in Oslo\n", base, now)
    assert len(edits.conflicts) == 1 and "'likes tea' was changed here and elsewhere" in (
        edits.conflicts[0]
    )
    text = text_of(take(now, edits.events), "core.md")
    assert sorted(text.split("\n")) == ["", "likes cocoa", "likes coffee", "lives in Oslo"]


def test_a_line_added_here_and_elsewhere_is_there_once():
    base = filed(["likes tea"])
    now = take(base, [wrote("n", "lives in Oslo")])
    assert edit("likes tea\nlives in Oslo\n", base, now) == ([], [])


def test_a_line_deleted_here_and_elsewhere_is_no_conflict():
    base = filed(["likes tea", "lives in Oslo"])
    now = take(base, [retired("e0")])
    edits = edit("lives in Oslo\n", base, now)
    assert edits == ([], [])


def test_a_file_of_which_nobody_knows_what_it_was_deletes_nothing():
    now = filed(["likes tea", "lives in Oslo"])
    edits = edit("likes coffee\nlives in Oslo\n", None, now)
    assert "both kept" in edits.conflicts[0]
    text = text_of(take(now, edits.events), "core.md")
    assert text == "likes coffee\nlikes tea\nlives in Oslo\n"
    assert edit(text, None, take(now, edits.events)) == ([], [])


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
def test_bad_input_a_file_that_can_not_be_memory_is_refused_with_the_reason(path, data, why):
    with pytest.raises(FileRefused, match=why):
        lines_in(path, data)


def test_lines_end_as_on_any_system():
    assert lines_in("core.md", b"\xef\xbb\xbfa\r\nb\r\n") == ["a", "b"]
    assert lines_in("core.md", b"a\n\nb") == ["a", "", "b"] and lines_in("core.md", b"") == []
