"""Tools of MCP servers end to end: the model finds a tool, a person approves the call, and the tool
runs once."""

import json

import pytest

from foldlog.local.messages_api import Reply, Rule, text, tool_use
from foldlog.processors.request.build import request_bytes
from foldlog.schemas import events as ev
from foldlog.tests.kit.manual_worker import SESSION, USER
from foldlog.tests.processors.outside.conftest import World

MODEL = "claude-opus-5-5"


def answers(request):
    """Replies as the model: searches for a tool, calls the tool that it found, then answers."""
    done = len(request.turn_results)
    cents = int(request.last_user_text.split()[-1])
    steps = [
        tool_use("find_tools", {"query": "charge a card"}),
        tool_use("use_tool", {"name": "small__charge", "arguments": {"cents": cents}}),
    ]
    return Reply([steps[done] if done < len(steps) else text("It is paid.")])


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def drive(start_session):
    return lambda agent, *rules: start_session(agent, *rules, Rule(reply=answers))


def decide(driven, call, *, remember):
    driven.put(
        "producer",
        ev.ApprovalDecided(
            call=call.key,
            args_sha256=call.args_sha256,
            decision="allow",
            remember=remember,
            by_user=USER,
        ),
    )
    driven.run()


def test_S3_8_a_tool_found_by_search_is_approved_by_its_own_name_and_runs_once(world, drive):
    agent = world.begin(world.stdio(rare=("*",)))
    driven = drive(agent)
    driven.say("pay 500").run()
    (call,) = [c for c in driven.views.turn.calls if c.status == "asks"]
    assert call.name == "small__charge", "the approval names the real tool"
    assert json.loads(call.args.inline) == {"name": "small__charge", "arguments": {"cents": 500}}
    assert world.calls() == []
    decide(driven, call, remember=True)
    assert world.calls() == ["charge"]
    assert driven.views.turn.grants == ("small__charge",), "the grant does not cover other tools"
    assert not driven.views.turn.open
    driven.say("pay 700").run()
    assert world.calls() == ["charge", "charge"] and not driven.views.turn.open
    body = json.loads(request_bytes(driven.views, driven.read_blob))
    names = [tool["name"] for tool in body["tools"]]
    assert names == ["find_tools", "use_tool"], "other schemas are not sent"
    assert len(driven.events(ev.ContextSet)) == 1, "the prefix never changed"


def test_a_server_that_dies_during_a_call_leaves_the_call_in_doubt(world, drive):
    agent = world.begin(world.stdio(approvals={"*": "none"}))
    (name,) = [t.name for t in agent.tools if "die" in t.name]
    driven = drive(agent, Rule(reply=Reply([tool_use(name, {})]), tool_results=0))
    driven.say("pay 1").run()
    (call,) = driven.views.turn.calls
    assert call.status == "doubt" and driven.views.turn.open
    assert world.calls() == ["die"]
    driven.restart()
    driven.run()
    assert world.calls() == ["die"], "the call was not retried"
    assert driven.views.session_id == SESSION
