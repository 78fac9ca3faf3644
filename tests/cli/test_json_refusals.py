"""With --json every refusal of every command is one JSON object on stdout, and the exit code is
that of the same command without it."""

import json

import pytest

from foldlog.cli.__main__ import COMMANDS, code_of, foldlog, main
from foldlog.cli.edge import Edge
from foldlog.consumers.branching import CanNotFork
from foldlog.log import LogUnreachable
from foldlog.log.errors import Refused
from foldlog.producers.checks import Invalid
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.consumers.played import settings_in

# Of each command that has --json: arguments that it takes, and (arguments, exit code, code) that
# it refuses. Commands without such arguments have nothing to refuse but a usage or a log.
NOBODY, USAGE = (1, "unknown_session"), (2, "usage")
COMMANDS_WITH_JSON = {
    "send": ("s1 hi", [("a/b hi", 1, "invalid_id"), ("s1", *USAGE)]),
    "open": ("s1", [("a/b", 1, "invalid_id")]),
    "cancel": ("s1", [("nobody", *NOBODY), ("s1", 1, "nothing_to_cancel")]),
    "terminate": ("s1", [("nobody", *NOBODY)]),
    "fork": ("s1", [("nobody", *NOBODY), ("s1 --at 99", 1, "beyond_the_end")]),
    "regenerate": ("s1", [("nobody", *NOBODY), ("s1 7", 1, "unknown_turn")]),
    "phase": ("s1 publish", [("nobody publish", *NOBODY), ("s1 publish", 1, "invalid_transition")]),
    "lock": ("s1 p1", [("nobody p1", *NOBODY)]),
    "approve": ("s1 1.1.0", [("s1 1.1.0", 1, "unknown_call"), ("nobody 1.1.0", 1, "unknown_call")]),
    "deny": ("s1 1.1.0", [("s1 1.1.0", 1, "unknown_call")]),
    "resolve": ("s1 1.1.0 --did-not-happen", [
        ("s1 1.1.0 --did-not-happen", 1, "unknown_call"), ("s1 1.1.0", *USAGE),
    ]),
    "skip": ("s1", [("nobody", *NOBODY), ("s1", 1, "not_frozen")]),
    "sessions": ("", []),
    "show": ("s1", [("nobody", *NOBODY), ("s1 --at x", *USAGE)]),
    "tail": ("s1", [("s1 --bundle nowhere", 1, "bad_bundle")]),
    "search": ("word", [("!!", *USAGE)]),
    "memory": ("", [("--user a/b", 1, "invalid_id"), ("--user a --project b", *USAGE)]),
    "context show": ("s1", [("nobody", *NOBODY)]),
    "context diff": ("s1", [("nobody", *NOBODY)]),
    "request": ("s1 1.1", [("nobody 1.1", *NOBODY), ("s1 9.9", 1, "unknown_step")]),
    "wake": ("s1", [("nobody", *NOBODY)]),
    "replay": ("", [
        ("--session nobody", *NOBODY), ("--verify", 1, "refused"), ("--verify --to 3", *USAGE),
    ]),
    "sql": ("query", [("nonsense", 2, "bad_query"), ("", *USAGE)]),
    "export": ("--format jsonl -o {out}", [("nobody --format jsonl -o {out}", *NOBODY)]),
    "traces": ("s1", [("nobody", *NOBODY)]),
    "doctor": ("", []),
    "up": ("", []),
    "down": ("", []),
    "status": ("", []),
    "topics apply": ("", []),
    "move": ("--to-prefix v2-", [("", *USAGE), ("--to-prefix v2-", 3, "log_unreachable")]),
}
FAILURES = ("bad_bundle", "bad_query", "log_unreachable")
NEED_NO_LOG = ("up", "down", "status")  # they start, stop or look at the broker


@pytest.fixture
def shell(tmp_path, capsys):
    made = make_shell(tmp_path, capsys)
    assert made("open s1").code == 0
    return made


def all_commands():
    """(words, command) of each command and each of a group."""
    for named in COMMANDS:
        command = foldlog.get_command(None, named.name)
        parts = getattr(command, "commands", None)
        if parts is None:
            yield named.name, command
        else:
            yield from ((f"{named.name} {part}", each) for part, each in parts.items())


def test_every_command_with_json_is_in_the_table():
    with_json = {
        words for words, command in all_commands()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert set(COMMANDS_WITH_JSON) == with_json


REFUSED = [
    (f"{name} {arguments}".rstrip(), exit_code, code)
    for name, (_, rows) in COMMANDS_WITH_JSON.items()
    for arguments, exit_code, code in rows
]


@pytest.mark.parametrize(("words", "exit_code", "code"), REFUSED)
def test_what_is_refused_is_one_object(shell, tmp_path, words, exit_code, code):
    words = words.format(out=tmp_path / "out")
    people = shell(words)
    assert people.code == exit_code and people.err, words
    machine = shell(f"{words} --json")
    (told,) = machine.json
    assert (machine.code, told["code"]) == (exit_code, code)
    assert told["verdict"] == ("failed" if code in FAILURES else "refused")
    assert told["detail"] and told["detail"].splitlines()[0] in machine.err
    assert machine.err == people.err, "the reason is on stderr as before"


@pytest.mark.parametrize("name", COMMANDS_WITH_JSON)
def test_an_option_that_is_none_is_one_object(shell, name):
    wrong = shell(f"{name} --json --nonsense")
    (told,) = wrong.json
    assert (wrong.code, told["verdict"], told["code"]) == (2, "refused", "usage")
    assert "--nonsense" in told["detail"]


@pytest.mark.parametrize("name", sorted(set(COMMANDS_WITH_JSON) - set(NEED_NO_LOG)))
def test_a_log_that_is_away_is_one_object(tmp_path, capsys, name):
    words = f"{name} {COMMANDS_WITH_JSON[name][0]} --json".format(out=tmp_path / "out").split()
    assert main(words, Edge(settings_in(tmp_path))) == 3
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["verdict"], told["code"]) == ("failed", "log_unreachable")
    assert "foldlog up" in told["detail"]


def test_a_wrong_setting_is_one_object(tmp_path, capsys, monkeypatch):
    """Settings are read before the command sees its options."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foldlog.toml").write_text("partitons = 3\n")
    assert main(["sessions", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["code"] == "settings_error" and "partitons" in told["detail"]


def test_a_word_behind_two_dashes_asks_for_no_json(shell):
    refused = shell("cancel -- --json")
    assert (refused.code, refused.out) == (1, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), "refused"),
        (LogUnreachable("away"), "log_unreachable"),
        (Invalid("too_large", "no"), "too_large"),
        (CanNotFork("not_frozen", "no"), "not_frozen"),
        (FileNotFoundError("x"), "file_not_found_error"),
    ],
)
def test_the_code_of_an_error(error, code):
    assert code_of(error) == code
