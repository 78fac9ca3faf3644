"""C: every route treats another user's session as one that does not exist, and refuses requests
without a token; each user has separate names for sessions. An operator reads the sessions of all
users, with a record of each look, and changes none."""

import re
from collections.abc import Callable
from typing import NamedTuple

import httpx2 as httpx
import pytest
from fastapi.routing import APIRoute

from foldlog.client.follow import read_before
from foldlog.log import MemoryLog
from foldlog.producers import Sessions
from foldlog.schemas.codec import entry_of
from foldlog.schemas.enums import LookKind
from foldlog.schemas.ids import DOTS, ID_CHARS_MAX, is_id
from foldlog.schemas.looks import Look, decode_look
from foldlog.schemas.origin import TokenRole
from foldlog.schemas.topics import OPERATOR_LOOKS, SESSION_EVENTS, topics
from foldlog.tests.kit.played import PARTITIONS, settings_in
from foldlog.tests.web.gateway.served import lines_of
from foldlog.tests.web.gateway.test_operators_errors import Lossy
from foldlog.tests.web.inspector.sessions import asking, doubting, turn
from foldlog.web.gateway import app
from foldlog.web.gateway.looks import EVERY_S, Looks
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


def _approval(approval_id):
    """A message that denies a call, as the client of the AI SDK sends it."""
    part = {"type": "dynamic-tool", "state": "approval-responded",
            "approval": {"id": approval_id, "approved": False}}
    return {"id": "a", "role": "assistant", "parts": [part]}


READ_BY_POST = ("/agui/connect",)
OPERATOR = (TokenRole.OPERATOR,)
DECIDES = (TokenRole.OPERATOR, TokenRole.DECIDE)


@pytest.fixture(scope="module")
def faults():
    return Lossy()


@pytest.fixture(scope="module")
def log(faults):
    return MemoryLog(topics(PARTITIONS), threaded=True, faults=faults)


@pytest.fixture(scope="module")
def taken(place, ana):
    """Ids of Ana: a session that the command line opened, and one that she opened here."""
    asking(place, "raw")
    ana.post("/v1/sessions/talk/messages", json={"text": "secret"}).raise_for_status()
    return ("raw", "talk", own_id("ana", "talk"))


class Routed(NamedTuple):
    """A request of one route; `send`: a function (client, name) -> response."""

    method: str
    path: str
    send: Callable[[httpx.Client, str], httpx.Response]

    @property
    def reads(self):
        return self.method in ("GET", "HEAD") or self.path in READ_BY_POST


def requests_of(gateway):
    """A request for every route that names a session."""
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
    by_path = [Routed(*r[:2], lambda http, name, r=r: send(http, *r, name)) for r in found]
    by_body = [Routed("POST", p, lambda http, name, p=p, b=b: begun(http, "POST", p, b(name)))
               for p, b in BY_BODY]
    by_query = lambda http, name: http.post(f"/cancel?session_id={name}")  # noqa: E731
    return [*by_path, *by_body, Routed("POST", "/cancel", by_query)]


def send(http, method, path, query, name):
    url = path
    for word in NAMED:
        url = url.replace(word, name)
    url = url.replace("{call}", "1.1.0").replace("{sha256}", "0" * 64) + QUERY + query
    body = next((b for end, b in BODIES.items() if path.endswith(end)), {})
    return begun(http, method, url, None if method in ("GET", "HEAD") else body)


def begun(http, method, url, body):
    """The response to a request; of a stream only the beginning, because it may last."""
    with http.stream(method, url, json=body) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.read()
        return response


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
            unknown = without_name(request.send(bob, "nobody"), "nobody")
            assert unknown[0] in (404, 204, 200, 405), unknown
            for name in taken:
                assert without_name(request.send(bob, name), name) == unknown, name
            assert request.send(unauthenticated, "talk").status_code == 401, unknown


