"""The real HttpAgent and a gateway that serves: runs, interrupts, resume, replay, bad input."""

from datetime import datetime
from pathlib import Path

import pytest

from foldlog.consumers.gateway import subscriptions
from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.names import own_id
from foldlog.tests.consumers.played import Played
from foldlog.tests.consumers.protocols.spoken import PNG, SECRET, worker_of

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
        """runAgent, with something new to say or without; the answer is to be received."""
        said = {"id": message_id, "role": "user", "content": text}
        self.node.send({"name": self.name, **({"message": said} if message_id else {}), **more})

    def connect(self):
        """connectAgent."""
        self.node.send({"name": self.name, "connect": True})

    def held(self):
        """What the agent holds when its call has ended."""
        held = self.node.receive()
        assert held["warnings"] == []
        return held


def kinds(held):
    return [event["type"] for event in held["seen"]]


def of(held, kind):
    return [event for event in held["seen"] if event["type"] == kind]


def texts(held):
    return [(m["role"], m.get("content")) for m in held["messages"]]


def test_S2_a_run_streams_and_the_next_one_follows_from_it(log, gateway, node_client, session):
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m1", "hello")
    worker_of(log, session).answer("hello you")
    held = agent.held()
    assert held["error"] is None and held["finished"] == ["success"]
    assert texts(held) == [("user", "hello"), ("assistant", "hello you")]
    assert held["state"]["session_id"] == own_id("ana", session)
    assert held["state"]["phase"] == "chatting"
    assert "MESSAGES_SNAPSHOT" not in kinds(held), "the client has all there is"
    agent.run("m2", "again")
    worker_of(log, session).answer("and again")
    held = agent.held()
    (started,) = of(held, "RUN_STARTED")
    assert (started["runId"], started["parentRunId"]) == (f"{session}:2", f"{session}:1")
    assert texts(held)[2:] == [("user", "again"), ("assistant", "and again")]


def test_S2_an_approval_is_an_interrupt_and_its_answer_a_run(log, gateway, node_client, session):
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m1", "buy it")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.complete("I buy.", [("charge", {"cents": 3})])
    worker.invoke(approval="ask")
    held = agent.held()
    (interrupt,) = held["pendingInterrupts"]
    assert (interrupt["id"], interrupt["reason"]) == ("1.1.0", "tool_approval")
    until = datetime.fromisoformat(interrupt["expiresAt"]).timestamp() * 1000
    assert round(until) == worker.views.turn.calls[0].expires_at
    (finished,) = of(held, "RUN_FINISHED")
    assert finished["usage"] == [SPENT]
    agent.run(resume=[{"interruptId": "1.1.0", "status": "resolved", "payload": {"approved": 1}}])
    assert "approved" in agent.held()["error"], "what is no answer decides nothing"
    answer = {"interruptId": "1.1.0", "status": "resolved", "payload": {"approved": True}}
    agent.run(resume=[answer])
    worker.wait(lambda views: views.turn.calls and views.turn.calls[0].decision == "allow")
    worker.tool_start()
    worker.tool_result("done")
    worker.answer("bought")
    held = agent.held()
    assert held["error"] is None and held["finished"] == ["success"]
    (started,) = of(held, "RUN_STARTED")
    assert (started["runId"], started["parentRunId"]) == (f"{session}:1.1", f"{session}:1")
    (finished,) = of(held, "RUN_FINISHED")
    assert finished["usage"] == [SPENT], "of its own call, not of the interrupted run's"
    assert "MESSAGES_SNAPSHOT" not in kinds(held)
    roles = ["user", "assistant", "tool", "assistant"]
    assert [m["role"] for m in held["messages"]] == roles
    agent.run(resume=[answer])
    assert "409" in agent.held()["error"], "an answer counts once"


def test_S2_a_denied_call_and_a_doubt_are_answered_the_same_way(log, gateway, node_client, session):
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m1", "both")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.complete("", [("charge", {}), ("post", {})])
    worker.invoke(0, approval="ask")
    worker.invoke(1)
    worker.tool_start(1)
    worker.uncertain(1)
    held = agent.held()
    assert ["expiresAt" in i for i in held["pendingInterrupts"]] == [True, False]
    waits = [(i["id"], i["reason"]) for i in held["pendingInterrupts"]]
    assert waits == [("1.1.0", "tool_approval"), ("1.1.1", "tool_in_doubt")]
    denial = {"interruptId": "1.1.0", "status": "cancelled"}
    doubt = {"interruptId": "1.1.1", "status": "resolved", "payload": {"happened": True}}
    agent.run(resume=[denial, doubt])
    assert "state what happened" in agent.held()["error"]
    assert worker.views.turn.calls[0].status == "asks", "one invalid answer: none is sent"
    doubt["payload"]["report"] = "it was posted"
    agent.run(resume=[denial, doubt])
    worker.wait(lambda views: all(call.status == "done" for call in views.turn.calls))
    worker.answer("so be it")
    held = agent.held()
    said = {m["toolCallId"]: m["content"] for m in held["messages"] if m["role"] == "tool"}
    assert said == {"1.1.0": "deny", "1.1.1": "it was posted"}
    assert held["error"] is None and held["messages"][-1]["content"] == "so be it"


def test_S2_a_superseded_attempt_and_a_failure(log, gateway, node_client, session):
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m1", "go")
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("the wrong ")
    worker.resume("w2/1")
    worker.chunk("the ")
    worker.fail(permanent=True)
    worker.end("failed")
    held = agent.held()
    assert texts(held) == [("user", "go")]
    (failed,) = of(held, "RUN_ERROR")
    assert failed["code"] == "failed" and "overloaded" in failed["message"]
    agent.run("m2", "and now?")
    worker.wait(lambda views: views.turn.open)
    worker.answer("better")
    assert texts(agent.held())[1:] == [("user", "and now?"), ("assistant", "better")]


