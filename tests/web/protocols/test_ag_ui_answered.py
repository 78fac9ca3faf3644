"""An interrupt that was answered elsewhere: a client with it pending can resume, and continue."""

import pytest

from foldlog.schemas import events as ev
from foldlog.tests.web.protocols.test_ag_ui_http import Agent, kinds, node_client, of, texts
from foldlog.tests.web.protocols.workers import worker_of

__all__ = ["node_client"]

PAYLOADS = {
    "allow": {"status": "resolved", "payload": {"approved": True}},
    "deny": {"status": "resolved", "payload": {"approved": False}},
    "cancelled": {"status": "cancelled"},
}
SENT = {"allow": "allow", "deny": "deny", "cancelled": "deny"}


@pytest.fixture
def agent(node_client, gateway, session):
    return Agent(node_client, gateway, "a", session)


def asking(log, agent, session, calls=1):
    """A client with pending approvals, and the played worker of its turn."""
    agent.run("m1", "buy it")
    worker = worker_of(log, session)
    worker.propose("I buy.", *[("charge", {"cents": n}) for n in range(calls)])
    for index in range(calls):
        worker.invoke(index, approval="ask")
    assert len(agent.result()["pendingInterrupts"]) == calls
    return worker


def decide(ana, worker, session, decision, key="1.1.0"):
    """Decide a call as another client does."""
    (sha,) = [call.args_sha256 for call in worker.views.turn.calls if call.key == key]
    body = {"decision": decision, "args_sha256": sha}
    ana.post(f"/v1/sessions/{session}/calls/{key}/decide", json=body).raise_for_status()


def resume(agent, how="allow", key="1.1.0", *more):
    agent.run(resume=[{"interruptId": key, **PAYLOADS[how]}, *more])
    return agent.result()


def earlier(result):
    """The reports on calls that were decided before."""
    values = [e["value"] for e in of(result, "CUSTOM") if e["name"] == "already_answered"]
    return [(v["call"], v["sent"], v["counts"]) for v in values]


def decisions(worker):
    return [line.text for line in worker.views.transcript.lines if line.kind == "approval"]


def settle(ana, log, session, worker, how):
    """End the turn after its approval was decided elsewhere in this way."""
    if how == "allow":
        decide(ana, worker, session, "allow")
        worker.tool_start()
        worker.tool_result("done")
        worker.answer("bought")
    elif how == "deny":
        decide(ana, worker, session, "deny")
        worker.answer("not bought")
    elif how == "cancelled":
        ana.post(f"/v1/sessions/{session}/cancel", json={}).raise_for_status()
        worker.end("cancelled")


@pytest.mark.parametrize("sent", PAYLOADS)
@pytest.mark.parametrize("how", ["allow", "deny", "cancelled"])
def test_a_resume_of_a_decided_call_reports_the_decision_that_counts(
    log, ana, agent, session, how, sent
):
    worker = asking(log, agent, session)
    settle(ana, log, session, worker, how)
    before = decisions(worker)
    agent.connect()
    assert "pending" in agent.result()["error"], "the client itself refuses"
    result = resume(agent, sent)
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert earlier(result) == [("1.1.0", SENT[sent], how)]
    assert decisions(worker) == before, "nothing is decided twice"
    agent.connect()
    connected = agent.result()
    assert connected["error"] is None and connected["messages"] == result["messages"]
    agent.run("m2", "and now?")
    worker_of(log, session, 2).answer("more")
    assert texts(agent.result())[-1] == ("assistant", "more")


def test_an_approval_that_expired_can_only_be_cancelled(log, agent, session):
    agent.run("m1", "buy it")
    worker = worker_of(log, session)
    worker.propose("I buy.", ("charge", {}))
    now_ms, worker.now_ms = worker.now_ms, lambda: 1_000  # the deadline is long over
    worker.invoke(approval="ask")
    worker.now_ms = now_ms
    agent.result()
    worker.append(ev.ApprovalExpired(call="1.1.0"), "sessions")
    worker.answer("not bought")
    assert "expired" in resume(agent, "allow")["error"], "the client itself refuses"
    result = resume(agent, "cancelled")
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert earlier(result) == [("1.1.0", "deny", "expired")]


def test_after_a_failed_run_the_next_message_clears_the_interrupt(log, ana, agent, session):
    """The client keeps its interrupts when a run ends with RUN_ERROR."""
    worker = asking(log, agent, session)
    decide(ana, worker, session, "deny")
    worker.call()
    worker.start()
    worker.fail(permanent=True)
    worker.end("failed")
    agent.run("m2", "and now?", resume=[{"interruptId": "1.1.0", **PAYLOADS["deny"]}])
    worker_of(log, session, 2).answer("better")
    result = agent.result()
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert earlier(result) == [("1.1.0", "deny", "deny")]
    assert texts(result)[-1] == ("assistant", "better")


