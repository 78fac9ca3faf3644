"""useChat edits a message: a refusal that names the fork, or a fork before the message's turn."""

import json
import threading

import pytest

from foldlog.tests.kit.played import Played
from foldlog.tests.kit.waiting import until
from foldlog.tests.web.protocols.ai_sdk_chats import as_stored, stored, texts
from foldlog.tests.web.protocols.workers import PNG, worker_of
from foldlog.web.gateway.names import own_id


def message(text, message_id, *parts):
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}, *parts]}


def play(gateway, session_id, text, turn=None):
    """In a thread, play the next answer of a session, which may be a fork."""

    def answer():
        worker = Played(gateway.gateway.client.log, session_id)
        worker.fold = gateway.gateway.client.fold(session_id)  # which reads the seed of a fork
        worker.wait(lambda views: views.turn.open and turn in (None, views.turn.number))
        worker.answer(text)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def edit(ana, session, text, about, *, new_id="", parts=(), on_edit="fork", **more):
    """Edit a message as useChat does: the edited message has the same id."""
    body = {"id": session, "trigger": "submit-message", "messageId": about, "on_edit": on_edit,
            "messages": [message(text, new_id or about, *parts)], **more}
    return ana.stream("POST", "/api/chat", json=body)


def session_of(lines):
    for line in lines:
        if line.startswith("data: {"):
            return json.loads(line[6:])["messageMetadata"]["session"]
    raise AssertionError("the stream has no start")


def forked(ana, gateway, session, text, about, answer, **more):
    """Edit a message, play the answer, and return the fork's id."""
    with edit(ana, session, text, about, **more) as response:
        assert response.status_code == 200, response.read()
        lines = response.iter_lines()
        fork = session_of(lines)
        thread = play(gateway, fork, answer)
        assert "[DONE]" in "".join(lines)
    thread.join(20)
    return fork


def refused(ana, session, text, about, **more):
    with edit(ana, session, text, about, **more) as response:
        response.read()
        return response.status_code, response.json()["code"]


def says(ana, session):
    return ["".join(texts(m)) for m in stored(ana, session)]


@pytest.fixture
def talked(log, ana, session):
    """A session with three turns."""
    for turn in (1, 2, 3):
        ana.post(f"/v1/sessions/{session}/messages",
                 json={"text": f"question {turn}", "message_id": f"m{turn}"}).raise_for_status()
        worker_of(log, session, turn).answer(f"answer {turn}")
    return session


ALL = ["question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"]


@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("new_id", ["", "other"])
def test_an_edit_is_answered_in_a_fork_before_the_message(ana, gateway, talked, turn, new_id):
    fork = forked(ana, gateway, talked, "edited", f"m{turn}", "another", new_id=new_id)
    assert says(ana, fork) == [*ALL[: 2 * turn - 2], "edited", "another"]
    assert says(ana, talked) == ALL, "both answers are kept"
    assert stored(ana, fork)[-2]["id"] == (new_id or f"m{turn}")


@pytest.mark.parametrize("about", ["m1", "m2", "m3"])
def test_an_edit_by_a_client_that_follows_no_fork_is_refused(ana, gateway, talked, about):
    assert refused(ana, talked, "edited", about, on_edit=None) == (400, "edits_a_message")
    assert refused(ana, talked, "edited", about, on_edit=None, new_id="x")[0] == 400
    assert says(ana, talked) == ALL and not forks_of(gateway, talked)


def test_the_chat_of_the_ai_sdk_edits_and_must_follow_the_fork(log, chat, ana, gateway, session):
    chat.send("first", "m1")
    worker_of(log, session).answer("one")
    chat("ended")
    chat("edit", messageId="m1", text="first, edited", options={"body": {"on_edit": "fork"}})
    (fork,) = until("a fork", lambda: forks_of(gateway, session))
    play(gateway, fork, "two").join(20)
    state = chat("ended")
    assert state["messages"][-1]["metadata"]["session"] == fork
    assert as_stored(state) == stored(ana, fork)
    chat.send("and then?", "m2")
    state = chat("ended")
    assert state["status"] == "error" and fork in state["error"], "the error names the fork"
    answer = {"messageId": f"{fork}:1"}
    again = {"id": session, "messages": [], "trigger": "regenerate-message", **answer}
    for response in (ana.post("/api/chat", json=again),
                     ana.post(f"/api/chat/{session}/stop", json=answer)):
        assert (response.status_code, response.json()["code"]) == (400, "other_session")
    assert says(ana, session) == ["first", "one"]