def test_S2_a_thread_is_replayed_by_connect_and_the_open_run_goes_on(
    log, gateway, ana, node_client, session
):
    first = Agent(node_client, gateway, "a", session)
    first.run("m1", "one")
    worker = worker_of(log, session)
    worker.answer("eins")
    always = first.held()
    say = {"text": "two", "message_id": "m2"}
    ana.post(f"/v1/sessions/{session}/messages", json=say).raise_for_status()
    worker.wait(lambda views: views.turn.open)
    worker.call()
    worker.start()
    worker.chunk("zw")
    late = Agent(node_client, gateway, "b", session)
    late.connect()
    worker.chunk("ei")
    worker.complete("zwei")
    worker.end()
    held = late.held()
    assert held["error"] is None and held["finished"] == ["success", "success"]
    assert [e["runId"] for e in of(held, "RUN_STARTED")] == [f"{session}:1", f"{session}:2"]
    spoken = [("user", "two"), ("assistant", "zwei")]
    assert texts(held) == [*texts(always), *spoken]
    again = Agent(node_client, gateway, "c", session, messages=always["messages"])
    again.connect()
    held = again.held()
    assert texts(held) == [*texts(always), *spoken] and held["state"]["last_message_id"] == "m2"


def test_S0_7_a_message_behind_a_running_turn_is_answered_by_the_run_that_takes_it(
    log, gateway, ana, node_client, session
):
    ana.post(f"/v1/sessions/{session}/messages", json={"text": "one", "message_id": "m1"})
    worker = worker_of(log, session)
    worker.call()
    worker.start()
    worker.chunk("ei")
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m2", "two")
    worker.wait(lambda views: views.turn.queue)
    worker.complete("eins")
    worker.end()
    worker.answer("zwei")
    held = agent.held()
    assert [e["runId"] for e in of(held, "RUN_STARTED")] == [f"{session}:1", f"{session}:2"]
    said = [("user", "one"), ("user", "two"), ("assistant", "eins"), ("assistant", "zwei")]
    assert held["error"] is None and texts(held) == said


def test_S0_10_the_same_message_again_is_said_once_and_gets_the_same_run(
    log, gateway, node_client, session
):
    agent = Agent(node_client, gateway, "a", session)
    agent.run("m1", "hello")
    worker = worker_of(log, session)
    worker.answer("hello you")
    first = agent.held()
    again = Agent(node_client, gateway, "b", session)
    again.run("m1", "hello")
    assert again.held()["messages"] == first["messages"]
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
    said = [{"id": "m1", "role": "user", "content": "hi"}]
    body = {"threadId": session, "runId": "r", "messages": said, **change}
    answer = ana.post("/agui", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.json()
    assert Played(log, own_id("ana", session)).fold.end() == before


def test_S2_without_a_token_nothing_is_said(gateway, session):
    with gateway.http() as nobody:
        for path in ("/agui", "/agui/connect"):
            body = {"threadId": session, "messages": []}
            assert nobody.post(path, json=body).status_code == 401


def test_an_image_goes_through_the_blob_store(log, gateway, node_client, session):
    agent = Agent(node_client, gateway, "a", session)
    source = {"type": "data", "value": PNG, "mimeType": "image/png"}
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    agent.run("m1", parts)
    worker = worker_of(log, session)
    content = worker.views.messages.received.last("m1").content
    assert b"foldlog_blob" in content.inline and PNG.encode() not in content.inline
    worker.answer("a dot")
    held = agent.held()
    assert held["error"] is None and held["messages"][-1]["content"] == "a dot"


def test_S2_a_client_that_asks_for_nothing_new_joins_the_run_that_is_open(
    log, gateway, ana, node_client, session
):
    url = f"/v1/sessions/{session}"
    ana.post(f"{url}/messages", json={"text": "one", "message_id": "m1"}).raise_for_status()
    worker = worker_of(log, session)
    worker.call()
    ana.post(f"{url}/messages", json={"text": "two", "message_id": "m2"}).raise_for_status()
    worker.start()
    worker.complete("eins")
    worker.end()
    worker.wait(lambda _views: ana.get(url).json()["turn"] == 2)
    agent = Agent(node_client, gateway, "a", session)
    before = gateway.gateway.hub.viewers
    agent.run()
    worker.wait(lambda _views: gateway.gateway.hub.viewers > before)
    worker.answer("zwei")
    held = agent.held()
    assert held["error"] is None and held["finished"] == ["success"]
    assert [e["runId"] for e in of(held, "RUN_STARTED")] == [f"{session}:2"]
    assert texts(held)[-1] == ("assistant", "zwei")


def test_S2_a_stream_ends_with_its_token(log, gateway, ana, session, monkeypatch):
    say = {"text": "one", "message_id": "m1"}
    ana.post(f"/v1/sessions/{session}/messages", json=say).raise_for_status()
    worker = worker_of(log, session)
    body = {"threadId": session, "messages": []}
    with ana.stream("POST", "/agui/connect?follow=true", json=body) as answer:
        lines = answer.iter_lines()
        assert "RUN_STARTED" in next(lines)
        monkeypatch.setattr(subscriptions, "time", FarAway)
        worker.answer("not for you any more")
        rest = "".join(lines)
    assert "stream_cut" in rest
    assert rest.count("RUN_FINISHED") == 0


class FarAway:
    """A clock by which every token has expired."""

    time = staticmethod(lambda: 2.0**40)
