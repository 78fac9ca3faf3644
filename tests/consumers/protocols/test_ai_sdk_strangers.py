"""What a gateway answers to mistakes and strangers on the routes of the AI SDK."""

import base64
import json

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.tests.consumers.protocols.ai_sdk_chats import stored
from foldlog.tests.consumers.protocols.spoken import PNG, SECRET, worker_of


def test_a_picture_is_stored_and_shown_to_its_owner_alone(log, chat, ana, gateway, session):
    url = f"data:image/png;base64,{PNG}"
    parts = [{"type": "file", "mediaType": "image/png", "url": url},
             {"type": "text", "text": "what is it?"}]
    chat("send", message={"id": "m1", "parts": parts})
    worker_of(log, session).answer("a dot")
    chat("ended")
    picture, _ = stored(ana, session)[0]["parts"]
    assert picture["mediaType"] == "image/png"
    found = ana.get(picture["url"])
    assert found.content == base64.b64decode(PNG)
    assert found.headers["content-type"] == "image/png"
    assert ana.get(picture["url"][:-1] + "x").status_code == 404
    with gateway.http(token_for("bob", SECRET)) as bob:
        assert bob.get(picture["url"]).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid"),
        (b"[]", 400, "invalid"),
        (b'{"id":"x/y","messages":[{"id":"m","role":"user","parts":[]}]}', 400, "invalid_id"),
        (b'{"id":"c"}', 400, "nothing_said"),
        (b'{"id":"c","messages":[{"role":"user","parts":[]}]}', 400, "invalid"),
        (b'{"id":"c","messages":[{"id":"m","role":"user","parts":[1]}]}', 400, "invalid"),
        (b'{"id":"c","messages":[{"id":"m","role":"user","parts":[{"type":"x"}]}]}', 400,
         "invalid_content"),
        (b'{"id":"c","messages":[{"id":"m","role":"user","parts":[{"type":"file","url":"http://x"'
         b"}]}]}", 400, "not_attachable"),
        (b'{"id":"c","messages":[{"id":"m","role":"user","parts":[{"type":"file","url":'
         b'"data:image/png;base64,' + PNG[:80].encode() + b'"}]}]}', 400, "not_attachable"),
        (b'{"id":"c","trigger":"no","messages":[]}', 400, "invalid"),
        (b'{"id":"c","trigger":"regenerate-message","messages":[]}', 404, "unknown_session"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(ana, body, status, code):
    answer = ana.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


@pytest.mark.parametrize("session_id", ["new", "n o", "x" * 200])
def test_S4_3_a_chat_that_is_new_has_no_stream_and_no_messages(ana, session_id):
    """useChat with `resume` and `messages` asks for both before anything was said."""
    stream = ana.get(f"/api/chat/{session_id}/stream")
    assert (stream.status_code, stream.content) == (204, b"")
    assert ana.get(f"/api/chat/{session_id}/messages").json() == {"id": session_id, "messages": []}


def test_another_users_chat_is_closed(log, chat, ana, gateway, session):
    chat.send("mine", "m1")
    worker_of(log, session).answer("a secret")
    chat("ended")
    said = {"id": "m9", "role": "user", "parts": [{"type": "text", "text": "canary"}]}
    with gateway.http(token_for("bob", SECRET)) as bob:
        for answer, status in (
            (bob.get(f"/api/chat/{session}/stream"), 204),
            (bob.get(f"/api/chat/{session}/messages"), 200),
            (bob.post(f"/api/chat/{session}/stop"), 404),
            (bob.post(f"/api/chat/{session}/approvals", json={"approvals": []}), 404),
            (bob.post("/api/chat", json={"id": session, "messages": [],
                                         "trigger": "regenerate-message"}), 404),
        ):
            assert answer.status_code == status, answer.text
            assert "secret" not in answer.text
        # The same id is a chat of his own, in which she is not.
        with bob.stream("POST", "/api/chat", json={"id": session, "messages": [said]}) as his:
            assert his.status_code == 200
        shown = bob.get(f"/api/chat/{session}/messages").json()["messages"]
        assert [message["id"] for message in shown] == ["m9"]
    with gateway.http() as nobody:
        assert nobody.get(f"/api/chat/{session}/stream").status_code == 401
    assert "canary" not in json.dumps(stored(ana, session))


def test_the_headers_are_those_of_the_protocol(ana, log, chat, session):
    chat.send("one", "m1")
    worker = worker_of(log, session)
    with ana.stream("GET", f"/api/chat/{session}/stream") as response:
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        worker.answer("done")
        assert "[DONE]" in response.read().decode()
