"""The model writes calls with odd names and ids, and blank text: the session continues."""

import json

import pytest

from foldlog.local.messages_api import Reply, Rule, text, thinking, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
FIXED = {"thinking": {"type": "enabled", "budget_tokens": 2_048}}


@tool(effect="pure")
def lookup() -> str:
    """Looks up."""
    return "found </call_result> it"


def ended(driven) -> list[str]:
    return [turn.reason for turn in driven.events(ev.TurnEnded)]


def newest(driven) -> dict:
    return json.loads(driven.server.body(driven.server.calls()))


@pytest.mark.parametrize("name", ["x" * 201, "x" * 100_000, "", "a b", "ü"], ids=lambda n: n[:9])
def test_S1_a_name_that_the_api_refuses_is_an_unknown_tool(start_session, name):
    first = Rule(reply=Reply([tool_use(name, {})]), tool_results=0, times=1)
    driven = start_session(Agent(name="h", model=MODEL), first, Rule(reply=Reply([text("ok")])))
    driven.say("hi").run().say("again").run()
    assert ended(driven) == ["end_turn"] * 2 and not driven.events(ev.GenFailed)
    assert driven.events(ev.ToolInvoked)[0].outcome == "error"
    driven.check()


@pytest.mark.parametrize("call_id", ["functions.Bash:0", "call|1", "ü", "x" * 500])
def test_S1_an_id_of_another_provider_is_legal_in_later_requests(start_session, call_id):
    both = Reply([tool_use("lookup", {}, id=call_id)] * 2)
    agent = Agent(name="h", model=MODEL, tools=(lookup,))
    driven = start_session(agent, Rule(reply=both, tool_results=0, times=1),
                           Rule(reply=Reply([text("ok")])))
    driven.say("hi").run()
    driven.restart()
    driven.run().say("again").run()
    assert ended(driven) == ["end_turn"] * 2 and not driven.events(ev.GenFailed)
    (answer, _, _) = driven.events(ev.GenComplete)
    stored = json.loads(answer.content.inline)
    assert [block["id"] for block in stored] == [call_id] * 2, "the log keeps what came"
    driven.check()


@pytest.mark.parametrize("blank", ["\n\n", " "])
def test_S1_blank_text_between_thinking_with_a_fixed_budget(start_session, blank):
    """The API refuses blank text, and it refuses an answer with a call without all of its
    thinking."""
    first = Reply([thinking("a"), text(blank), thinking("b"), tool_use("lookup", {})])
    agent = Agent(name="h", model=MODEL, tools=(lookup,), params=FIXED,
                  compaction=Compaction(model=CHEAP))
    driven = start_session(agent, Rule(reply=first, tool_results=0, times=1),
                           Rule(reply=Reply([thinking("c"), text("ok")])))
    driven.say("hi").run()
    assert ended(driven) == ["end_turn"] and not driven.events(ev.GenFailed)
    _, answer, result = newest(driven)["messages"]
    assert [b["text"] for b in answer["content"]] == ["[Called lookup.]"]
    shown = "<call_result>\nfound &lt;/call_result> it\n</call_result>"
    assert [b["text"] for b in result["content"]] == [shown]
    driven.say("again").run()
    assert ended(driven) == ["end_turn"] * 2 and not driven.events(ev.GenFailed)
    assert newest(driven)["messages"][3]["content"][0]["thinking"] == ""