def looks_of(log, operator):
    """The looks that are recorded of an operator."""
    end = log.end_offsets(OPERATOR_LOOKS)[0]
    found = [decode_look(record.value) for record in read_before(log, OPERATOR_LOOKS, 0, end)]
    return [look for look in found if look.operator == operator]


def test_C_every_route_shows_an_operator_another_users_session_with_a_record(gateway, log, taken):
    """Nothing is changed: the routes that write refuse."""
    ends = log.end_offsets(SESSION_EVENTS)
    for number, request in enumerate(requests_of(gateway.gateway)):
        operator, where = f"olga-{number}", request[:2]
        with gateway.http(operator, OPERATOR) as http:
            response = request.send(http, "raw")
        seen = {(look.user_id, look.session_id) for look in looks_of(log, operator)}
        if request.reads:
            is_shown = response.status_code == 200 or "unknown_attachment" in response.text
            assert is_shown and ("ana", "raw") in seen, (where, response.status_code)
        else:
            refused = "read_only" if response.status_code == 405 else "not_yours"
            assert response.status_code in (403, 405), where
            assert response.json()["code"] == refused and not seen, where
    assert log.end_offsets(SESSION_EVENTS) == ends


def test_C_lists_show_an_operator_every_users_sessions_with_a_record(gateway, log, bob, taken):
    for number, (path, what) in enumerate([
        ("/v1/sessions", LookKind.LIST), ("/v1/sessions/events", LookKind.LIST),
        ("/inspector/api/home", LookKind.LIST), ("/inspector/api/charts", LookKind.LIST),
        ("/inspector/api/search?q=charge", LookKind.SEARCH),
    ]):
        with gateway.http(f"lena-{number}", OPERATOR) as http:
            shown = begun(http, "GET", path, None)
        assert shown.status_code == 200
        if path in ("/v1/sessions", "/inspector/api/home"):
            assert "raw" in shown.text and "raw" not in bob.get(path).text
        expected = Look(operator=f"lena-{number}", what=what)
        assert looks_of(log, f"lena-{number}") == [expected]


def test_an_operator_with_the_role_decide_answers_and_does_nothing_else(gateway, log, place, taken):
    asking(place, "open-ask")
    doubting(place, "open-doubt")
    for name in ("open-tool", "open-run", "open-chat"):
        asking(place, name)
    resumed = {"interruptId": "1.1.0", "status": "cancelled"}
    answers = [
        ("/v1/sessions/open-ask/calls/1.1.0/decide", {"decision": "deny"}),
        ("/v1/sessions/open-doubt/calls/1.1.0/resolve", {"outcome": "did_not_happen"}),
        ("/api/chat/open-tool/approvals", {"approvals": [{"id": "1.1.0:x", "approved": False}]}),
        ("/agui", {"threadId": "open-run", "messages": [], "resume": [resumed]}),
        ("/api/chat", {"id": "open-chat", "messages": [_approval("1.1.0:x")]}),
    ]
    with gateway.http("olga", OPERATOR) as http:
        for path, body in answers:
            assert http.post(path, json=body).json()["code"] == "not_yours"
    assert not looks_of(log, "olga"), "a refusal shows nothing"
    with gateway.http("dora", DECIDES) as http:
        for path, body in answers[:2]:
            assert http.post(path, json=body).status_code == 200, path
        sha = http.get("/v1/sessions/open-tool").json()["waits"][0]["args_sha256"]
        answer = {"approvals": [{"id": f"1.1.0:{sha}", "approved": False}]}
        assert http.post(answers[2][0], json=answer).status_code == 200
        new = {"id": "m9", "role": "user", "content": "hi"}
        both = {**answers[3][1], "messages": [new]}
        assert http.post("/agui", json=both).json()["code"] == "not_yours", "no message, no answer"
        for path, body in (answers[3], ("/api/chat", {
            "id": "open-chat", "messages": [_approval(f"1.1.0:{sha}")]
        })):  # fmt: skip
            assert begun(http, "POST", path, body).status_code == 200, path
        for path, body in [
            ("/v1/sessions/open-ask/messages", {"text": "hi"}),
            ("/v1/sessions/open-ask/terminate", {}), ("/v1/sessions/open-ask/cancel", {}),
            ("/v1/sessions/open-ask/fork", {}), ("/v1/sessions", {"session_id": "open-ask"}),
            ("/agui", {"threadId": "open-ask", "messages": [new]}),
        ]:
            response = http.post(path, json=body)
            assert (response.status_code, response.json()["code"]) == (403, "not_yours"), path
    assert {look.what for look in looks_of(log, "dora")} == {
        LookKind.DECISION, LookKind.SESSION, LookKind.STREAM
    }  # fmt: skip
    answered = [entry_of(record) for partition, end in log.end_offsets(SESSION_EVENTS).items()
                for record in read_before(log, SESSION_EVENTS, partition, end)
                if record.header("t") in (b"APPROVAL_DECIDED", b"HUMAN_RESOLVED")]
    assert [(entry.event.by_user, entry.by) for entry in answered] == [
        ("ana", "gateway operator dora")
    ] * 5


