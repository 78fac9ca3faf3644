"""Memory as a directory of files: round trips, conflicts, and files that are not memory."""

import os
import re

import pytest

from foldlog.log import Refused
from foldlog.processors.memory import fold
from foldlog.processors.memory.fold import text_of
from foldlog.tests.processors.memory.memory_log import ANA, SHOP, new_log, writer_of
from foldlog.upkeep.memory import read_memory
from foldlog.upkeep.memory_files import STATE, MemoryFiles


class Desk:
    """A log and a directory, which `sync` synchronizes."""

    def __init__(self, root):
        self.log, self.root = new_log(), root / "memory"
        self.writer = writer_of(self.log)

    def sync(self, scope=ANA, writer=True):
        files = MemoryFiles(self.log, scope, self.root, "ana")
        return files.synchronize(self.writer if writer else None)

    def remember(self, text, path="core.md"):
        return self.writer.remember(ANA, path, text)

    def file(self, path="core.md"):
        return self.root / path

    def text(self, path="core.md"):
        return self.file(path).read_text("utf-8")

    def log_text(self, path="core.md"):
        return text_of(read_memory(self.log, ANA).now, path)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_S3_2_memory_is_written_as_files_and_edits_become_events(desk):
    desk.remember("likes tea")
    desk.remember("use Avro", "decisions.md")
    desk.remember("met Bo", "daily/2026-11-21.md")
    desk.remember("old", "archive/2025/trip.md")
    report = desk.sync()
    assert report.wrote == [
        "archive/2025/trip.md", "core.md", "daily/2026-11-21.md", "decisions.md"
    ]
    desk.file().write_text("likes coffee\nlives in Oslo\n")
    report = desk.sync()
    assert report.took == {"core.md": 2} and report.conflicts == report.refused == []
    assert desk.log_text() == "likes coffee\nlives in Oslo\n"
    entries = read_memory(desk.log, ANA).now.entries
    assert {k.by_user for k in entries} == {"ana"}
    again = desk.sync()
    assert (again.wrote, again.removed, again.took) == ([], [], {})


def test_a_second_directory_gets_the_edits_of_the_first(desk, tmp_path):
    desk.remember("likes tea")
    desk.sync()
    desk.file().write_text("likes tea\nand cake\n")
    desk.sync()
    desk.root = tmp_path / "other"
    desk.sync()
    assert desk.text() == "likes tea\nand cake\n"


def test_new_files_and_deleted_files_are_edits_too(desk):
    desk.remember("likes tea")
    desk.remember("old", "archive/a.md")
    desk.sync()
    desk.file("archive/a.md").unlink()
    desk.file("archive/b.md").write_text("new\n")
    report = desk.sync()
    assert report.took == {"archive/a.md": 1, "archive/b.md": 1}
    assert desk.log_text("archive/a.md") == "" and desk.log_text("archive/b.md") == "new\n"
    assert not desk.file("archive/a.md").exists()


def test_a_file_whose_last_entry_was_retired_is_removed(desk):
    event = desk.remember("likes tea")
    desk.sync()
    desk.writer.retire(ANA, event.id)
    assert desk.sync().removed == ["core.md"]
    assert not desk.file().exists() and desk.sync().removed == []


def test_bad_input_conflicting_edits_are_both_kept_and_reported(desk):
    first = desk.remember("likes tea")
    desk.sync()
    desk.file().write_text("likes coffee\n")
    desk.remember("lives in Oslo")
    desk.writer.retire(ANA, first.id)
    desk.remember("likes cocoa")
    report = desk.sync()
    assert len(report.conflicts) == 1 and "changed here and elsewhere" in report.conflicts[0]
    assert sorted(desk.text().split("\n")) == [
        "", "likes cocoa", "likes coffee", "lives in Oslo"
    ]
    assert desk.sync().conflicts == []


def test_without_sync_an_edit_is_kept_and_reported(desk):
    desk.remember("likes tea")
    desk.sync(writer=False)
    assert desk.text() == "likes tea\n"
    desk.file().write_text("mine\n")
    desk.remember("lives in Oslo")
    report = desk.sync(writer=False)
    assert report.refused == [
        "core.md was edited and left as it is; `--sync` writes the edit to the log"
    ]
    assert desk.text() == "mine\n"
    desk.sync()
    assert desk.log_text() == desk.text() == "mine\nlives in Oslo\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"fine\n\xff\xfe", "not UTF-8 text, at byte 5"),
        (b"a\0b\n", "line 1: it has the control character"),
        (b"x" * 9_000 + b"\n", "at most 8192 are kept as one entry"),
        (b"xxxxxxx\n" * 200_000, "larger than 1048576 bytes"),
    ],
)
def test_bad_input_an_invalid_memory_file_is_left_unchanged_and_reported(desk, data, why):
    desk.remember("likes tea")
    desk.remember("use Avro", "decisions.md")
    desk.sync()
    desk.file().write_bytes(data)
    desk.file("decisions.md").write_text("use JSON\n")
    report = desk.sync()
    assert len(report.refused) == 1 and why in report.refused[0]
    assert desk.file().read_bytes() == data and desk.log_text() == "likes tea\n"
    assert desk.log_text("decisions.md") == "use JSON\n"
    # The file's base was kept: once corrected, the file is an edit of the text written last.
    desk.file().write_text("likes coffee\n")
    report = desk.sync()
    assert report.refused == report.conflicts == [] and desk.log_text() == "likes coffee\n"


