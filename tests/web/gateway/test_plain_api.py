"""The plain API: responses wait for the fold's decision, and every mistake has its own error."""

import json
import shlex
import threading
import time
from types import SimpleNamespace

import pytest

from foldlog.client.history import Place
from foldlog.log.errors import LogBusy
from foldlog.reports.exports.proof import proof_of
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.docs.pages import blocks
from foldlog.tests.kit.played import Played
from foldlog.tests.web.gateway.served import lines_of
from foldlog.web.gateway import subscriptions
from foldlog.web.gateway.app import BODY_BYTES_MAX
from foldlog.web.gateway.cursors import cursor_of
from foldlog.web.gateway.names import own_id
from foldlog.web.gateway.routes.plain import CHANNEL


def post(http, path, **body):
    return http.post(f"/v1/sessions{path}", json=body)


def open_session(http, name):
    assert post(http, "", session_id=name).status_code == 201
    return name


def events_of(http, name, upto, **params):
    """The events of a stream, up to the first one of this type."""
    found = []
    with http.stream("GET", f"/v1/sessions/{name}/stream", params=params) as response:
        assert response.status_code == 200, response.read()
        for line in lines_of(response):
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if found[-1]["type"] == upto:
                    return found
    return found


def test_a_message_is_answered_with_the_folds_decision(ana):
    first = post(ana, "/talk/messages", text="hello", message_id="m1").json()
    assert (first["verdict"], first["turn"], first["message_id"]) == ("accepted", 1, "m1")
    again = post(ana, "/talk/messages", text="hello", message_id="m1").json()
    assert (again["verdict"], again["turn"]) == ("duplicate", 1)
    assert ana.get("/v1/sessions/talk").json()["state"]["last_message_id"] == "m1"


def test_the_request_that_the_page_shows_is_answered_as_it_shows(ana):
    (curl,) = (one.text for one in blocks("gateway.md") if one.text.startswith("curl "))
    (shown,) = (json.loads(one.text) for one in blocks("gateway.md") if one.language == "json")
    _, _, method, url, _, header, _, body = shlex.split(curl.replace("\\\n", " "))
    name, _, value = header.partition(": ")
    path = url.removeprefix("localhost:8377")
    answer = ana.request(method, path, content=body, headers={name: value}).json()
    assert answer.pop("session_id") == own_id("ana", shown.pop("session_id"))
    assert answer | {"offset": shown["offset"]} == shown


def test_a_refusal_is_409_with_its_code_and_detail(ana):
    open_session(ana, "refused")
    post(ana, "/refused/messages", text="one", message_id="m1")
    other = post(ana, "/refused/messages", text="another", message_id="m1")
    assert other.status_code == 409
    assert other.json() == {
        "code": "message_id_reused",
        "detail": "this message_id was used with other content",
    }
    phase = post(ana, "/refused/phase", trigger="publish")
    assert phase.status_code == 409
    assert "invalid transition: phase=chatting, event=publish" in phase.json()["detail"]


def test_a_call_is_allowed_with_the_arguments_that_were_shown(ana, log):
    post(ana, "/asks/messages", text="charge me")
    played = Played(log, own_id("ana", "asks"))
    played.propose("", ("charge", {"cents": 5}))
    played.invoke(approval="ask")
    (call,) = ana.get("/v1/sessions/asks").json()["waits"]
    assert (call["name"], call["status"]) == ("charge", "asks")
    path = f"/asks/calls/{call['key']}/decide"
    assert post(ana, path, decision="allow", args_sha256="0" * 64).status_code == 409
    other = post(ana, path, decision="allow", remember_like={"command": "git *"})
    assert other.status_code == 409 and "does not match this call of charge" in other.text
    allowed = post(ana, path, decision="allow", args_sha256=call["args_sha256"])
    assert allowed.status_code == 200
    assert post(ana, path, decision="deny").json()["code"] == "not_asking"


def test_beyond_3_a_doubt_is_resolved_once_and_the_refusal_names_the_outcome(ana, log):
    post(ana, "/doubt/messages", text="charge me")
    played = Played(log, own_id("ana", "doubt"))
    played.propose("", ("charge", {"cents": 5}))
    played.invoke()
    played.tool_start()
    played.uncertain()
    path = "/doubt/calls/1.1.0/resolve"
    empty = post(ana, path, outcome="happened", report=" ")
    assert (empty.status_code, empty.json()["code"]) == (400, "empty_report")
    body = {"outcome": "happened", "report": "invoice 17"}
    assert [post(ana, path, **body).json()["verdict"] for _ in "ab"] == ["accepted", "duplicate"]
    other = post(ana, path, outcome="happened", report="invoice 18")
    assert (other.status_code, other.json()["code"]) == (409, "already_resolved")
    assert "it happened (invoice 17)" in other.json()["detail"]


