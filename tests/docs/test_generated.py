"""The generated tables in docs/ equal those that the code produces."""

import pytest

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


def test_every_setting_is_documented():
    assert [row[0] for row in settings() if not row[-1]] == []