def test_bad_input_links_are_not_followed(desk, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("do not read\n")
    desk.remember("likes tea")
    desk.remember("met Bo", "daily/2026-11-21.md")
    desk.root.mkdir()
    desk.file().symlink_to(secret)
    (tmp_path / "outside").mkdir()
    desk.file("daily").symlink_to(tmp_path / "outside")
    report = desk.sync()
    assert any("symbolic link" in why for why in report.refused)
    assert secret.read_text() == "do not read\n" and os.listdir(tmp_path / "outside") == []
    assert desk.log_text() == "likes tea\n" and "daily" in report.ignored


def test_files_with_other_names_are_ignored(desk):
    desk.root.mkdir()
    for name in ("notes.md", ".hidden", "core.md~"):
        desk.file(name).write_text("x\n")
    report = desk.sync()
    assert report.ignored == ["core.md~", "notes.md"] and report.took == {}
    assert desk.file("notes.md").read_text() == "x\n"


def test_a_directory_of_another_scope_is_refused_and_nothing_is_changed(desk):
    desk.remember("likes tea")
    desk.sync()
    with pytest.raises(Refused, match="has the memory of user:ana, not of project:shop"):
        desk.sync(SHOP)
    assert desk.text() == "likes tea\n"


def test_a_directory_that_lost_all_its_files_deletes_nothing(desk):
    desk.remember("likes tea")
    desk.remember("use Avro", "decisions.md")
    desk.sync()
    desk.file().unlink()
    desk.file("decisions.md").unlink()
    report = desk.sync()
    assert "No memory was deleted" in report.refused[0]
    assert desk.text() == "likes tea\n" and desk.text("decisions.md") == "use Avro\n"


def test_a_lost_or_broken_state_file_loses_nothing(desk):
    desk.remember("likes tea")
    desk.sync()
    desk.file().write_text("likes coffee\n")
    desk.file(STATE).write_text("{broken")
    with pytest.raises(Refused, match="cannot be read"):
        desk.sync()
    desk.file(STATE).unlink()
    report = desk.sync()
    assert "both kept" in report.conflicts[0]
    assert sorted(desk.text().split()) == ["coffee", "likes", "likes", "tea"]


def test_a_state_file_with_wrong_hashes_deletes_nothing(desk):
    desk.remember("likes tea")
    desk.sync()
    state = desk.file(STATE).read_text()
    desk.file(STATE).write_text(re.sub("[0-9a-f]{64}", "0" * 64, state))
    desk.file().write_text("likes coffee\n")
    assert "both kept" in desk.sync().conflicts[0]
    assert sorted(desk.text().split()) == ["coffee", "likes", "likes", "tea"]


def test_a_directory_written_from_another_log_keeps_both(desk):
    desk.remember("likes tea")
    desk.sync()
    desk.log = new_log("another")
    desk.writer = writer_of(desk.log)
    desk.remember("likes cocoa")
    report = desk.sync()
    assert len(report.conflicts) == 1
    assert sorted(desk.log_text().split("\n")) == ["", "likes cocoa", "likes tea"]


def test_law_3_a_crash_before_the_state_file_is_written_is_repaired(desk):
    desk.remember("likes tea")
    desk.sync()
    state = desk.file(STATE).read_bytes()
    desk.file().write_text("likes coffee\n\nand cake\n")
    desk.remember("lives in Oslo")
    desk.sync()
    merged = desk.text()
    for crashed_before_writing in (False, True):
        desk.file(STATE).write_bytes(state)
        if crashed_before_writing:
            desk.file().write_text("likes coffee\n\nand cake\n")
        report = desk.sync()
        assert desk.text() == desk.log_text() == merged and report.conflicts == []


def test_an_edit_refused_by_a_full_scope_stays_in_the_file(desk, monkeypatch):
    monkeypatch.setattr(fold, "ENTRIES_MAX", 1)
    desk.remember("likes tea")
    desk.sync()
    desk.file().write_text("likes tea\n\nlikes cake\n")
    report = desk.sync()
    assert "is full" in report.refused[0] and desk.text() == "likes tea\n\nlikes cake\n"


def test_an_editor_that_saves_during_the_sync_wins_over_the_rewrite(desk, monkeypatch):
    desk.remember("likes tea")
    desk.sync()
    desk.file().write_text("likes coffee\n")
    desk.remember("lives in Oslo")
    take = MemoryFiles._take

    def saved_meanwhile(self, *args):
        desk.file().write_text("likes cocoa\n")
        return take(self, *args)

    monkeypatch.setattr(MemoryFiles, "_take", saved_meanwhile)
    report = desk.sync()
    assert "changed by somebody else" in report.refused[0] and desk.text() == "likes cocoa\n"
    monkeypatch.undo()
    desk.sync()
    assert "likes cocoa" in desk.text() and "lives in Oslo" in desk.text()


def test_memory_is_read_as_of_an_offset(desk):
    for text in ("one", "two", "three"):
        last = desk.remember(text)
    found = read_memory(desk.log, ANA, at={-1, last.offset - 1, last.offset, 99})
    assert text_of(found.then[-1], "core.md") == "" and 99 not in found.then
    assert text_of(found.then[last.offset - 1], "core.md") == "one\ntwo\n"
    assert found.then[last.offset] == found.now
    assert text_of(read_memory(desk.log, ANA, upto=last.offset - 2).now, "core.md") == "one\n"
