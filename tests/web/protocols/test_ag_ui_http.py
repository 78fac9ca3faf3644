"""The real HttpAgent against a gateway: runs, interrupts, resume, replay, bad input."""

from datetime import datetime
from pathlib import Path

import pytest

from foldlog.tests.kit.played import Played
from foldlog.tests.web.gateway.served import SECRET, lines_of
from foldlog.tests.web.protocols.workers import PNG, worker_of
from foldlog.web.gateway import subscriptions
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.names import own_id

CLIENT = Path(__file__).parents[2] / "node" / "ag_ui.mjs"
SPENT = {
    "model": "claude-test", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15,
    "cachedInputTokens": 0, "cacheWriteInputTokens": 0,
}
"""What each model call of a played worker reports."""


@pytest.fixture(scope="module")
def node_client(talk):
    return talk(CLIENT)


class Agent:
    """One HttpAgent in node."""

    def __init__(self, node, gateway, name, session, messages=()):
        self.node, self.name = node, name
        headers = {"authorization": f"Bearer {token_for('ana', SECRET)}"}
        self.connect_url = f"{gateway.url}/agui/connect"
        self.node.ask({"name": name, "url": f"{gateway.url}/agui", "connect": self.connect_url,
                       "threadId": session, "headers": headers, "messages": list(messages)})

    def run(self, message_id="", text="", **more):
        """Begin runAgent, with a new message or without one."""
        message = {"id": message_id, "role": "user", "content": text}
        self.node.send({"name": self.name, **({"message": message} if message_id else {}), **more})

    def connect(self):
        """Begin `connectAgent`."""
        self.node.send({"name": self.name, "connect": True})

    def result(self):
        """The agent's messages and state once the call has ended."""
        result = self.node.receive()
        assert result["warnings"] == []
        return result


@pytest.fixture
def agent(node_client, gateway, session):
    return Agent(node_client, gateway, "a", session)


def kinds(result):
    return [event["type"] for event in result["seen"]]


def of(result, kind):
    return [event for event in result["seen"] if event["type"] == kind]


def texts(result):
    return [(m["role"], m.get("content")) for m in result["messages"]]


def test_S2_a_run_streams_and_is_the_parent_of_the_next_one(log, agent, session):
    agent.run("m1", "hello")
    worker_of(log, session).answer("hello you")
    result = agent.result()
    assert result["error"] is None and result["finished"] == ["success"]
    assert texts(result) == [("user", "hello"), ("assistant", "hello you")]
    assert result["state"]["session_id"] == own_id("ana", session)
    assert result["state"]["phase"] == "chatting"
    assert "MESSAGES_SNAPSHOT" not in kinds(result), "the client lacks nothing"
    agent.run("m2", "again")
    worker_of(log, session).answer("and again")
    result = agent.result()
    (started,) = of(result, "RUN_STARTED")
    assert (started["runId"], started["parentRunId"]) == (f"{session}:2", f"{session}:1")
    assert texts(result)[2:] == [("user", "again"), ("assistant", "and again")]


def test_S2_an_approval_is_an_interrupt_and_its_answer_begins_a_run(log, agent, session):
    agent.run("m1", "buy it")
    worker = worker_of(log, session)
    worker.propose("I buy.", ("charge", {"cents": 3}))
    worker.invoke(approval="ask")
    result = agent.result()
    (interrupt,) = result["pendingInterrupts"]
    assert (interrupt["id"], interrupt["reason"]) == ("1.1.0", "tool_approval")
    until = datetime.fromisoformat(interrupt["expiresAt"]).timestamp() * 1000
    assert round(until) == worker.views.turn.calls[0].expires_at
    (finished,) = of(result, "RUN_FINISHED")
    assert finished["usage"] == [SPENT]
    agent.run(resume=[{"interruptId": "1.1.0", "status": "resolved", "payload": {"approved": 1}}])
    assert "approved" in agent.result()["error"], "an invalid answer decides nothing"
    answer = {"interruptId": "1.1.0", "status": "resolved", "payload": {"approved": True}}
    agent.run(resume=[answer])
    worker.wait(lambda views: views.turn.calls and views.turn.calls[0].decision == "allow")
    worker.tool_start()
    worker.tool_result("done")
    worker.answer("bought")
    result = agent.result()
    assert result["error"] is None and result["finished"] == ["success"]
    (started,) = of(result, "RUN_STARTED")
    assert (started["runId"], started["parentRunId"]) == (f"{session}:1.1", f"{session}:1")
    (finished,) = of(result, "RUN_FINISHED")
    assert finished["usage"] == [SPENT], "its own call only, not that of the interrupted run"
    assert "MESSAGES_SNAPSHOT" not in kinds(result)
    roles = ["user", "assistant", "tool", "assistant"]
    assert [m["role"] for m in result["messages"]] == roles
    agent.run(resume=[answer])
    again = agent.result()
    assert again["error"] is None and again["messages"] == result["messages"], "the same run again"
    (value,) = [e["value"] for e in of(again, "CUSTOM") if e["name"] == "already_answered"]
    assert (value["call"], value["sent"], value["counts"]) == ("1.1.0", "allow", "allow")


