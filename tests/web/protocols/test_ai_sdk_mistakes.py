"""Clients' mistakes, and the details of responses, on the routes of the AI SDK."""

import base64

import pytest

from foldlog.tests.web.protocols.ai_sdk_chats import stored
from foldlog.tests.web.protocols.workers import PNG, worker_of


def test_a_picture_is_stored_and_shown_to_its_owner_only(log, chat, ana, bob, session):
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
def test_a_mistake_is_refused_with_its_code(ana, body, status, code):
    response = ana.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


@pytest.mark.parametrize("session_id", ["new", "n o", "x" * 200])
def test_S4_3_a_new_chat_has_no_stream_and_no_messages(ana, session_id):
    """The hook useChat with `resume` and `messages` requests both before the first message."""
    stream = ana.get(f"/api/chat/{session_id}/stream")
    assert (stream.status_code, stream.content) == (204, b"")
    assert ana.get(f"/api/chat/{session_id}/messages").json() == {"id": session_id, "messages": []}


def test_a_stream_has_the_headers_of_the_protocol(ana, log, chat, session):
    chat.send("one", "m1")
    worker = worker_of(log, session)
    with ana.stream("GET", f"/api/chat/{session}/stream") as response:
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        worker.answer("done")
        assert "[DONE]" in response.read().decode()
