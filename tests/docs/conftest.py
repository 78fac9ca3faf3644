"""Fixtures for the tests of pages."""

import shutil
from pathlib import Path

import pytest

from foldlog.tests.docs.pages import ROOT


@pytest.fixture
def copied(tmp_path):
    """A factory that copies a directory of examples/."""

    def copy(name: str) -> Path:
        place = tmp_path / "mine"
        shutil.copytree(ROOT / "examples" / name, place, ignore=shutil.ignore_patterns("*.sqlite3"))
        return place

    return copy
