"""Every file has documentation, and names no path or host of one machine."""

from pathlib import Path

import pytest

from foldlog.tests.structure.tidy import (
    REGISTRY_HOSTS,
    file_findings,
    place_findings,
)
from foldlog.tests.structure.tree import ROOT, Source, all_paths, demand_none, python_sources

DOC = '"""An example."""\n'


def test_files_are_documented():
    demand_none(f for source in python_sources() for f in file_findings(source))


def test_no_path_of_one_machine_and_no_registry_host():
    # A checkout directly below / or an unset home would make every path match.
    own = tuple(str(p) for p in (ROOT, Path.home()) if len(p.parts) > 2)
    findings = []
    for path in all_paths():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a golden record, not a text
        findings += place_findings(path, text, own)
    demand_none(findings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DOC, 0),
        (DOC + "#" * 100, 0),
        (DOC + "#" * 101, 1),
        ("x = 1\n", 1),
        ('""""""\n', 1),
    ],
)
def test_planted_untidy_files_are_found(text, expected):
    assert len(list(file_findings(Source("log/x.py", text)))) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("see /" + "work/main/x", 1),
        ("'/" + "root/x'", 1),
        ("cd /" + "home/me", 1),
        ("~/" + "work/x, ./" + "root/x, log/" + "home/x, {base}/" + "home/x", 0),
        ("the /root/ of a tree".replace("/root/", "/" + "root" + "/"), 0),
        ("my own place /opt/checkout/x", 1),
        ("https://" + REGISTRY_HOSTS[0] + "/simple", 1),
        ("https://files." + REGISTRY_HOSTS[1], 1),
        ("x" + REGISTRY_HOSTS[0] + " " + REGISTRY_HOSTS[0] + "x", 0),
        ("http://127.0.0.1:19092 http://example.org", 0),
    ],
)
def test_planted_places_are_found(line, expected):
    assert len(list(place_findings("README.md", line, ("/opt/checkout",)))) == expected