def test_connect_clears_an_interrupt_and_decides_nothing(log, ana, agent, session):
    worker = asking(log, agent, session)
    entry = {"interruptId": "1.1.0", "status": "cancelled"}
    agent.node.send({"name": agent.name, "connect": True, "resume": [entry]})
    result = agent.result()
    assert result["error"] is None and decisions(worker) == []
    assert [i["id"] for i in result["pendingInterrupts"]] == ["1.1.0"], "it still waits"
    settle(ana, log, session, worker, "allow")
    agent.node.send({"name": agent.name, "connect": True, "resume": [entry]})
    result = agent.result()
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert decisions(worker) == ["allow"] and texts(result)[-1] == ("assistant", "bought")


def test_some_of_several_interrupts_are_answered_elsewhere(log, ana, agent, session):
    worker = asking(log, agent, session, calls=3)
    decide(ana, worker, session, "deny", "1.1.0")
    decide(ana, worker, session, "allow", "1.1.1")
    worker.tool_start(1)
    worker.tool_result("done", 1)
    rest = [{"interruptId": f"1.1.{n}", **PAYLOADS["allow"]} for n in (1, 2)]
    agent.run(resume=[{"interruptId": "1.1.0", **PAYLOADS["allow"]}, *rest])
    worker.wait(lambda views: views.turn.calls[2].decision == "allow")
    worker.tool_start(2)
    worker.tool_result("done", 2)
    worker.answer("bought two")
    result = agent.result()
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert earlier(result) == [("1.1.0", "allow", "deny"), ("1.1.1", "allow", "allow")]
    assert decisions(worker) == ["deny", "allow", "allow"]
    assert texts(result)[-1] == ("assistant", "bought two")


def test_a_resume_ends_with_the_interrupts_that_still_wait(log, ana, gateway, agent, session):
    worker = asking(log, agent, session, calls=2)
    decide(ana, worker, session, "deny")
    entry = {"interruptId": "1.1.0", **PAYLOADS["deny"]}
    body = {"threadId": session, "messages": [], "resume": [entry]}
    text = ana.post("/agui", json=body).text
    assert '"already_answered"' in text and text.count("RUN_FINISHED") == 1
    joined = ana.post("/agui", json={"threadId": session, "messages": []}).text
    last = joined.split("data: ")[-1]
    assert '"id":"1.1.1"' in last and '"id":"1.1.0"' not in last, "not the first, answered pause"


def test_a_doubt_is_settled_elsewhere(log, ana, agent, session):
    agent.run("m1", "post it")
    worker = worker_of(log, session)
    worker.propose("", ("post", {}))
    worker.invoke(approval="ask")
    agent.result()
    decide(ana, worker, session, "allow")
    worker.tool_start()
    worker.uncertain(why="find out whether it was posted")
    result = resume(agent, "deny")
    assert earlier(result) == [("1.1.0", "deny", "allow")]
    (waits,) = result["pendingInterrupts"]
    assert waits["reason"] == "tool_in_doubt"
    assert waits["message"] == "post: what happened? the worker died"
    body = {"outcome": "happened", "report": "it was posted"}
    url = f"/v1/sessions/{session}/calls/1.1.0/resolve"
    ana.post(url, json=body).raise_for_status()
    worker.answer("posted")
    payload = {"happened": False}
    agent.run(resume=[{"interruptId": "1.1.0", "status": "resolved", "payload": payload}])
    result = agent.result()
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert earlier(result) == [("1.1.0", "did_not_happen", "happened")]
    assert texts(result)[-1] == ("assistant", "posted")


def test_an_answer_to_a_turn_that_is_ending_waits_for_its_end(log, ana, agent, session):
    worker = asking(log, agent, session)
    ana.post(f"/v1/sessions/{session}/cancel", json={}).raise_for_status()
    agent.run(resume=[{"interruptId": "1.1.0", **PAYLOADS["allow"]}])
    worker.wait(lambda views: views.turn.refusals)  # the answer came too late
    worker.end("cancelled")
    result = agent.result()
    assert result["error"] is None and result["pendingInterrupts"] == []
    assert "RUN_FINISHED" in kinds(result) and decisions(worker) == []


def test_a_call_that_never_asked_is_still_refused(log, ana, session):
    message = {"text": "go", "message_id": "m1"}
    ana.post(f"/v1/sessions/{session}/messages", json=message).raise_for_status()
    worker = worker_of(log, session)
    worker.propose("", ("read", {}))
    worker.run_tool("contents")
    for key in ("1.1.0", "1.1.7"):
        entry = {"interruptId": key, **PAYLOADS["allow"]}
        body = {"threadId": session, "messages": [], "resume": [entry]}
        response = ana.post("/agui", json=body)
        assert (response.status_code, response.json()["code"]) == (409, "unknown_call")
