"""docs/README.md lists every page; links between pages, paths of code and tests in pages exist."""

import re

import pytest

from foldlog.tests.structure.tree import ROOT, all_paths

PAGES = [path for path in all_paths() if path.endswith(".md") and path.startswith("docs/")]
PAGES += ["README.md"]
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_ROOMS = ("schemas|log|producers|processors|client|reports|web|upkeep|adapters|testing|cli|local|"
          "tests|bench|examples|deploy")
_PATH = re.compile(rf"`((?:{_ROOMS})/[\w./*-]+)`")
_TEST = re.compile(r"`(test_\w+)`")
WRITTEN = {"bench/results.json", "bench/.venv"}  # created by commands
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def _links(path: str) -> list[str]:
    found = _LINK.findall(_CODE.sub("", _text(path)))
    return [link for link in found if "://" not in link]


def _anchors(path: str) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    headings = _HEADING.findall(_text(path))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_map_lists_every_page():
    linked = {f"docs/{link}" for link in _links("docs/README.md")}
    listed = {page for page in PAGES if not page.startswith("docs/decisions/")}
    assert listed - linked - {"README.md", "docs/README.md"} == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page):
    broken = []
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        known = target.exists() and (not anchor or anchor in _anchors(
            str(target.resolve().relative_to(ROOT))
        ))
        if not known:
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_code_that_a_page_names_exists(page):
    named = set(_PATH.findall(_text(page))) - WRITTEN
    assert [path for path in sorted(named) if not list(ROOT.glob(path.rstrip("/")))] == []


def test_S1_every_test_that_a_page_names_exists():
    named = {name for page in PAGES for name in _TEST.findall(_text(page))}
    files = [path for path in all_paths() if path.startswith("tests/") and path.endswith(".py")]
    written = set(re.findall(r"^ *def (test_\w+)", "\n".join(map(_text, files)), re.MULTILINE))
    assert named and sorted(named - written) == []
