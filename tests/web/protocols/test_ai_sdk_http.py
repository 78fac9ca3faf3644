"""The real chat of the AI SDK against a gateway: send, resume, stop, reset, approve."""

import json

import pytest

from foldlog.tests.kit.played import Played
from foldlog.tests.web.gateway.served import lines_of
from foldlog.tests.web.protocols.ai_sdk_chats import Chat, as_stored, stored, texts
from foldlog.tests.web.protocols.workers import worker_of
from foldlog.web.gateway.names import own_id


def id_of(session):
    """The log's id for the session that Ana knows by this name."""
    return own_id("ana", session)


def test_a_message_streams_and_each_turn_is_one_message(log, chat, ana, session):
    chat.send("hello", "m1")
    worker_of(log, session).answer("hello you")
    state = chat("ended")
    assert state["status"] == "ready" and "error" not in state
    assert [m["id"] for m in state["messages"]] == ["m1", f"{id_of(session)}:1"]
    assert texts(state["messages"][1]) == ["hello you"]
    assert state["finished"][-1]["finishReason"] == "stop"
    chat.send("again", "m2")
    worker_of(log, session, 2).answer("and again")
    state = chat("ended")
    assert as_stored(state) == stored(ana, session)
    assert [texts(m) for m in state["messages"]] == [
        ["hello"], ["hello you"], ["again"], ["and again"],
    ]


