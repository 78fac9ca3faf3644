"""`doctor` on the context window: it lists each cause once, the most expensive first, and checks
instruction files."""

import json
from dataclasses import replace
from datetime import date

import pytest

from foldlog.client.show import fold_everything
from foldlog.log.blobs import BlobMissing
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import memory_log, opened, settings_in
from foldlog.upkeep.doctor import budget as check_budget
from foldlog.upkeep.doctor.budget import SHOWN_MAX, budget_mistakes, instruction_files

TODAY = date(2026, 11, 21)
LOG = "".join(f"2026-01-31 12:00:00 INFO request {n}\n" for n in range(400))


def nothing(ref):
    raise BlobMissing("no blob")


def talk(log, settings, name, *tools):
    """A session in which each of these tools returned a raw log."""
    sessions, played = opened(log, settings, name)
    sessions.say(name, "go", message_id="m1")
    played.propose("", *((tool, {}) for tool in tools))
    for index in range(len(tools)):
        played.invoke(index)
        played.tool_start(index)
        played.tool_result(LOG * (index + 1), index)


def findings(log, read=nothing):
    return list(budget_mistakes(fold_everything(log), read, TODAY))


def test_S3_9_doctor_names_each_culprit_once_most_expensive_first(tmp_path):
    log, settings = memory_log(), settings_in(tmp_path)
    talk(log, settings, "s1", "read")
    talk(log, settings, "s2", "read", "fetch")
    found = findings(log)
    assert [f.check for f in found] == ["budget log", "budget echo", "budget log"]
    assert found[0].text.startswith("fetch of agent shop: ")
    assert "801 lines of a raw log (session s2, call 1.1.1)" in found[0].text
    assert "read of agent shop: " in found[2].text and "and 1 more)" in found[2].text
    assert all(f.level == "note" and f.do for f in found)


def test_doctor_shows_a_culprit_where_it_is_worst(tmp_path):
    log, settings = memory_log(), settings_in(tmp_path)
    for name, tools in (("s1", ["read"]), ("s2", ["fetch", "read"]), ("s3", ["read"])):
        talk(log, settings, name, *tools)
    (found,) = [f for f in findings(log) if f.text.startswith("read") and f.check == "budget log"]
    assert "(session s2, call 1.1.1 and 2 more)" in found.text


def test_doctor_counts_the_culprits_it_does_not_show(tmp_path):
    log, settings = memory_log(), settings_in(tmp_path)
    talk(log, settings, "s1", *(f"tool{n}" for n in range(SHOWN_MAX)))
    found = findings(log)
    assert len(found) == SHOWN_MAX + 1 and "more culprits" in found[-1].text


def test_json_output_has_every_culprit(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = make_shell(tmp_path, capsys)
    names = [f"tool{n}" for n in range(SHOWN_MAX + 2)]
    talk(shell.log, shell.settings, "s1", *names)
    assert "more culprits" in shell("doctor").out
    rows = [row["text"] for row in shell("doctor --json").json if row["check"] == "budget log"]
    assert {text.partition(" ")[0] for text in rows} == set(names)
    assert not any("more culprits" in row["text"] for row in shell("doctor --json").json)


def test_doctor_reports_where_its_advice_failed_and_continues(tmp_path, monkeypatch):
    log, settings, real = memory_log(), settings_in(tmp_path), check_budget.mistakes

    def fails(views, *rest):
        if views.session_id != "s2":
            raise ArithmeticError("a rule is wrong")
        return real(views, *rest)

    monkeypatch.setattr(check_budget, "mistakes", fails)
    talk(log, settings, "s1", "read")
    (alone,) = findings(log)
    assert alone.text == "the advice on tokens failed (ArithmeticError): session s1 not checked"
    for name in ("s2", "s3"):
        talk(log, settings, name, "read")
    failed, found = findings(log)
    assert failed.level == "note" and "session s1 and 1 more not checked" in failed.text
    assert found.check == "budget log" and "(session s2, call 1.1.0)" in found.text


def test_doctor_reports_that_nothing_stands_out(tmp_path):
    (found,) = findings(memory_log())
    assert found.level == "ok"


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda f: None, None),
        (lambda f: f.write_text("rule\n"), None),
        (lambda f: f.write_bytes(b"\xff"), "UTF-8"),
        (lambda f: f.write_text("rule\n" * 9_000), "too long"),
        (lambda f: f.symlink_to("../outside"), "leads out"),
    ],
)
def test_S1_A_doctor_names_an_unusable_instruction_file(tmp_path, write, problem):
    (tmp_path / "outside").write_text("x")
    tree = tmp_path / "tree"
    tree.mkdir()
    write(tree / "FOLDLOG.md")
    *problems, last = instruction_files(settings_in(tmp_path), tree)
    assert last.level == "ok"
    if problem is None:
        assert not problems
    else:
        (found,) = problems
        assert problem in found.text and "FOLDLOG.md" in found.text and found.level == "problem"


def test_doctor_finds_the_operators_and_the_users_files(tmp_path):
    (tmp_path / "m.md").write_text("no secrets")
    (tmp_path / "FOLDLOG.md").write_text("be brief")
    named = {"managed_instructions": tmp_path / "m.md", "config_dir": tmp_path}
    settings = replace(settings_in(tmp_path), **named)
    (found,) = instruction_files(settings, tmp_path / "none")
    assert found.text == "managed m.md (4 tokens), user FOLDLOG.md (3 tokens)"
    (tmp_path / "m.md").unlink()
    missing, found = instruction_files(settings, tmp_path / "none")
    assert missing.level == "note" and "does not exist" in missing.text and "m.md" in missing.text
    assert found.level == "ok" and "user FOLDLOG.md" in found.text, "the other file is still named"


def test_S3_9_doctor_prints_findings_as_text_and_as_json(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDLOG.md").write_bytes(b"caf\xe9")
    shell = make_shell(tmp_path, capsys)
    talk(shell.log, shell.settings, "s1", "read")
    shown = shell("doctor")
    assert shown.code == 1 and "PROBLEM instructions: project instructions are not" in shown.out
    assert "note    budget log: read of agent shop" in shown.out
    rows = [row for row in shell("doctor --json").json if row["check"] == "budget log"]
    assert len(rows) == 1 and rows[0]["level"] == "note" and json.dumps(rows)
    assert (rows[0]["code"], rows[0]["mistake"]) == ("budget_mistake", "log")
