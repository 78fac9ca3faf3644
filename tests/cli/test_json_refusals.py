"""With --json, every refusal of a command is one JSON object on stdout, with the same exit code."""

import json

import pytest

from foldlog.cli.__main__ import COMMANDS, code_of, foldlog, main
from foldlog.cli.edge import Edge
from foldlog.client.branching import CanNotFork
from foldlog.log import LogUnreachable
from foldlog.log.errors import Refused
from foldlog.producers.checks import Invalid
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import settings_in

# For each command with --json: valid arguments, and (arguments, exit code, code) that it refuses.
# A command without refused arguments refuses only a wrong option or an unreachable log.
UNKNOWN, USAGE = (1, "unknown_session"), (2, "usage")
COMMANDS_WITH_JSON = {
    "init": ("{out}", [("/dev/null/agent", 1, "refused")]),
    "send": ("s1 hi", [("a/b hi", 1, "invalid_id"), ("s1", *USAGE)]),
    "open": ("s1", [("a/b", 1, "invalid_id")]),
    "cancel": ("s1", [("s9", *UNKNOWN), ("s1", 1, "nothing_to_cancel")]),
    "terminate": ("s1", [("s9", *UNKNOWN)]),
    "fork": ("s1", [("s9", *UNKNOWN), ("s1 --at 99", 1, "beyond_the_end")]),
    "regenerate": ("s1", [("s9", *UNKNOWN), ("s1 7", 1, "unknown_turn")]),
    "rerun": ("s1 hi", [("s9 hi", *UNKNOWN), ("s1 hi --result 1.1.0", 1, "unknown_result")]),
    "phase": ("s1 publish", [("s9 publish", *UNKNOWN), ("s1 publish", 1, "invalid_transition")]),
    "lock": ("s1 p1", [("s9 p1", *UNKNOWN)]),
    "approve": ("s1 1.1.0", [("s1 1.1.0", 1, "unknown_call"), ("s9 1.1.0", 1, "unknown_call")]),
    "deny": ("s1 1.1.0", [("s1 1.1.0", 1, "unknown_call")]),
    "resolve": ("s1 1.1.0 --did-not-happen", [
        ("s1 1.1.0 --did-not-happen", 1, "unknown_call"), ("s1 1.1.0", *USAGE),
    ]),
    "skip": ("s1", [("s9", *UNKNOWN), ("s1", 1, "not_frozen")]),
    "sessions": ("", []),
    "show": ("s1", [("s9", *UNKNOWN), ("s1 --at x", *USAGE)]),
    "tail": ("s1", [("s1 --bundle nowhere", 1, "bad_bundle")]),
    "search": ("word", [("!!", *USAGE)]),
    "memory": ("", [("--user a/b", 1, "invalid_id"), ("--user a --project b", *USAGE)]),
    "context show": ("s1", [("s9", *UNKNOWN)]),
    "context diff": ("s1", [("s9", *UNKNOWN)]),
    "request": ("s1 1.1", [("s9 1.1", *UNKNOWN), ("s1 9.9", 1, "unknown_step")]),
    "wake": ("s1", [("s9", *UNKNOWN)]),
    "replay": ("", [
        ("--session s9", *UNKNOWN), ("--verify", 1, "refused"), ("--verify --to 3", *USAGE),
    ]),
    "sql": ("query", [("nonsense", 2, "bad_query"), ("", *USAGE)]),
    "export": ("--format jsonl -o {out}", [("s9 --format jsonl -o {out}", *UNKNOWN)]),
    "traces": ("s1", [("s9", *UNKNOWN)]),
    "looks": ("", []),
    "doctor": ("", []),
    "up": ("", []),
    "down": ("", []),
    "status": ("", []),
    "topics apply": ("", []),
    "snapshots list": ("", []),
    "snapshots make": ("", [("--partition -1", *USAGE)]),
    "snapshots gc": ("", []),
    "snapshots delete": ("--all", [("", *USAGE), ("--all --partition 0", *USAGE)]),
    "blobs verify": ("", []),
    "blobs gc": ("", [("--grace-days 0", *USAGE)]),
    "blobs copy": ("{out} memory://copy", [
        ("{out} memory://copy", *USAGE), ("memory://copy", *USAGE),
        ("memory://copy s3://user:password@bucket", *USAGE),
    ]),
    "retain": ("--older-than 90d", [
        ("", *USAGE), ("--older-than soon", *USAGE), ("--older-than 1d --partition 99", *USAGE),
    ]),
    "move": ("--to-prefix v2-", [("", *USAGE), ("--to-prefix v2-", 3, "log_unreachable")]),
}
FAILURES = ("bad_bundle", "bad_query", "log_unreachable")
NEED_NO_LOG = ("init", "up", "down", "status", "snapshots gc", "blobs copy")


@pytest.fixture
def shell(tmp_path, capsys):
    made = make_shell(tmp_path, capsys)
    assert made("open s1").code == 0
    return made


def all_commands():
    """Yields the (name, command) of each command; the name of a command in a group is `GROUP
    COMMAND`."""
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
def test_a_refusal_is_one_object(shell, tmp_path, words, exit_code, code):
    words = words.format(out=tmp_path / "out")
    people = shell(words)
    assert people.code == exit_code and people.err, words
    machine = shell(f"{words} --json")
    (refusal,) = machine.json
    assert (machine.code, refusal["code"]) == (exit_code, code)
    assert refusal["verdict"] == ("failed" if code in FAILURES else "refused")
    assert refusal["detail"] and refusal["detail"].splitlines()[0] in machine.err
    assert machine.err == people.err, "the reason is still on stderr"


@pytest.mark.parametrize("name", COMMANDS_WITH_JSON)
def test_an_unknown_option_is_one_object(shell, name):
    wrong = shell(f"{name} --json --nonsense")
    (refusal,) = wrong.json
    assert (wrong.code, refusal["verdict"], refusal["code"]) == (2, "refused", "usage")
    assert "--nonsense" in refusal["detail"]


@pytest.mark.parametrize("name", sorted(set(COMMANDS_WITH_JSON) - set(NEED_NO_LOG)))
def test_an_unreachable_log_is_one_object(tmp_path, capsys, name):
    words = f"{name} {COMMANDS_WITH_JSON[name][0]} --json".format(out=tmp_path / "out").split()
    assert main(words, Edge(settings_in(tmp_path))) == 3
    (failure,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (failure["verdict"], failure["code"]) == ("failed", "log_unreachable")
    assert "foldlog up" in failure["detail"]


def test_a_wrong_setting_is_one_object(tmp_path, capsys, monkeypatch):
    """The settings are read before the command sees the option --json."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foldlog.toml").write_text("partitons = 3\n")
    assert main(["sessions", "--json"]) == 2
    refusal = json.loads(capsys.readouterr().out)
    assert refusal["code"] == "settings_error" and "partitons" in refusal["detail"]


def test_json_after_two_dashes_is_an_argument(shell):
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
