"""The generated tables in docs/ equal those that the code produces."""

import pytest

from foldlog.client.aio import AsyncSession
from foldlog.client.session import Session
from foldlog.docs.reference_shown import settings
from foldlog.docs.tables import GENERATORS, MARK, PAGES, ROOT, regenerated


@pytest.mark.parametrize("name", PAGES)
def test_S0_2_S0_4_generated_tables_equal_the_code(name):
    text = (ROOT / name).read_text("utf-8")
    assert regenerated(text) == text, "run `make docs`"


def test_every_table_is_on_some_page():
    pages = "".join((ROOT / name).read_text("utf-8") for name in PAGES)
    assert {found[2] for found in MARK.finditer(pages)} == set(GENERATORS)


def test_a_changed_table_is_detected():
    text = (ROOT / "docs/reference/events.md").read_text("utf-8")
    assert regenerated(text.replace("SESSION_OPENED", "SESSION_BEGUN", 1)) == regenerated(text)
    assert "SESSION_BEGUN" not in regenerated(text.replace("SESSION_OPENED", "SESSION_BEGUN", 1))


@pytest.mark.parametrize("shown", [Session, AsyncSession])
def test_every_method_of_a_session_is_documented(shown):
    page = (ROOT / "docs/reference/python.md").read_text("utf-8")
    methods = [name for name in vars(shown) if name[0] != "_" and callable(getattr(shown, name))]
    assert methods
    assert [x for x in methods if f"### {shown.__name__}.{x}\n" not in page] == []


def test_every_setting_is_documented():
    assert [row[0] for row in settings() if not row[-1]] == []
