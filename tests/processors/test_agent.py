"""An agent is validated when it is created, and the same tools result in the same bytes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from foldlog.processors.agent import Agent, Compaction, Rule
from foldlog.processors.fold.transitions import TRANSITIONS
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.schemas.enums import Approval


@tool(effect="pure")
def look(path: str) -> str:
    """Read ä path."""


@tool(approval="ask")
def run_it(command: str) -> str:
    """Run it."""


@tool(approval="deny")
def run_away() -> str:
    """Run away."""


def agent(**changes):
    return Agent(**{"name": "shop", "model": "m", "tools": [look, run_it, run_away], **changes})


def test_tools_are_found_by_name():
    assert agent().tool("look") is look
    assert agent().tool("other") is None


def test_tools_json_is_compact_stable_and_in_order():
    data = agent().tools_json()
    assert data == agent(tools=(t for t in [look, run_it, run_away])).tools_json()
    assert data.startswith(
        '[{"name":"look","description":"Read ä path.","input_schema":'.encode()
    )
    assert [t["name"] for t in json.loads(data)] == ["look", "run_it", "run_away"]
    assert data == json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()


def test_params_json_begins_with_the_output_limit():
    assert agent(params={"thinking": {"type": "adaptive"}}).params_json() == (
        b'{"max_tokens":8192,"thinking":{"type":"adaptive"}}'
    )


def test_S1_D_without_rules_the_approval_is_the_tools():
    assert [agent().approval(t) for t in ("look", "run_it", "run_away")] == [
        Approval.NONE,
        Approval.ASK,
        Approval.DENY,
    ]


def test_S1_D_the_first_matching_rule_applies():
    rules = [("run_away", "ask"), ("run_*", "deny"), Rule("*", "allow")]
    assert [agent(permissions=rules).approval(t) for t in ("look", "run_it", "run_away")] == [
        Approval.NONE,
        Approval.DENY,
        Approval.ASK,
    ]


def test_S2_12_a_rule_applies_only_in_its_phases():
    found = agent(permissions=[("look", "deny", ["done", "building"]), ("look", "ask")])
    assert found.permissions[0].phases == ("building", "done"), "in the order of the table"
    assert [found.approval("look", phase) for phase in TRANSITIONS] == [
        Approval.ASK, Approval.DENY, Approval.ASK, Approval.DENY
    ]


@pytest.mark.parametrize(
    ("phases", "error", "message"),
    [
        (("bilding",), ValueError, "phases of tool look: 'bilding' is not one of chatting, build"),
        ("building", TypeError, "phases of tool look must be a list of phases, not 'building'"),
        (None, TypeError, "must be a list of phases, not None"),
        ((None,), ValueError, "None is not one of"),
        (([],), ValueError, "\\[\\] is not one of"),
    ],
)
def test_S2_12_a_phase_that_does_not_exist_is_refused_when_the_tool_is_made(phases, error, message):
    with pytest.raises(error, match=message):
        tool(name="look", phases=phases)(look.function)
    with pytest.raises(error, match=message):
        replace(look, phases=phases)


def test_the_approval_of_an_unknown_tool_raises_key_error():
    with pytest.raises(KeyError, match="other"):
        agent(permissions=[("run_*", "deny")]).approval("other")


def test_a_relative_workdir_becomes_absolute():
    assert agent(workdir="somewhere").workdir == Path.cwd() / "somewhere"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": "a shop"}, ValueError, "name of an agent must be 1-128"),
        ({"name": ""}, ValueError, "name of an agent"),
        ({"model": " "}, ValueError, "name of a model"),
        ({"system": None}, TypeError, "system prompt of agent shop"),
        ({"tools": [look, look]}, ValueError, "two tools named 'look'"),
        ({"tools": [look, replace(run_it, name="look")]}, ValueError, "two tools named 'look'"),
        (
            {"tools": [replace(look, name="find_tools"), replace(run_it, tier="rare")]},
            ValueError,
            "'find_tools' is reserved for the tool search, which finds tools that are rare",
        ),
        ({"tools": [len]}, TypeError, "len is not a tool, decorate it with @tool"),
        ({"tools": look}, TypeError, r"tools must be a list, not .{60}\.\.\.$"),
        ({"limits": {"soft_tokens": 9}}, TypeError, "limits must be Limits.*, not {'soft_tokens'"),
        ({"compaction": "haiku"}, TypeError, "compaction must be Compaction.*, not 'haiku'"),
        ({"compaction": Compaction(model=" ")}, ValueError, "compaction needs the name of a model"),
        ({"compaction": Compaction(provider="no")}, TypeError, "provider must be True or False"),
        ({"strategy": None}, ValueError, "agent shop: strategy must be a string, not None"),
        ({"strategy": "window"}, ValueError, "no context strategy 'window'"),
        ({"instructions": "FOLDLOG.md"}, TypeError, "instructions must be True or False"),
        ({"permissions": "deny"}, TypeError, "permissions must be a list"),
        ({"permissions": [("run_*",)]}, TypeError, "is not \\(tools, decision\\) or"),
        ({"permissions": [("look", "ask", "building")]}, TypeError, "must be a list of phases"),
        (
            {"permissions": [("look", "ask", ["bilding"])]},
            ValueError,
            "agent shop: phases of the rule for 'look': 'bilding' is not one of chatting, building",
        ),
        ({"permissions": [("run_*", "none")]}, ValueError, "not one of allow, ask, deny"),
        ({"permissions": [("run_ti", "deny")]}, ValueError, "'run_ti', which it does not have"),
        ({"max_output_tokens": 0}, ValueError, "max_output_tokens must be 1 or more"),
        ({"limits": Limits(steps=0)}, ValueError, "limits.steps must be 1 or more"),
        ({"limits": Limits(steps=True)}, ValueError, "limits.steps"),
        ({"limits": Limits(soft_tokens=10, hard_tokens=9)}, ValueError, "soft_tokens"),
        (
            {"system": "word " * 50, "limits": Limits(soft_tokens=9, hard_tokens=20)},
            ValueError,
            "its prompt has about .* tokens, and no request may have more than 20",
        ),
        ({"params": {"stream": True}}, ValueError, "params must not set stream"),
        ({"params": {"x": {1, 2}}}, TypeError, "params of agent shop are not JSON"),
        ({"params": None}, TypeError, "params must be a dict, not None"),
        ({"params": [("stream", True)]}, TypeError, "params must be a dict"),
    ],
)
def test_an_invalid_agent_is_refused_when_it_is_created(changes, error, message):
    with pytest.raises(error, match=message):
        agent(**changes)


MARK = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("params", "name"),
    [({name: None}, name) for name in ("model", "max_tokens", "system", "tools", "messages")]
    + [
        ({"cache_control": MARK}, "cache_control"),
        ({"cache_control": None}, "cache_control"),
        ({"compaction": {"type": "summarize"}}, "compaction"),
        ({"extra_body": {"cache_control": MARK}}, "extra_body"),
        ({"betas": ["compact-2026-09-04"]}, "betas"),
        ({"mcp_servers": [{"name": "s", "cache_control": MARK}]}, "cache_control"),
        ({"context_management": {"edits": [[{"cache_control": MARK}]]}}, "cache_control"),
    ],
)
def test_a_parameter_that_foldlog_sets_itself_is_refused_when_the_agent_is_created(params, name):
    """With a second cache mark or another `messages`, the API rejects every request."""
    with pytest.raises(ValueError, match=f"agent shop: params must not set {name}"):
        agent(params=params)


def test_an_output_schema_may_have_a_property_named_cache_control():
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    params = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    assert json.loads(agent(params=params).params_json())["output_config"]["format"]["schema"]


@pytest.mark.parametrize("budget", [1_023, 8_192, 100_000, True, "2048", None])
def test_a_thinking_budget_of_invalid_size_is_refused_when_the_agent_is_created(budget):
    """The API rejects every request with such a budget, so every turn would fail."""
    thinking = {"type": "enabled", "budget_tokens": budget}
    with pytest.raises(ValueError, match="budget_tokens of its thinking"):
        Agent(name="a", model="m", params={"thinking": thinking})


@pytest.mark.parametrize(
    "thinking", [{"type": "enabled", "budget_tokens": 8_191}, {"type": "adaptive"}, None]
)
def test_a_valid_thinking_budget_is_accepted(thinking):
    assert b"thinking" in Agent(name="a", model="m", params={"thinking": thinking}).params_json()