def test_a_stream_shows_past_and_new_events_and_resumes_from_its_cursor(ana, log):
    post(ana, "/stream/messages", text="hi")
    played = Played(log, own_id("ana", "stream"))
    played.call()
    played.start()
    played.chunk("Hel")
    first = events_of(ana, "stream", "token")
    assert [event["type"] for event in first] == ["told", "token"]
    played.chunk("lo")
    played.complete("Hello")
    rest = events_of(ana, "stream", "settled", cursor=first[-1]["cursor"])
    assert [event.get("text") for event in rest] == ["lo", None]
    assert rest[-1]["line"]["content"] == [{"type": "text", "text": "Hello"}]


def test_a_user_lists_all_their_sessions_and_no_other(ana, bob):
    open_session(ana, "hers")
    open_session(bob, "his")
    names = {line["session_id"] for line in bob.get("/v1/sessions").json()["sessions"]}
    assert own_id("bob", "his") in names and own_id("ana", "hers") not in names


@pytest.mark.parametrize("body", [{"text": " "}, {"text": "x", "message_id": "no id!"}])
def test_an_invalid_message_opens_no_session(ana, body):
    assert post(ana, "/fresh/messages", **body).status_code == 400
    assert ana.get("/v1/sessions/fresh").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/bad/messages", {"text": ""}, 400, "empty_message"),
        ("/bad/messages", {"text": "x", "when_busy": "shout"}, 400, "invalid"),
        ("/bad/messages", {"text": "x", "message_id": "no id!"}, 400, "invalid_id"),
        ("/bad/messages", {"txt": "x"}, 400, "invalid"),
        ("/no%20id/messages", {"text": "x"}, 400, "invalid_id"),
        ("/bad/cancel", {"turn": 99}, 409, None),
        ("/bad/cancel", {"turn": 0}, 400, "invalid_turn"),
        ("/bad/calls/9.9.9/decide", {"decision": "allow"}, 409, "unknown_call"),
        ("/nobody/cancel", {}, 404, "unknown_session"),
    ],
)
def test_a_mistake_has_a_status_and_a_sentence(ana, path, body, status, code):
    open_session(ana, "bad")
    response = post(ana, path, **body)
    assert response.status_code == status, response.text
    assert code in (None, response.json()["code"])
    assert len(response.json()["detail"]) > 10


def test_a_body_that_is_too_large_is_refused(ana):
    response = post(ana, "/bad/messages", text="x" * (BODY_BYTES_MAX + 1))
    assert response.status_code == 413, response.text
    assert response.json()["code"] == "too_large"