def test_an_operators_own_sessions_are_not_looks(gateway, log, taken):
    with gateway.http("otto", DECIDES) as http:
        mine = http.post("/v1/sessions/mine/messages", json={"text": "hello"}).json()["session_id"]
        for name in ("mine", mine):
            assert "hello" in http.get(f"/v1/sessions/{name}/transcript").text
        assert http.post("/v1/sessions/mine/terminate", json={}).status_code == 200
    assert looks_of(log, "otto") == []


def test_without_a_record_an_operator_sees_nothing(gateway, faults, taken):
    paths = ["/v1/sessions", "/v1/sessions/events", "/v1/sessions/raw", "/v1/sessions/raw/stream",
             "/inspector/api/home", "/inspector/api/search?q=charge"]
    with gateway.http("nora", OPERATOR) as http:
        faults.is_lossy = True
        try:
            refused = [begun(http, "GET", path, None) for path in paths]
        finally:
            faults.is_lossy = False
        for response in refused:
            assert (response.status_code, response.json()["code"]) == (503, "look_not_recorded")
            assert "raw" not in response.text and "injected" not in response.text
        assert http.get("/v1/sessions/raw").status_code == 200
    assert any("injected" in line and OPERATOR_LOOKS in line for line in gateway.output)


def test_the_same_look_is_recorded_once_a_minute(tmp_path):
    log, times = MemoryLog(topics(PARTITIONS)), []
    writer = Sessions(log, settings_in(tmp_path))
    looks = Looks(writer, lambda: times[-1])
    look = Look(operator="olga", user_id="ana", session_id="s1", what=LookKind.STREAM)
    for now, count in ((0.0, 1), (1.0, 1), (EVERY_S - 1, 1), (EVERY_S, 2), (EVERY_S + 1, 2)):
        times.append(now)
        looks.record(look)
        assert looks_of(log, "olga") == [look] * count
    looks.record(Look(operator="olga", what=LookKind.LIST))
    assert len(looks_of(log, "olga")) == 3
    writer.close()


def test_an_operator_who_watches_delivers_nothing(gateway, log, place, taken):
    """GEN_SENT means that the user's viewer has the answer."""
    played = place.talk("watched", 1)
    with gateway.http("olga", OPERATOR) as http, http.stream(
        "GET", "/v1/sessions/watched/stream?since=now"
    ) as response:
        lines = lines_of(response)
        for number in (2, 3):  # what turn 3 shows is sent after the end of turn 2 was handled
            sessions = Sessions(log, place.settings)
            sessions.say("watched", f"question {number}", message_id=f"m{number}")
            sessions.close()
            turn(played, number, 1)
            next(line for line in lines if f"question {number}" in line)
    ends = log.end_offsets(SESSION_EVENTS)
    written = [record.header("t") for partition, end in ends.items()
               for record in read_before(log, SESSION_EVENTS, partition, end)
               if record.key == b"watched"]
    assert written.count(b"TURN_ENDED") == 3 and b"GEN_SENT" not in written


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