def test_the_same_edit_is_one_fork_and_another_edit_is_another(ana, gateway, talked):
    fork = forked(ana, gateway, talked, "edited", "m2", "another")
    with edit(ana, talked, "edited", "m2") as response:
        response.read()
    assert session_of(response.text.splitlines()) == fork
    assert says(ana, fork) == [*ALL[:2], "edited", "another"]
    other = forked(ana, gateway, talked, "edited again", "m2", "a third")
    nested = forked(ana, gateway, other, "in the fork", "m2", "a fourth")
    assert len({fork, other, nested}) == 3
    assert says(ana, nested) == [*ALL[:2], "in the fork", "a fourth"]
    back = forked(ana, gateway, nested, "the first", "m1", "a fifth")
    assert says(ana, back) == ["the first", "a fifth"]


def test_an_edit_while_a_turn_runs_leaves_the_turn_running(log, ana, gateway, talked):
    url = f"/v1/sessions/{talked}/messages"
    ana.post(url, json={"text": "question 4", "message_id": "m4"}).raise_for_status()
    worker = worker_of(log, talked, 4)
    worker.call()
    worker.start()
    ana.post(url, json={"text": "question 5", "message_id": "m5"}).raise_for_status()
    assert refused(ana, talked, "edited", "m5") == (409, "still_queued")
    assert says(ana, forked(ana, gateway, talked, "edited", "m4", "a")) == [*ALL, "edited", "a"]
    assert says(ana, forked(ana, gateway, talked, "edited", "m1", "b")) == ["edited", "b"]
    worker.complete("answer 4")
    worker.end()
    worker_of(log, talked, 5).answer("answer 5")
    all_five = [*ALL, "question 4", "answer 4", "question 5", "answer 5"]
    assert says(ana, talked) == all_five
    fork = forked(ana, gateway, talked, "edited", "m5", "c")
    assert says(ana, fork) == [*all_five[:8], "edited", "c"], "a message that was queued"


def test_an_attachment_can_be_added_by_an_edit(ana, gateway, talked):
    part = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"}
    fork = forked(ana, gateway, talked, "look", "m1", "a dot", parts=[part])
    assert [p["type"] for p in stored(ana, fork)[0]["parts"]] == ["text", "file"]
    broken = {**part, "url": "https://example.com/dot.png"}
    assert refused(ana, talked, "look", "m1", parts=[broken]) == (400, "not_attachable")
    assert refused(ana, talked, " ", "m1") == (400, "empty_message")


def test_only_a_users_message_of_the_session_can_be_edited(ana, bob, gateway, talked):
    answer = f"{own_id('ana', talked)}:1"
    assert refused(ana, talked, "x", answer, new_id="n") == (400, "not_a_user_message")
    assert refused(ana, talked, "x", "unknown", new_id="n") == (404, "unknown_message")
    assert refused(ana, talked, "x", "unknown") == (404, "unknown_message")
    assert refused(ana, "no-such-chat", "x", "m1", new_id="n") == (404, "unknown_session")
    for name in (talked, own_id("ana", talked)):
        assert refused(bob, name, "x", "m1", new_id="n") == (404, "unknown_session")
    regenerate = {"id": talked, "messages": [], "trigger": "regenerate-message", "messageId": "z"}
    response = ana.post("/api/chat", json=regenerate)
    assert (response.status_code, response.json()["code"]) == (404, "unknown_message")
    assert says(ana, talked) == ALL and not forks_of(gateway, talked)


def test_messageId_may_name_a_new_message_or_repeat_the_last_one(log, ana, gateway, talked):
    """As AbstractChat does for `sendMessage()` without a message."""
    with edit(ana, talked, "question 3", "m3", on_edit=None) as response:
        assert "[DONE]" in response.read().decode()
    assert says(ana, talked) == ALL
    new = [message("question 3", "m3"), message("question 4", "m4")]
    thread = play(gateway, own_id("ana", talked), "answer 4", 4)
    with edit(ana, talked, "", "m4", on_edit=None, messages=new) as response:
        assert response.status_code == 200
        response.read()
    thread.join(20)
    assert says(ana, talked) == [*ALL, "question 4", "answer 4"]


def forks_of(gateway, name):
    """The ids of the forks of Ana's session of this name."""
    tail = gateway.gateway.tail
    views = [tail.views(row["session_id"]) for row in tail.summaries("ana")]
    origins = {v.session_id: v.origin and v.origin.session_id for v in views}
    return [fork for fork, parent in origins.items() if parent == own_id("ana", name)]