def test_S2_a_denial_and_a_resolved_doubt_are_sent_in_one_request(log, agent, session):
    agent.run("m1", "both")
    worker = worker_of(log, session)
    worker.propose("", ("charge", {}), ("post", {}))
    worker.invoke(0, approval="ask")
    worker.invoke(1)
    worker.tool_start(1)
    worker.uncertain(1)
    result = agent.result()
    assert ["expiresAt" in i for i in result["pendingInterrupts"]] == [True, False]
    waits = [(i["id"], i["reason"]) for i in result["pendingInterrupts"]]
    assert waits == [("1.1.0", "tool_approval"), ("1.1.1", "tool_in_doubt")]
    denial = {"interruptId": "1.1.0", "status": "cancelled"}
    doubt = {"interruptId": "1.1.1", "status": "resolved", "payload": {"happened": True}}
    agent.run(resume=[denial, doubt])
    assert "State what happened" in agent.result()["error"]
    assert worker.views.turn.calls[0].status == "asks", "one invalid answer: none is sent"
    doubt["payload"]["report"] = "it was posted"
    agent.run(resume=[denial, doubt])
    worker.wait(lambda views: all(call.status == "done" for call in views.turn.calls))
    worker.answer("so be it")
    result = agent.result()
    results = {m["toolCallId"]: m["content"] for m in result["messages"] if m["role"] == "tool"}
    assert results == {"1.1.0": "deny", "1.1.1": "it was posted"}
    assert result["error"] is None and result["messages"][-1]["content"] == "so be it"


def test_S2_a_superseded_attempt_is_removed_and_a_failure_is_an_error(log, agent, session):
    agent.run("m1", "go")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("the wrong ")
    worker.resume("w2/1")
    worker.chunk("the ")
    worker.fail(permanent=True)
    worker.end("failed")
    result = agent.result()
    assert texts(result) == [("user", "go")]
    (failed,) = of(result, "RUN_ERROR")
    assert failed["code"] == "failed" and "overloaded" in failed["message"]
    agent.run("m2", "and now?")
    worker.wait(lambda views: views.turn.open)
    worker.answer("better")
    assert texts(agent.result())[1:] == [("user", "and now?"), ("assistant", "better")]


def test_S2_connect_replays_a_thread_and_continues_the_open_run(
    log, gateway, ana, node_client, session
):
    first = Agent(node_client, gateway, "a", session)
    first.run("m1", "one")
    worker = worker_of(log, session)
    worker.answer("eins")
    before = first.result()
    message = {"text": "two", "message_id": "m2"}
    ana.post(f"/v1/sessions/{session}/messages", json=message).raise_for_status()
    worker.wait(lambda views: views.turn.open)
    worker.call()
    worker.start()
    worker.chunk("zw")
    late = Agent(node_client, gateway, "b", session)
    late.connect()
    worker.chunk("ei")
    worker.complete("zwei")
    worker.end()
    result = late.result()
    assert result["error"] is None and result["finished"] == ["success", "success"]
    assert [e["runId"] for e in of(result, "RUN_STARTED")] == [f"{session}:1", f"{session}:2"]
    new = [("user", "two"), ("assistant", "zwei")]
    assert texts(result) == [*texts(before), *new]
    again = Agent(node_client, gateway, "c", session, messages=before["messages"])
    again.connect()
    result = again.result()
    assert texts(result) == [*texts(before), *new] and result["state"]["last_message_id"] == "m2"


def test_S0_7_a_queued_message_is_answered_by_the_run_that_takes_it(log, ana, agent, session):
    ana.post(f"/v1/sessions/{session}/messages", json={"text": "one", "message_id": "m1"})
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("ei")
    agent.run("m2", "two")
    worker.wait(lambda views: views.turn.queue)
    worker.complete("eins")
    worker.end()
    worker.answer("zwei")
    result = agent.result()
    assert [e["runId"] for e in of(result, "RUN_STARTED")] == [f"{session}:1", f"{session}:2"]
    spoken = [("user", "one"), ("user", "two"), ("assistant", "eins"), ("assistant", "zwei")]
    assert result["error"] is None and texts(result) == spoken


