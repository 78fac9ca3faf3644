"""log/settings.py knows every FOLDLOG_ variable that code reads."""

import re

from foldlog.log.settings import HANDED, OTHER_VARIABLES, PREFIX, ROWS
from foldlog.tests.structure.tree import ROOT, all_paths

NAME = re.compile(PREFIX + r"[A-Z0-9_]*[A-Z0-9]")
TEXTS = ("docs/", "README.md", "CHANGELOG.md")
"""Texts for people, which read no variable."""

INVENTED = (
    "tests/log/test_settings_invalid.py", "tests/log/test_kafka_life.py",
    "tests/structure/test_variables.py",
)  # fmt: skip
"""Tests with parts of names."""


def named_in(path: str) -> set[str]:
    try:
        return set(NAME.findall((ROOT / path).read_text(encoding="utf-8")))
    except UnicodeDecodeError:  # not a text
        return set()


def test_the_other_variables_are_those_that_code_names():
    settings = {variable for row in ROWS.values() for variable in row.variables}
    paths = [p for p in all_paths() if not p.startswith((*TEXTS, *INVENTED, "log/settings.py"))]
    found = set().union(*map(named_in, paths)) - settings - {HANDED}
    assert found == set(OTHER_VARIABLES)
