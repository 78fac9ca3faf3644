"""Every command of every page exists, with its options. The commands of pages that no other test
types run in one installation."""

import re
import shlex
import time

import click
import pytest

from foldlog.cli.__main__ import BY_NAME, foldlog
from foldlog.log import MemoryLog
from foldlog.schemas.topics import topics
from foldlog.tests.cli.harness import Shell
from foldlog.tests.docs.pages import ROOT, blocks
from foldlog.tests.kit.played import PARTITIONS, Played
from foldlog.tests.reports.test_replay import stored

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
_TYPED = re.compile(r"(?<![\w/.-])foldlog ((?:[^|;&>\n\\]|\\\n)*)")
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix()
               for path in (ROOT / "docs").glob("*.md"))  # fmt: skip


def typed(page: str) -> list[list[str]]:
    """The words after `foldlog` of each command of a page, without quoted texts and comments."""
    shells = (block.text for block in blocks(page) if block.language == "sh")
    return [
        found.replace("\\\n", " ").split()
        for text in shells
        for found in _TYPED.findall(_QUOTED.sub("''", text))
    ]


def unknown(words: list[str]) -> list[str]:
    """The words that no command line of foldlog understands: a command or options."""
    context = click.Context(foldlog)
    command: click.Command | None = foldlog
    known = set(context.help_option_names)
    for word in words:
        known |= {name for each in command.params for name in each.opts}
        if word.startswith("-") or not isinstance(command, click.Group):
            continue
        command = command.get_command(context, word) or command
    known |= {name for each in command.params for name in each.opts}
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    is_named = bool(BY_NAME.keys() & set(words)) or not words
    return [*(name for name in names if name not in known), *([] if is_named else words[:1])]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page):
    assert [words for words in typed(page) if unknown(words)] == []


def test_a_command_and_an_option_that_do_not_exist_are_found():
    assert unknown("--home /x send s1 --wait".split()) == []
    assert unknown("topics apply".split()) == []
    assert unknown(["sent", "s1"]) == ["sent"]
    assert unknown(["send", "s1", "--await"]) == ["--await"]


RUN = ("memory.md", "outside-tools.md", "retention.md", "snapshots.md", "blobs.md", "operation.md",
       "look-inside.md")
ELSEWHERE = {
    "foldlog worker": "a service", "foldlog gateway": "a service",
    "foldlog move": "its own tests have two logs",
    "foldlog blobs copy": "to an object store", "foldlog traces SESSION --otlp": "over the network",
    "foldlog topics reassignment": "needs brokers",
}
"""Commands that do not run here, with the reason."""
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360"
    "6060000000040001f61738550000000049454e44ae426082"
)


def lines(page: str) -> list[list[str]]:
    """The words of each command line of foldlog on a page."""
    text = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    found = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    return [words for words in found if words[:1] == ["foldlog"]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The log and the directory of one installation."""
    log = MemoryLog(topics(PARTITIONS), clock_ms=lambda: time.time_ns() // 1_000_000)
    return log, tmp_path_factory.mktemp("pages")


@pytest.fixture
def shell(installed, capsys, monkeypatch):
    """Runs commands in the installation, which has the session SESSION and its store."""
    log, directory = installed
    shell = Shell(log, directory, capsys)
    monkeypatch.chdir(directory)
    if not (directory / "screen.png").exists():
        (directory / "screen.png").write_bytes(PNG)
        shell("send SESSION hello --agent shop --message-id m1")
        played = Played(log, "SESSION")
        played.propose("I look.", ("read", {"path": "a"}))
        played.run_tool("seen")
        played.answer("It is there.")
        stored(log, shell.settings, "SESSION")
    return shell


@pytest.mark.parametrize("words", [
    pytest.param(words, id=f"{page} {' '.join(words)}") for page in RUN for words in lines(page)
    if not " ".join(words).startswith(tuple(ELSEWHERE))
])
def test_a_command_of_a_page_runs(shell, words):
    words = [{"OFFSET": "4"}.get(word, word) for word in words if word != "--wait"]
    ran = shell(" ".join(words[1:2]), *words[2:])
    problems = "PROBLEM" in ran.out and words[1] == "doctor"
    assert ran.code == (1 if problems else 0), (words, ran)
