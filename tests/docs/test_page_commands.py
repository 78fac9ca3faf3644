"""Every command of every page exists, with its options; other tests type the pages."""

import re

import click
import pytest

from foldlog.cli.__main__ import BY_NAME, foldlog
from foldlog.tests.docs.pages import ROOT, blocks

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
