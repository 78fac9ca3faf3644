"""The inspector over HTTP: its files, its policy, and that every answer asks whose it is."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.routes.inspector import POLICY, STATIC
from foldlog.log.partition import partition_for
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import Place

SECRET = "s" * 40
LOOKS = ("events", "lines", "moment", "request", "cost", "series", "compare?before=0&after=9")
VENDORED = STATIC / "vendor"
MAKES_MARKUP = r"innerHTML|outerHTML|dangerously|insertAdjacent|document\.write|eval\(|Function\("
OURS = sorted(path for path in STATIC.glob("*.js"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("place"))
    made.talk("s1", 2)
    made.talk(beside(made, "s1"), 1)
    return made


def beside(place: Place, session_id: str) -> str:
    """Another session of the same partition: it begins behind that one."""
    count = place.settings.partitions
    wanted = partition_for(session_id, count)
    names = (f"beside-{number}" for number in range(99))
    return next(name for name in names if partition_for(name, count) == wanted)


@pytest.fixture(scope="module")
def running(place):
    with served(place.log, place.settings, place.settings.home / "gateway", secret=SECRET) as it:
        yield it


@pytest.fixture
def http(running):
    with running.http(token_for("ana", SECRET)) as client:
        yield client


def test_the_page_and_its_files_are_served_with_a_strict_policy(running):
    with running.http() as http:  # no token: there is nothing of a session in them
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


def test_the_policy_lets_nothing_in(running):
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in POLICY and "http" not in POLICY


@pytest.mark.parametrize("name", [
    "../api.py", "%2e%2e/api.py", "..%2fapi.py", "/etc/passwd", "vendor/../../api.py", "nothing.js",
    "vendor", "",
])
def test_no_other_file_can_be_had(running, name):
    with running.http() as http:
        assert http.get(f"/inspector/static/{name}").status_code == 404


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_asks_is_asked_whose_it_is(running, http, look):
    path = f"/inspector/api/sessions/s1/{look}"
    assert http.get(path).status_code == 200
    with running.http() as nobody, running.http(token_for("eve", SECRET)) as eve:
        assert nobody.get(path).status_code == 401
        assert (eve.get(path).status_code, eve.get(path).json()["code"]) == (404, "unknown_session")
        assert "question" not in eve.get(path).text
        assert eve.get("/inspector/api/sessions/none/" + look).status_code == 404


@pytest.mark.parametrize(("look", "status"), [
    ("moment?at=-1", 400), ("moment?at=x", 400), ("events?since=-3", 400), ("events?limit=0", 400),
    ("compare?before=1", 400), ("compare?before=-1&after=2", 400),
    ("events?since=99999", 200), ("moment?at=99999999999999", 200),
])
def test_what_is_asked_wrongly_is_said(http, look, status):
    answer = http.get(f"/inspector/api/sessions/s1/{look}")
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["code"] == "invalid"


def test_a_moment_before_the_session_is_not_found(place, http):
    path = f"/inspector/api/sessions/{beside(place, 's1')}/moment?at=0"
    answer = http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_session")
    assert "begins at offset" in answer.json()["detail"]


def test_about_says_who_looks_and_what_can_be_done(running, http):
    about = http.get("/inspector/api/about").json()
    assert about["user"] == "ana"
    paths = http.get("/openapi.json").json()["paths"]
    assert about["can"]["fork"] == ("/v1/sessions/{session_id}/fork" in paths)
    assert not [path for path in paths if "inspector" in path]


def test_the_vendored_files_are_those_of_their_packages():
    told = (VENDORED / "LICENSES.txt").read_text()
    for path in sorted(VENDORED.iterdir()):
        if path.suffix in (".js", ".css"):
            assert path.name in told and sha256(path.read_bytes()).hexdigest() in told, path
        else:
            assert path.name.startswith("LICENSE"), path
    for name in re.findall(r"LICENSE-\w+", told):
        assert "ermission" in (VENDORED / name).read_text(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_our_modules_are_small_and_never_make_markup_of_a_text(path: Path):
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= 400 and lines[0].startswith("//")
    assert max(map(len, lines)) <= 120
    assert not re.search(MAKES_MARKUP, text)
    assert not re.search(r"https?://", text)
    assert not re.search(r"href=\$\{(?!`#/)", text), "links are made by us, not by content"


def test_the_page_has_nothing_inline():
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", page)
