"""C: what is another's is answered, by every route, as what does not exist; names are one's own."""

import re

import pytest
from fastapi.routing import APIRoute

from foldlog.consumers.gateway import app
from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.names import own_id
from foldlog.schemas.ids import ID_CHARS_MAX, is_id
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.inspector.sessions import Place, asking

SECRET = "s" * 40
TEXT = {"content-type": "text/plain"}
SAID = {"id": "m1", "role": "user"}
QUERY = "?before=0&after=9&offset=-1"
NAMED = ("{session_id}", "{name}")

BODIES = {
    "/decide": {"decision": "allow"},
    "/resolve": {"outcome": "happened"},
    "/phase": {"trigger": "start_build"},
    "/project": {"project_id": "p"},
    "/approvals": {"approvals": [{"id": "1.1.0:x", "approved": True}]},
}
OPENS = {("POST", "/v1/sessions/{session_id}/messages"), ("PUT", "/v1/stream/{name}")}
"""What begins a session: of a name that is another's, as of a new one."""

BY_BODY = [
    ("/agui", lambda s: {"threadId": s, "messages": []}),
    ("/agui/connect", lambda s: {"threadId": s, "messages": []}),
    ("/agui", lambda s: {"threadId": s, "messages": [],
                         "resume": [{"interruptId": "1.1.0", "status": "cancelled"}]}),
    ("/api/chat", lambda s: {"id": s, "messages": [], "trigger": "regenerate-message"}),
    ("/api/chat", lambda s: {"id": s, "messages": [{
        "id": "a", "role": "assistant", "parts": [
            {"type": "dynamic-tool", "state": "approval-responded",
             "approval": {"id": "1.1.0:x", "approved": True}}]}]}),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def running(place):
    with served(place.log, place.settings, place.settings.home / "gateway", secret=SECRET) as it:
        yield it


@pytest.fixture(scope="module")
def bob(running):
    with running.http(token_for("bob", SECRET)) as http:
        yield http


@pytest.fixture(scope="module")
def ana(running):
    with running.http(token_for("ana", SECRET)) as http:
        yield http


@pytest.fixture(scope="module")
def taken(place, ana):
    """Ids that are Ana's: of a session of the command line, of what she opened here, and streams.
    """
    asking(place, "raw")
    ana.post("/v1/sessions/talk/messages", json={"text": "secret"}).raise_for_status()
    ana.put("/v1/stream/notes", headers=TEXT, content=b"secret").raise_for_status()
    return ("raw", "talk", "notes", own_id("ana", "talk"))


def routes(gateway):
    """(method, path) of every route that names a session in its path."""
    found = []
    for make in app.ROUTERS:
        for route in make(gateway).routes:
            assert isinstance(route, APIRoute)
            if any(name in route.path for name in NAMED) and "static" not in route.path:
                found += [(method, route.path) for method in sorted(route.methods)]
    return found


def asked(http, method, path, name):
    url = path
    for word in NAMED:
        url = url.replace(word, name)
    url = url.replace("{call}", "1.1.0").replace("{sha256}", "0" * 64) + QUERY
    body = next((b for end, b in BODIES.items() if path.endswith(end)), {})
    if path.startswith("/v1/stream"):
        return http.request(method, url, content=b"x" if method == "POST" else b"", headers=TEXT)
    return http.request(method, url, json=None if method in ("GET", "HEAD") else body)


def told(answer, name):
    """An answer without the name that was asked for, the hour and what counts up."""
    text = answer.text.replace(name, "NAME")
    headers = {k: v.replace(name, "NAME") for k, v in answer.headers.items()
               if k not in ("date", "content-length")}
    return answer.status_code, text, headers


def test_C_no_route_tells_what_is_anothers_from_what_does_not_exist(running, bob, taken):
    every = routes(running.gateway)
    assert len(every) > 25
    for method, path in every:
        if (method, path) in OPENS:
            continue
        nothing = told(asked(bob, method, path, "nobody"), "nobody")
        assert nothing[0] in (404, 204, 200), (method, path, nothing)
        for name in taken:
            assert told(asked(bob, method, path, name), name) == nothing, (method, path, name)
    for path, body in BY_BODY:
        nothing = told(bob.post(path, json=body("nobody")), "nobody")
        for name in taken:
            assert told(bob.post(path, json=body(name)), name) == nothing, (path, name)
    for path in ("/cancel?session_id=", ):
        nothing = told(bob.post(path + "nobody"), "nobody")
        assert nothing[0] == 404
        assert all(told(bob.post(path + name), name) == nothing for name in taken)


def test_C_a_name_that_another_has_is_free_and_what_is_said_there_is_ones_own(
    place, running, ana, bob, taken
):
    for name in (*taken, "free"):
        said = bob.post(f"/v1/sessions/{name}/messages", json={"text": f"bob at {name}"})
        assert said.status_code == 200, said.text
        made = said.json()["session_id"]
        assert made == own_id("bob", name) and is_id(made)
        for known_as in (name, made):
            shown = bob.get(f"/v1/sessions/{known_as}/transcript").text
            assert f"bob at {name}" in shown and "secret" not in shown
    assert "bob" not in ana.get("/v1/sessions/talk/transcript").text
    for name in ("raw", "talk", own_id("ana", "talk")):
        assert ana.get(f"/v1/sessions/{name}").json()["state"]["user_id"] == "ana"
    put = [bob.put(f"/v1/stream/{name}", headers=TEXT).status_code for name in ("notes-2", "none")]
    assert put == [201, 201]
    opened = [bob.post("/v1/sessions", json={"session_id": n}) for n in ("raw", "raw", "other")]
    assert [answer.status_code for answer in opened] == [201, 201, 201]
    fork = bob.post("/v1/sessions/free/fork", json={"name": "talk-2"})
    assert fork.status_code == 201 and fork.json()["session_id"] == own_id("bob", "talk-2")


@pytest.mark.parametrize("name", ["a", "x" * ID_CHARS_MAX, "x" * (ID_CHARS_MAX - 1) + "y"])
def test_C_ids_of_names_are_ids_and_differ_by_name_and_user(name):
    made = own_id("ana", name)
    assert is_id(made) and made == own_id("ana", name)
    others = [own_id("bob", name), own_id("ana", name[:-1] + "z"), own_id("ana", made[:128])]
    assert made not in others and own_id("an", "a" + name[:-1]) != made
    assert re.fullmatch(r".*@[0-9a-f]{24}", made)


def test_nobody_waits_for_the_views_of_anothers_session(running, bob, taken, monkeypatch):
    """To load them takes as long as they are large: a clock told that the session is there."""
    tail, looked = running.gateway.tail, []
    views = tail.views
    monkeypatch.setattr(tail, "views", lambda name: looked.append(name) or views(name))
    for name in taken:
        assert bob.get(f"/v1/sessions/{name}").status_code in (200, 404)  # of his own, or none
    assert looked and not set(looked) & set(taken)