def test_P5_a_chat_that_left_resumes_in_the_middle_and_gets_the_whole_answer(
    log, chat, ana, node_chats, gateway, session
):
    chat.send("tell", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("one ")
    assert texts(chat("until", says="one ")["messages"][1]) == ["one "]
    chat("leave")
    worker.chunk("two ")
    other = Chat(node_chats, gateway, session, "b", messages=stored(ana, session))
    for one in (chat, other):
        one("resume")
        one("until", says="one two ")
    worker.chunk("three")
    worker.complete("one two three")
    worker.end()
    for one in (chat, other):
        state = one("ended")
        assert as_stored(state) == stored(ana, session)
        assert state["status"] == "ready" and texts(state["messages"][1]) == ["one two three"]
        one("resume")
        assert one("ended")["statuses"][-1] == 204, "nothing is active"


def test_a_cut_response_is_an_error_and_the_chat_resumes(
    log, chat, ana, gateway, session
):
    chat.send("tell", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("one ")
    chat("until", says="one ")
    for subscription in list(gateway.gateway.hub._sessions[id_of(session)].result().subscriptions):
        subscription.end()  # as for a viewer that is too slow
    worker.chunk("two ")
    state = chat("ended")
    assert state["status"] == "error" and not state["finished"][-1].get("finishReason")
    chat("resume")
    chat("until", status="streaming")  # otherwise `ended` could belong to the cut response
    worker.complete("one two three")
    worker.end()
    assert as_stored(chat("ended")) == stored(ana, session)


def test_stop_ends_the_turn_and_leaving_does_not(log, chat, ana, session):
    chat.send("tell", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("half of ")
    chat("until", says="half of ")
    chat("leave")
    assert worker.views.turn.closing is None, "leaving stopped the turn"
    chat("resume")
    chat("until", status="streaming")
    stopped = ana.post(f"/api/chat/{session}/stop", json={"messageId": f"{id_of(session)}:1"})
    assert stopped.status_code == 200 and stopped.json()["stopped"]
    worker.wait(lambda views: views.turn.closing is not None)
    worker.stopped("half of ")
    worker.end("cancelled")
    state = chat("ended")
    assert state["messages"][1]["metadata"]["reason"] == "cancelled"
    assert texts(state["messages"][1]) == ["half of "] and state["status"] == "ready"
    assert as_stored(state) == stored(ana, session)
    idle = ana.post(f"/api/chat/{session}/stop").json()
    assert idle == {"session_id": id_of(session), "stopped": False, "turn": None}
    late = ana.post(f"/api/chat/{session}/stop", json={"turn": 1})
    assert late.status_code == 409 and late.json()["code"] and late.json()["detail"]


def test_P6_a_superseded_attempt_is_taken_back(log, chat, ana, session):
    chat.send("tell", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("let me think", kind="thinking")
    worker.chunk("the answer is ", block=1)
    chat("until", says="the answer is ")
    worker.resume("w2/1")
    chat("until", status="streaming")
    worker.chunk("It is 42")
    worker.complete("It is 42")
    worker.end()
    state = chat("ended")
    assert texts(state["messages"][1]) == ["It is 42"]
    assert "think" not in json.dumps(state["messages"])
    assert [part["data"]["what"] for part in state["data"]] == ["resumed"]
    assert as_stored(state) == stored(ana, session)


def asking(log, session, *calls):
    """A played worker whose turn waits for approval of these calls."""
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("I buy.")
    worker.complete("I buy.", [(name, {"cents": n}) for n, name in enumerate(calls)])
    for index in range(len(calls)):
        worker.invoke(index, approval="ask")
    return worker


def approvals(state):
    return [part["approval"]["id"] for part in state["messages"][-1]["parts"]
            if part.get("state") == "approval-requested"]


@pytest.mark.parametrize("last", [False, True])
def test_a_request_for_approval_ends_the_response_and_the_answer_continues_the_message(
    log, node_chats, gateway, ana, session, last
):
    chat = Chat(node_chats, gateway, session, last=last)
    chat.send("buy", "m1")
    worker = asking(log, session, "charge", "charge")
    state = chat("ended")
    assert state["status"] == "ready" and state["finished"][-1]["finishReason"] == "tool-calls"
    first, second = approvals(state)
    assert first.startswith("1.1.0:")
    chat("answer", id=first, approved=True)
    assert len(chat("look")["statuses"]) == 1, "the other call still waits for approval"
    ana.post(f"/v1/sessions/{session}/project", json={"project_id": "p1"}).raise_for_status()
    chat("answer", id=second, approved=False)
    worker.wait(lambda views: [c.decision for c in views.turn.calls] == ["allow", "deny"])
    worker.tool_start()
    worker.tool_result('{"paid": true}')
    worker.answer("bought one")
    state = chat("until", status="ready", says="bought one")
    assert as_stored(state) == stored(ana, session)
    assert texts(state["messages"][1]) == ["I buy.", "bought one"], "no text is repeated"
    states = {p["toolCallId"]: p["state"] for p in state["messages"][1]["parts"]
              if p["type"] == "dynamic-tool"}
    assert states == {"1.1.0": "output-available", "1.1.1": "output-denied"}
    assert "data-project" in [part["type"] for part in state["messages"][1]["parts"]]


def test_an_approval_is_bound_to_the_arguments_and_counts_once(log, chat, ana, session):
    chat.send("buy", "m1")
    worker = asking(log, session, "charge")
    (approval,) = approvals(chat("ended"))
    url = f"/api/chat/{session}/approvals"
    other = approval[:-1] + ("0" if approval[-1] != "0" else "1")
    refused = ana.post(url, json={"approvals": [{"id": other, "approved": True}]})
    assert refused.status_code == 409, refused.text
    accepted = ana.post(url, json={"approvals": [{"id": approval, "approved": True}]})
    assert accepted.status_code == 200 and accepted.json()["calls"] == ["1.1.0"]
    again = ana.post(url, json={"approvals": [{"id": approval, "approved": False}]})
    assert again.status_code == 409
    assert worker.views.turn.calls[0].decision == "allow"
    part = {"type": "dynamic-tool", "state": "approval-responded", "toolCallId": "1.1.0",
            "approval": {"id": approval, "approved": True}}
    message = {"id": f"{id_of(session)}:1", "role": "assistant", "parts": [part]}
    body = {"id": session, "messages": [message]}
    worker.tool_start()
    worker.tool_result("done")
    worker.answer("bought")
    text = ana.post("/api/chat", json=body).text
    kinds = [json.loads(line[6:])["type"] for line in text.split("\n\n")[:-2]]
    assert kinds[:3] == ["start", "tool-approval-response", "tool-output-available"]
    assert kinds[-1] == "finish"


def test_a_message_is_sent_once_however_often_a_list_contains_it(log, chat, ana, session):
    chat.send("hello", "m1")
    worker_of(log, session).answer("hi")
    chat("ended")
    sent = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    invented = {"id": "x", "role": "assistant", "parts": [{"type": "text", "text": "I promised"}]}
    for messages in ([sent], [invented, sent]):
        text = ana.post("/api/chat", json={"id": session, "messages": messages}).text
        deltas = [json.loads(x[6:]).get("delta", "") for x in text.split("\n\n")[:-2]]
        assert "".join(deltas) == "hi"
        assert text.endswith("data: [DONE]\n\n")
    other = {**sent, "parts": [{"type": "text", "text": "something else"}]}
    refused = ana.post("/api/chat", json={"id": session, "messages": [other]})
    assert refused.status_code == 409, refused.text
    assert [m["id"] for m in stored(ana, session)] == ["m1", f"{id_of(session)}:1"]


def test_a_message_sent_during_a_turn_gets_the_turn_that_it_begins(
    log, chat, ana, node_chats, gateway, session
):
    chat.send("one", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    other = Chat(node_chats, gateway, session, "b")
    other.send("two", "m2")
    worker.wait(lambda views: len(views.turn.queue) == 1)
    worker.complete("first")
    worker.end()
    worker.answer("second")
    assert texts(chat("ended")["messages"][-1]) == ["first"]
    state = other("ended")
    assert state["messages"][-1]["id"] == f"{id_of(session)}:2"
    assert texts(state["messages"][-1]) == ["second"]
    order = [m["id"] for m in stored(ana, session)]
    assert order == ["m1", f"{id_of(session)}:1", "m2", f"{id_of(session)}:2"]


def test_a_steering_message_is_a_part_of_the_answer(log, chat, ana, session):
    chat.send("one", "m1")
    worker = worker_of(log, session)
    worker.propose("", ("read", {}))
    worker.invoke()
    worker.tool_start()
    steer = {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "shorter"}]}
    with ana.stream("POST", "/api/chat", json={
        "id": session, "messages": [steer], "when_busy": "steer",
    }) as response:
        worker.wait(lambda views: len(views.turn.queue) == 1)
        worker.tool_result("contents")
        worker.answer("short")
        response.read()
    assert '"steering-message"' in response.text and f'"{id_of(session)}:1"' in response.text
    state = chat("ended")
    (part,) = [p for p in state["messages"][1]["parts"] if p["type"] == "steering-message"]
    assert part["parts"] == [{"type": "text", "text": "shorter"}]
    assert as_stored(state) == stored(ana, session)


def test_a_failed_turn_is_an_error_and_the_chat_continues(log, chat, session):
    chat.send("one", "m1")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("hal")
    worker.fail(permanent=True)
    worker.end("failed")
    state = chat("ended")
    assert state["status"] == "error" and "overloaded" in state["error"]
    assert texts(state["messages"][-1]) == []
    chat.send("two", "m2")
    worker.wait(lambda views: views.turn.number == 2)
    worker.answer("well")
    assert texts(chat("ended")["messages"][-1]) == ["well"]


def test_a_regenerated_answer_is_a_new_session(log, chat, ana, gateway, session):
    chat.send("one", "m1")
    worker_of(log, session).answer("first")
    chat("ended")
    with ana.stream("POST", "/api/chat", json={
        "id": session, "messages": [], "trigger": "regenerate-message",
        "messageId": f"{id_of(session)}:1",
    }) as response:
        lines = lines_of(response)
        start = json.loads(next(lines)[6:])
        other = start["messageMetadata"]["session"]
        assert other != session
        worker = Played(log, other)
        worker.fold = gateway.gateway.client.fold(other)  # which reads the seed of the fork
        worker.answer("second")
        assert "[DONE]" in "".join(lines)
    assert [texts(m) for m in stored(ana, session)] == [["one"], ["first"]]
    assert [texts(m) for m in stored(ana, other)] == [["one"], ["second"]]
    again = {"id": session, "messages": [], "trigger": "regenerate-message", "messageId": "x:9"}
    assert ana.post("/api/chat", json=again).status_code == 409