@pytest.mark.parametrize("path", ["/v1/sessions/bad/messages", "/agui", "/api/chat"])
def test_a_body_without_a_length_is_refused_when_it_is_too_large(ana, path):
    pieces = (b"x" * 65_536 for _ in range(BODY_BYTES_MAX // 65_536 + 1))
    response = ana.post(path, content=pieces, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert "nothing was done" in response.json()["detail"]


def test_a_body_that_is_not_json_is_refused(ana):
    response = ana.post("/v1/sessions/bad/messages", content=b"{nonsense")
    assert (response.status_code, response.json()["code"]) == (400, "invalid")
    assert "content-type: application/json" in response.json()["detail"]
    form = ana.post("/v1/sessions/bad/messages", data={"text": "x"})
    assert form.status_code == 400 and "content-type" in form.json()["detail"]


def test_an_unknown_route_is_answered_with_where_they_are_listed(ana):
    for response in (ana.get("/v1/nothing"), ana.put("/v1/sessions")):
        assert response.status_code in (404, 405) and "/openapi.json" in response.json()["detail"]


@pytest.mark.parametrize(
    "cursor",
    ["zz", "%00", cursor_of("another", Place(1)), cursor_of(own_id("ana", "bad"), Place(10**9))],
)
def test_an_invalid_cursor_is_refused_before_the_stream_begins(ana, cursor):
    open_session(ana, "bad")
    response = ana.get("/v1/sessions/bad/stream", params={"cursor": cursor})
    assert (response.status_code, response.json()["code"]) == (400, "bad_cursor")


def test_a_message_for_a_terminated_session_is_refused(ana):
    open_session(ana, "ended")
    assert post(ana, "/ended/terminate", reason="enough").status_code == 200
    response = post(ana, "/ended/messages", text="hello?")
    assert response.status_code == 409
    assert "terminated" in response.json()["detail"]


def test_the_api_is_documented_and_loads_nothing_from_elsewhere(gateway):
    with gateway.http() as http:
        paths = http.get("/openapi.json").json()["paths"]
        assert "/v1/sessions/{session_id}/stream" in paths
        assert http.get("/docs").status_code == 404
    missing = [path for path, methods in paths.items() if path.startswith("/v1")
               for method in methods.values() if not method.get("description")]
    assert not missing


def test_a_page_of_another_origin_is_refused(ana):
    response = ana.get("/v1/sessions", headers={"origin": "https://evil.example"})
    assert (response.status_code, response.json()["code"]) == (403, "foreign")


def test_S2_4_an_answer_is_recorded_as_shown_once(ana, log):
    post(ana, "/sent/messages", text="hi")
    played = Played(log, own_id("ana", "sent"))
    played.call()
    played.start()
    played.complete("Hello")
    played.end()
    for _ in range(2):
        lines = events_of(ana, "sent", "settled")
        assert lines[-1]["line"]["kind"] == "answer"
        with ana.stream("GET", "/v1/sessions/sent/stream") as response:
            for line in lines_of(response):
                if '"kind":"ended"' in line:
                    break
    assert [row.channel for row in played.views.transcript.sent] == [CHANNEL]


class Full:
    """A producer that refuses GEN_SENT, as if the queue of the producer were full."""

    def __init__(self, inner):
        self._inner, self.refused = inner, []

    def append(self, topic, key, value, headers=(), **more):
        if ("t", b"GEN_SENT") in headers:
            self.refused.append(threading.current_thread())
            raise LogBusy("full")
        self._inner.append(topic, key, value, headers, **more)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_S2_4_a_stream_continues_when_a_shown_answer_cannot_be_recorded(
    gateway, ana, log, monkeypatch
):
    sessions = gateway.gateway.client.writer
    full = Full(sessions.producer)
    monkeypatch.setattr(sessions, "_producer", full)
    post(ana, "/full/messages", text="one")
    played = Played(log, own_id("ana", "full"))
    with ana.stream("GET", "/v1/sessions/full/stream") as response:
        shown = (json.loads(line[6:]) for line in lines_of(response) if line[:6] == "data: ")
        for number in (1, 2):
            played.call()
            played.start()
            played.complete("answer")
            played.end()
            while (event := next(shown)).get("line", {}).get("kind") != "ended":
                pass
            assert event["line"]["turn"] == number
            post(ana, "/full/messages", text="two")
    assert full.refused and gateway.thread not in full.refused, "the event loop waited"


def test_a_queued_message_is_shown_when_it_is_received_and_when_it_is_taken(ana, log):
    post(ana, "/waits/messages", text="one", message_id="m1")
    played = Played(log, own_id("ana", "waits"))
    played.call()
    played.start()
    post(ana, "/waits/messages", text="two", message_id="m2", when_busy="queue")
    assert ana.get("/v1/sessions/waits").json()["queued"] == ["m2"]
    played.complete("first")
    played.end()
    shown = []
    with ana.stream("GET", "/v1/sessions/waits/stream") as response:
        for line in lines_of(response):
            if line.startswith("data: ") and "line" in (event := json.loads(line[6:])):
                shown.append((event["line"]["kind"], event["line"]["name"]))
                if shown[-1][0] == "taken":
                    break
    assert shown == [
        ("message", "m1"), ("message", "m2"), ("answer", "end_turn"), ("ended", "end_turn"),
        ("taken", "m2"),
    ]
    assert ana.get("/v1/sessions/waits").json()["queued"] == []


def test_a_stream_ends_with_its_token(gateway, ana, monkeypatch):
    open_session(ana, "brief")
    with gateway.http("ana") as brief:
        with brief.stream("GET", "/v1/sessions/brief/stream") as response:
            shown = (line for line in lines_of(response) if line.startswith("data: "))
            post(ana, "/brief/messages", text="still here?")
            assert next(shown, None) is not None
            later = time.time() + 901
            monkeypatch.setattr(subscriptions, "time", SimpleNamespace(time=lambda: later))
            post(ana, "/brief/messages", text="and now?")
            assert next(shown, None) is None


def test_reading_old_turns_writes_nothing(ana, log):
    played = None
    for number in (1, 2):
        post(ana, "/old/messages", text=f"say {number}")
        played = played or Played(log, own_id("ana", "old"))
        played.call()
        played.start()
        played.complete(f"answer {number}")
        played.end()
    with ana.stream("GET", "/v1/sessions/old/stream") as response:
        ended = 0
        for line in lines_of(response):
            ended += '"kind":"ended"' in line
            if ended == 2:
                break
    post(ana, "/old/messages", text="say 3")  # after any event that the read wrote
    assert {row.turn for row in played.views.transcript.sent} <= {2}


def test_C17_records_of_the_gateway_name_the_user_of_the_token(ana, bob, log):
    """`by_user` alone proves nothing, because every producer can write it."""
    name = open_session(ana, "s-recorded")
    post(ana, f"/{name}/messages", text="hi", message_id="m1")
    post(bob, f"/{name}/messages", text="hi", message_id="m2")
    records = [r for p in log.topic(SESSION_EVENTS).partitions for r in p.records]
    for user in ("ana", "bob"):
        key = own_id(user, name).encode()
        ours = [entry_of(record) for record in records if record.key == key]
        assert len(ours) == 2, "SESSION_OPENED and the message"
        assert {proof_of(entry).text for entry in ours} == {
            f"recorded by the gateway: a token of {user}"
        }
