"""Which calls a grant allows without an approval, and which it does not."""

import json

import pytest

from foldlog.processors.fold.grants import grant_text, granting

SHA = "5" * 64


def allows(globs, args, name="run_command"):
    grant = f"run_command {json.dumps(globs)}"
    return granting((grant,), name, SHA, json.dumps(args).encode()) is not None


@pytest.mark.parametrize(
    ("glob", "command"),
    [
        ("git log", "git log"),
        ("git *", "git log --oneline"),
        ("*", "ls -l"),
        ("* --dry-run", "apply all --dry-run"),
        ("cp * to *", "cp a to b"),
        ("a*b*b", "abb"),
        ("git log | head", "git log | head"),
        ("git log *", "git log v1..v2 -- a..b.txt ...x"),
        ("ls ../*", "ls ../src"),
        ("cat '..'", "cat '..'"),
    ],
)
def test_a_glob_allows(glob, command):
    assert allows({"command": glob}, {"command": command})


@pytest.mark.parametrize(
    ("glob", "command"),
    [
        ("git log", "git log "),
        ("git *", "gitx"),
        ("git *", "rm git "),
        ("* --dry-run", "apply all --dry-run=no"),
        ("a*bb*b", "abb"),
        ("aa*a", "aa"),
        *(("git *", f"git log{special}rm -rf /") for special in ";&|`$()<>\\\n\r\"'#"),
        ("git push * --dry-run", "git push origin # --dry-run"),
        ("run * --safe *", "run x ' --safe ' y"),
        ("/data/src/*", "/data/src/../../etc/shadow"),
        ("/data/src/*", "/data/src/.."),
        ("/data/.*", "/data/../etc/shadow"),
        ("/data/*./x", "/data/../x"),
        ("ls ../*", "ls ../../etc"),
        ("cat *", "cat a -o=../x"),
        ("*", "a;b"),
        ("[a-z]?", "ab"),
    ],
)
def test_a_glob_does_not_allow(glob, command):
    assert not allows({"command": glob}, {"command": command})


def test_a_grant_names_every_argument_of_the_call():
    assert allows({"command": "ls", "timeout_s": "5"}, {"command": "ls", "timeout_s": 5})
    assert not allows({"command": "ls"}, {"command": "ls", "cwd": "/"})
    assert not allows({"command": "ls", "cwd": "*"}, {"command": "ls"})
    assert not allows({"command": "ls"}, {"command": "ls"}, name="other")
    assert not allows({"n": "*"}, {"n": {"deep": 1}}), "no glob matches an object"


def test_a_rare_tool_is_matched_inside_its_envelope():
    envelope = {"name": "run_command", "arguments": {"command": "ls"}}
    assert allows({"command": "ls"}, envelope)
    assert not allows({"command": "ls"}, envelope | {"name": "other"})


@pytest.mark.parametrize("args", [b"", b"[]", b"{", b"[" * 100_000])
def test_arguments_other_than_an_object_are_allowed_only_by_their_sha256(args):
    pattern = 'run_command {"command":"*"}'
    assert granting((pattern,), "run_command", SHA, args) is None
    assert granting((pattern, f"run_command {SHA}"), "run_command", SHA, args)


def test_a_grant_has_a_description_for_people():
    assert grant_text("mail") == "every later call of mail"
    assert grant_text(f"mail {SHA}") == "later calls of mail with exactly these arguments"
    globs = grant_text('mail {"to":"a*"}')
    assert globs == "later calls of mail where to is 'a*', with no other argument"
