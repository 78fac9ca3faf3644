"""`memory`: entries are printed, written to files, updated from edited files, and refused."""

import pytest

from foldlog.producers.memory import MemoryWriter
from foldlog.tests.cli.harness import make_shell


@pytest.fixture
def shell(tmp_path, capsys):
    return make_shell(tmp_path, capsys, threaded=True)


@pytest.fixture
def writer(shell):
    writer = MemoryWriter(shell.log.producer(), "ana")
    writer.remember("user:ana", "core.md", "likes tea \u202e and \u009b31m")
    writer.set_preference("ana", "tone", "dry")
    writer.add_todo("shop", "paint it", todo_id="t1")
    return writer


def test_memory_is_printed_without_escape_sequences(shell, writer):
    ran = shell("memory")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "== core.md", "likes tea \\u202e and \\x9b31m", "preference tone = dry"
    ]
    assert shell("memory --project shop").out == "[ ] t1 paint it\n"


def test_memory_json_has_the_source_of_each_entry(shell, writer):
    writer.remember("user:ana", "archive/a.md", "old", source=("s-1", 42))
    (data,) = shell("memory --json").json
    assert data["scope"] == "user:ana" and data["preferences"] == {"tone": "dry"}
    old = next(e for e in data["entries"] if e["path"] == "archive/a.md")
    assert (old["source_session"], old["source_offset"], old["by"]) == ("s-1", 42, "producer")


def test_an_empty_memory_prints_what_to_do(shell):
    ran = shell("memory --user bo")
    assert ran.code == 0 and ran.out == "" and "foldlog memory --sync" in ran.err


def test_S3_2_files_are_written_and_edits_of_them_synced(shell, writer, tmp_path):
    place = tmp_path / "notes"
    assert "wrote core.md" in shell(f"memory --dir {place}").out
    (place / "core.md").write_text("likes coffee\n")
    ran = shell(f"memory --dir {place}")
    assert ran.code == 1 and "core.md was edited and left as it is; `--sync` writes" in ran.err
    ran = shell(f"memory --dir {place} --sync")
    assert ran.code == 0 and "took edits from core.md: 2 events" in ran.out
    assert "likes coffee" in shell("memory").out
    (report,) = shell(f"memory --dir {place} --sync --json").json
    assert report["took"] == {} and report["wrote"] == [] and report["scope"] == "user:ana"


def test_without_a_directory_the_files_are_below_the_home_directory(shell, writer):
    shell("memory --sync")
    place = shell.settings.home / "memory" / "user-ana"
    assert (place / "core.md").exists()
    assert place.stat().st_mode & 0o77 == 0, "only its user may read it"


@pytest.mark.parametrize(
    ("lines", "chars", "why"),
    [
        (140, 5, "99 of 141 lines of core.md enter a prompt, whose limit is 100 lines"),
        (80, 400, "37 of 81 lines of core.md enter a prompt, whose limit is 15 KiB"),
        (119, 230, "64 of 120 lines of core.md enter a prompt, whose limit is 15 KiB"),
    ],
)
def test_bad_input_a_core_over_its_limit_is_kept_and_every_command_reports_it(
    shell, writer, tmp_path, lines, chars, why
):
    place = tmp_path / "notes"
    place.mkdir()
    (place / "core.md").write_text("".join(f"{n:03}{'.' * (chars - 3)}\n" for n in range(lines)))
    for flags in ("--sync", "--sync", ""):
        ran = shell(f"memory --dir {place} {flags}")
        assert ran.code == 0 and why in ran.err and "shorten them, or move the rest" in ran.err
    ran = shell("memory")
    assert f"\n{lines - 1:03}." in ran.out and why in ran.err
    assert why in shell("memory --json").json[0]["left_out"]
    assert why in shell(f"memory --dir {place} --json").json[0]["left_out"]


def test_a_core_within_its_limit_is_not_reported(shell, writer, tmp_path):
    assert shell(f"memory --dir {tmp_path / 'n'} --sync").err == shell("memory").err == ""
    assert shell("memory --json").json[0]["left_out"] == ""


def test_bad_input_a_file_that_is_not_text_is_refused_with_what_to_do(shell, writer, tmp_path):
    place = tmp_path / "notes"
    place.mkdir()
    (place / "decisions.md").write_bytes(b"\xff\xfe")
    ran = shell(f"memory --dir {place} --sync")
    assert ran.code == 1 and "is not UTF-8 text, at byte 0. Save it as UTF-8" in ran.err
    assert (place / "core.md").exists()


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("memory --user a --project b", 2, "not both"),
        ("memory --user a/b", 1, "must be 1-128 characters"),
        ("memory --project ../x --sync", 1, "must be 1-128 characters"),
    ],
)
def test_bad_input_of_the_command(shell, command, code, why):
    ran = shell(command)
    assert ran.code == code and why in ran.err


def test_a_directory_of_another_user_is_refused(shell, writer, tmp_path):
    shell(f"memory --dir {tmp_path / 'n'}")
    ran = shell(f"memory --dir {tmp_path / 'n'} --user bo")
    assert ran.code == 1 and "has the memory of user:ana" in ran.err


def test_doctor_reports_which_part_of_the_core_enters_no_prompt(shell, writer):
    checks = [row["check"] for row in shell("doctor --json").json]
    assert "memory" not in checks, "all of it enters"
    writer.remember("user:ana", "core.md", "x" * 399 + ("\n" + "x" * 399) * 19)
    writer.remember("user:ana", "core.md", "y" * 399 + ("\n" + "y" * 399) * 19)
    (row,) = [row for row in shell("doctor --json").json if row["check"] == "memory"]
    assert row["level"] == "note" and row["do"].startswith("run foldlog memory --sync")
    assert row["text"].startswith("of user:ana, 38 of 41 lines of core.md enter a prompt, whose")
    shell.log.delete_topic("memory-events")
    assert "memory-events is missing" in shell("doctor").out
