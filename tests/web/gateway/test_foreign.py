"""C: every route treats another user's session as one that does not exist, and refuses requests
without a token; each user has separate names for sessions."""

import re

import pytest
from fastapi.routing import APIRoute

from foldlog.schemas.ids import DOTS, ID_CHARS_MAX, is_id
from foldlog.tests.web.inspector.sessions import asking
from foldlog.web.gateway import app
from foldlog.web.gateway.names import own_id

QUERY = "?before=0&after=9&offset=-1"
NAMED = ("{session_id}", "{name}")

BODIES = {
    "/decide": {"decision": "allow"},
    "/resolve": {"outcome": "happened", "report": "r"},
    "/phase": {"trigger": "start_build"},
    "/project": {"project_id": "p"},
    "/rerun": {"text": "other"},
    "/approvals": {"approvals": [{"id": "1.1.0:x", "approved": True}]},
}
OPENS = {("POST", "/v1/sessions/{session_id}/messages")}
"""The route that opens a session: for a name that another user has, as for a new one."""

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
"""Requests that name a session in their body."""


@pytest.fixture(scope="module")
def taken(place, ana):
    """Ids of Ana: a session that the command line opened, and one that she opened here."""
    asking(place, "raw")
    ana.post("/v1/sessions/talk/messages", json={"text": "secret"}).raise_for_status()
    return ("raw", "talk", own_id("ana", "talk"))


def requests_of(gateway):
    """A function (client, name) -> response for every route that names a session."""
    found = []
    for make in app.ROUTERS:
        for route in make(gateway).routes:
            assert isinstance(route, APIRoute)
            if any(name in route.path for name in NAMED) and "static" not in route.path:
                methods = {(method, route.path) for method in route.methods} - OPENS
                live = ("&live=sse", "&live=long-poll") if "stream/" in route.path else ()
                found += [(method, path, query) for method, path in sorted(methods)
                          for query in ("", *(live if method == "GET" else ()))]
    assert len(found) > 25
    by_path = [lambda http, name, r=r: send(http, *r, name) for r in found]
    by_body = [lambda http, name, p=p, b=b: http.post(p, json=b(name)) for p, b in BY_BODY]
    return [*by_path, *by_body, lambda http, name: http.post(f"/cancel?session_id={name}")]


def send(http, method, path, query, name):
    url = path
    for word in NAMED:
        url = url.replace(word, name)
    url = url.replace("{call}", "1.1.0").replace("{sha256}", "0" * 64) + QUERY + query
    body = next((b for end, b in BODIES.items() if path.endswith(end)), {})
    return http.request(method, url, json=None if method in ("GET", "HEAD") else body)


def without_name(response, name):
    """The response without the name in the request and without the date: all that it reveals."""
    headers = {k: v.replace(name, "NAME") for k, v in response.headers.items()
               if k not in ("date", "content-length")}
    return response.status_code, response.text.replace(name, "NAME"), headers


def test_C_every_route_answers_another_users_session_as_one_that_does_not_exist(
    gateway, bob, taken
):
    with gateway.http() as unauthenticated:
        for request in requests_of(gateway.gateway):
            unknown = without_name(request(bob, "nobody"), "nobody")
            assert unknown[0] in (404, 204, 200, 405), unknown
            for name in taken:
                assert without_name(request(bob, name), name) == unknown, name
            assert request(unauthenticated, "talk").status_code == 401, unknown


def test_C_a_name_that_another_user_has_is_free(gateway, ana, bob, taken):
    for name in (*taken, "free"):
        sent = bob.post(f"/v1/sessions/{name}/messages", json={"text": f"bob at {name}"})
        assert sent.status_code == 200, sent.text
        session_id = sent.json()["session_id"]
        assert session_id == own_id("bob", name) and is_id(session_id)
        for known_as in (name, session_id):
            shown = bob.get(f"/v1/sessions/{known_as}/transcript").text
            assert f"bob at {name}" in shown and "secret" not in shown
    assert "bob" not in ana.get("/v1/sessions/talk/transcript").text
    for name in ("raw", "talk", own_id("ana", "talk")):
        assert ana.get(f"/v1/sessions/{name}").json()["state"]["user_id"] == "ana"
    opened = [bob.post("/v1/sessions", json={"session_id": n}) for n in ("raw", "raw", "other")]
    assert [response.status_code for response in opened] == [201, 201, 201]
    fork = bob.post("/v1/sessions/free/fork", json={"name": "talk-2"})
    assert fork.status_code == 201 and fork.json()["session_id"] == own_id("bob", "talk-2")


@pytest.mark.parametrize("name", ["a", "x" * ID_CHARS_MAX, "x" * (ID_CHARS_MAX - 1) + "y"])
def test_C_ids_of_names_are_ids_and_differ_by_name_and_user(name):
    made = own_id("ana", name)
    assert is_id(made) and made == own_id("ana", name)
    others = [own_id("bob", name), own_id("ana", name[:-1] + "z"), own_id("ana", made[:128])]
    assert made not in others and own_id("an", "a" + name[:-1]) != made
    assert re.fullmatch(r".*@[0-9a-f]{24}", made)


def test_the_views_of_another_users_session_are_not_loaded(gateway, bob, taken, monkeypatch):
    """A large session takes longer to load, so the response time would reveal that the session
    exists."""
    tail, loaded = gateway.gateway.tail, []
    views = tail.views
    monkeypatch.setattr(tail, "views", lambda name: loaded.append(name) or views(name))
    for name in taken:
        assert bob.get(f"/v1/sessions/{name}").status_code in (200, 404)  # bob's own, or none
    assert loaded and not set(loaded) & set(taken)


@pytest.mark.parametrize("dots", DOTS)
def test_dots_are_no_name_of_a_session_in_a_path_or_a_body(ana, dots):
    """The path is sent with `%2E`, because a client removes dots from a path."""
    path = dots.replace(".", "%2E")
    opening = [
        ana.post("/v1/sessions", json={"session_id": dots}),
        ana.post(f"/v1/sessions/{path}/messages", json={"text": "hi"}),
        ana.post("/agui", json={"threadId": dots, "messages": [
            {"id": "m1", "role": "user", "content": "hi"}]}),
        ana.post("/api/chat", json={"id": dots, "trigger": "submit-message", "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}),
    ]
    for response in opening:
        assert response.status_code in (400, 404, 405, 409, 422), response.text
    ids = [row["session_id"] for row in ana.get("/v1/sessions").json()["sessions"]]
    assert not any(name.startswith(f"{dots}@") or name == dots for name in ids)
