"""The inspector over HTTP: its files, its content security policy, its errors."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from foldlog.log.partition import partition_for
from foldlog.processors.effects.models.errors import POLICY as ERRORS
from foldlog.tests.web.inspector.sessions import Place
from foldlog.web.gateway.routes.inspector import POLICY, STATIC

VENDORED = STATIC / "vendor"
MAKES_MARKUP = r"innerHTML|outerHTML|dangerously|insertAdjacent|document\.write|eval\(|Function\("
OURS = sorted(path for path in STATIC.glob("*.js"))


@pytest.fixture(scope="module", autouse=True)
def sessions(place):
    place.talk("s1", 2)
    place.talk(neighbour_of(place, "s1"), 1)


def neighbour_of(place: Place, session_id: str) -> str:
    """Another session in the same partition, which begins later."""
    count = place.settings.partitions
    wanted = partition_for(session_id, count)
    names = (f"neighbour-{number}" for number in range(99))
    return next(name for name in names if partition_for(name, count) == wanted)


def test_the_page_and_its_files_are_served_with_a_strict_policy(gateway):
    with gateway.http() as http:  # no token, because these files contain nothing of a session
        page = http.get("/")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        assert page.headers["content-security-policy"] == POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(named) > 5
        for name in named:
            file = http.get(f"/{name}")
            assert file.status_code == 200, name
            again = http.get(f"/{name}", headers={"if-none-match": file.headers["etag"]})
            assert again.status_code == 304 and not again.content


def test_the_policy_allows_only_the_gateways_own_files():
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in POLICY and "http" not in POLICY


def test_the_page_explains_errors_that_model_calls_report():
    """It named those of the provider: real failures read "The model call failed: overloaded"."""
    (table,) = re.findall(r"const ERRORS = \{(.*?)\};", (STATIC / "words.js").read_text(), re.S)
    errors = set(re.findall(r"^  (\w+):", table, re.M))
    assert "overloaded" in errors and errors <= set(ERRORS)


@pytest.mark.parametrize("name", [
    "../api.py", "%2e%2e/api.py", "..%2fapi.py", "/etc/passwd", "vendor/../../api.py", "nothing.js",
    "vendor", "",
])
def test_no_other_file_is_served(gateway, name):
    with gateway.http() as http:
        assert http.get(f"/inspector/static/{name}").status_code == 404


@pytest.mark.parametrize(("route", "status"), [
    ("moment?at=-1", 400), ("moment?at=x", 400), ("events?since=-3", 400), ("events?limit=0", 400),
    ("compare?before=1", 400), ("compare?before=-1&after=2", 400),
    ("events?since=99999", 200), ("moment?at=99999999999999", 200),
])
def test_an_invalid_query_is_refused(ana, route, status):
    response = ana.get(f"/inspector/api/sessions/s1/{route}")
    assert response.status_code == status, response.text
    assert status == 200 or response.json()["code"] == "invalid"


def test_a_moment_before_the_session_is_not_found(place, ana):
    path = f"/inspector/api/sessions/{neighbour_of(place, 's1')}/moment?at=0"
    response = ana.get(path)
    assert (response.status_code, response.json()["code"]) == (404, "unknown_session")
    assert "begins at offset" in response.json()["detail"]


def test_about_names_the_user_and_the_features(ana):
    about = ana.get("/inspector/api/about").json()
    assert about["user"] == "ana"
    paths = ana.get("/openapi.json").json()["paths"]
    assert about["can"]["fork"] == ("/v1/sessions/{session_id}/fork" in paths)
    assert not [path for path in paths if "inspector" in path]


def test_the_vendored_files_are_unchanged():
    listed = (VENDORED / "LICENSES.txt").read_text()
    for path in sorted(VENDORED.iterdir()):
        if path.suffix in (".js", ".css"):
            assert path.name in listed and sha256(path.read_bytes()).hexdigest() in listed, path
        else:
            assert path.name.startswith("LICENSE"), path
    for name in re.findall(r"LICENSE-\w+", listed):
        assert "ermission" in (VENDORED / name).read_text(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_our_modules_never_turn_text_into_markup(path: Path):
    text = path.read_text()
    lines = text.splitlines()
    assert lines[0].startswith("//")
    assert max(map(len, lines)) <= 120
    assert not re.search(MAKES_MARKUP, text)
    assert not re.search(r"https?://", text)
    assert not re.search(r"href=\$\{(?!`#/)", text), "no link comes from content"


def test_no_rule_selects_the_sibling_of_any_element():
    """With one, the browser restyles all elements of a list whose first element changes."""
    for path in STATIC.glob("*.css"):
        assert not re.search(r"\* *[+~]|[+~] *\*", path.read_text()), path.name


def test_the_page_has_no_inline_script_or_style():
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", page)