def test_S0_10_a_repeated_message_is_sent_once_and_gets_the_same_run(
    log, gateway, node_client, agent, session
):
    agent.run("m1", "hello")
    worker = worker_of(log, session)
    worker.answer("hello you")
    first = agent.result()
    again = Agent(node_client, gateway, "b", session)
    again.run("m1", "hello")
    assert again.result()["messages"] == first["messages"]
    assert len(worker.views.messages.received) == 1


@pytest.mark.parametrize(
    ("status", "code", "change"),
    [
        (400, "unknown_protocol_version", {"protocolVersion": "2.0"}),
        (400, "invalid_id", {"threadId": "no such/id"}),
        (400, "invalid", {"messages": "hello"}),
        (400, "invalid", {"messages": [{"role": "user"}]}),
        (400, "invalid", {"resume": [{"interruptId": "1.1.0", "status": "maybe"}]}),
        (409, "unknown_call", {"resume": [{"interruptId": "9.9.9", "status": "cancelled"}]}),
        (400, "nothing_said", {"messages": []}),
        (400, "empty_message", {"messages": [{"id": "x", "role": "user", "content": " "}]}),
        (400, "invalid_word", {"forwardedProps": {"when_busy": "shout"}}),
        (400, "invalid_content",
         {"messages": [{"id": "x", "role": "user", "content": [{"type": "audio"}]}]}),
    ],
)
def test_S2_bad_input_is_refused_with_a_code_and_changes_nothing(
    log, gateway, ana, session, status, code, change
):
    ana.post("/v1/sessions", json={"session_id": session})
    before = Played(log, own_id("ana", session)).fold.end()
    messages = [{"id": "m1", "role": "user", "content": "hi"}]
    body = {"threadId": session, "runId": "r", "messages": messages, **change}
    response = ana.post("/agui", json=body)
    assert (response.status_code, response.json()["code"]) == (status, code), response.json()
    assert Played(log, own_id("ana", session)).fold.end() == before


def test_an_image_is_stored_as_a_blob(log, agent, session):
    source = {"type": "data", "value": PNG, "mimeType": "image/png"}
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    agent.run("m1", parts)
    worker = worker_of(log, session)
    content = worker.views.messages.received.last("m1").content
    assert b"foldlog_blob" in content.inline and PNG.encode() not in content.inline
    worker.answer("a dot")
    result = agent.result()
    assert result["error"] is None and result["messages"][-1]["content"] == "a dot"


def test_S2_a_request_without_a_new_message_joins_the_open_run(log, gateway, ana, agent, session):
    url = f"/v1/sessions/{session}"
    ana.post(f"{url}/messages", json={"text": "one", "message_id": "m1"}).raise_for_status()
    worker = worker_of(log, session)
    worker.call()
    ana.post(f"{url}/messages", json={"text": "two", "message_id": "m2"}).raise_for_status()
    worker.start()
    worker.complete("eins")
    worker.end()
    worker.wait(lambda _views: ana.get(url).json()["turn"] == 2)
    before = gateway.gateway.hub.viewers
    agent.run()
    worker.wait(lambda _views: gateway.gateway.hub.viewers > before)
    worker.answer("zwei")
    result = agent.result()
    assert result["error"] is None and result["finished"] == ["success"]
    assert [e["runId"] for e in of(result, "RUN_STARTED")] == [f"{session}:2"]
    assert texts(result)[-1] == ("assistant", "zwei")


def test_S2_a_stream_ends_with_its_token(log, gateway, ana, session, monkeypatch):
    message = {"text": "one", "message_id": "m1"}
    ana.post(f"/v1/sessions/{session}/messages", json=message).raise_for_status()
    worker = worker_of(log, session)
    body = {"threadId": session, "messages": []}
    with ana.stream("POST", "/agui/connect?follow=true", json=body) as response:
        lines = lines_of(response)
        assert "RUN_STARTED" in next(lines)
        monkeypatch.setattr(subscriptions, "time", FarAway)
        worker.answer("not for an expired token")
        rest = "".join(lines)
    assert "stream_cut" in rest
    assert rest.count("RUN_FINISHED") == 0


class FarAway:
    """A clock that is so far in the future that every token has expired."""

    time = staticmethod(lambda: 2.0**40)
