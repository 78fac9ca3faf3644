"""A worker serves a fork: the fork's requests begin with the parent's bytes, and nothing runs
again."""

import json

from foldlog.client.aio import aconnect
from foldlog.client.events import Answered
from foldlog.local.messages_api import Reply, Rule
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.testing import calls


async def test_a_worker_answers_in_a_fork_and_runs_nothing_of_its_parent_again(foldlog_agent):
    ran = []

    @tool(effect="once")
    def charge(n: int) -> str:
        """Charges a card."""
        ran.append("charge")
        return "charged"

    agent = Agent(name="helper", model="claude-opus-5-5", tools=[charge])
    run = foldlog_agent(agent, script=[calls("charge", n=1), "fine", "fine", "fine"])
    await run.send("pay")
    await run.send("thanks")
    assert ran == ["charge"]
    *_, before = run.requests()
    fork = run.session.fork(session_id="f")
    await run.settle()
    assert run._server.calls() == 3 and ran == ["charge"], "a fork has no pending work"
    reply = fork.send("and now?")
    await run.settle()
    assert reply.answer().text == "fine"
    assert run._server.calls() == 4 and ran == ["charge"]
    after = fork.request("3.1")
    assert before.agrees and after.agrees
    bare = [json.dumps(_plain(request.json["messages"])) for request in (before, after)]
    assert bare[1].startswith(bare[0][:-1])
    entries = map(entry_of, run._engine.records())
    kinds = [type(entry.event) for entry in entries if entry.session_id == "f"]
    assert ev.ToolStarted not in kinds and ev.DeliveryStarted not in kinds
    lines = fork.views().transcript.lines
    assert [line.kind for line in lines][-3:] == ["message", "answer", "ended"]
    assert not run._engine.log_lines
    assert len(run.requests()) == 3, "those of the fork are its own"


async def test_an_edited_result_reaches_the_model_and_no_tool_runs(foldlog_agent):
    ran = []

    @tool(effect="once")
    def look() -> str:
        """Looks outside."""
        ran.append("look")
        return "rain"

    agent = Agent(name="helper", model="claude-opus-5-5", tools=[look])
    run = foldlog_agent(agent, script=[calls("look"), "take a coat", "take a hat"])
    await run.send("what do I wear?")
    async with run.working(), aconnect(run.settings, log=run.log) as log:
        session = await log.session(run.session.id)
        fork, reply = await session.rerun("sun", call="1.1.0")
        assert (await reply).text == "take a hat" and ran == ["look"]
        request = await fork.request("2.1")
    (block,) = request.json["messages"][-1]["content"]
    assert (block["type"], block["content"]) == ("tool_result", "sun") and request.agrees
    entries = map(entry_of, run._engine.records())
    kinds = [type(entry.event) for entry in entries if entry.session_id == fork.id]
    assert kinds[:2] == [ev.SessionOpened, ev.ResultReplaced] and ev.ToolStarted not in kinds
    assert [answer.text for answer in run.history() if isinstance(answer, Answered)][-1] == (
        "take a coat"
    )
    assert not run._engine.log_lines


def _plain(messages):
    """Removes the cache marks from a request."""
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages


async def test_S1_a_fork_leaves_out_what_its_parent_leaves_out(foldlog_agent):
    @tool(effect="pure")
    def fetch() -> str:
        """Fetches."""
        return "POISON"

    agent = Agent(name="helper", model="claude-opus-5-5", tools=[fetch])
    run = foldlog_agent(agent, script=["hello", calls("fetch"), *["fine"] * 3])
    poor = Reply([], fault={"name": "bad_request", "message": "a rule that nobody knows"})
    await run.send("hi")
    run._server.add(Rule(reply=poor, when=lambda r: "POISON" in json.dumps(r.body["messages"])))
    await run.send("fetch it")
    fork = run.session.fork(session_id="f")
    replies = [await run.send("and now?")]
    reply = fork.send("and now?")
    await run.settle()
    assert reply.answer().text == "fine", replies
    parents, forks = run.requests()[-1].json, fork.request("3.1").json
    assert parents["messages"] == forks["messages"]
    assert "[The result of a tool is left out here" in json.dumps(forks)
