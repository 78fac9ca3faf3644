"""The digests of two agents are equal if the agents are equal, on any machine, and different if
their events may differ."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.agent_digest import (
    PARTS,
    differences,
    digest_of,
    digest_of_all,
    digests_of,
    parts_of,
)
from foldlog.processors.limits import Limits
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.tools.tool import Tool, tool
from foldlog.schemas.events.parts import AgentDigest
from foldlog.tests.kit.programs import run


@tool(effect="pure")
def look(place: str, how: Literal["near", "far"] = "near", often: int | None = None) -> str:
    """Look at a place.

    As often as is wanted.
    """
    return place


@tool(effect="pure", name="look")
def look_closer(place: str) -> str:
    """Look at a place."""
    return place


def agent(**changed) -> Agent:
    fields = {"name": "shop", "model": "m", "system": "You sell.", "tools": [look]}
    return Agent(**{**fields, **changed})


PINNED = "a29906f944993e21f6ffeed1eb023e4c"


def test_A6_the_digest_of_an_agent_never_changes():
    """Workers of another version, process or Python version must compute the same digest."""
    assert digest_of(agent()) == AgentDigest(name="shop", digest=PINNED)


def test_A6_another_process_computes_the_same_digest():
    code = (
        "from foldlog.tests.processors.test_agent_digest import agent, digest_of;"
        "print(digest_of(agent()).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    result = run([sys.executable, "-c", code], env=environment, check=True)
    assert result.stdout.strip() == digest_of(agent()).digest


def changed_tool(**more) -> Tool:
    return replace(look, **more)


CHANGED = {
    "model": [
        agent(model="n"),
        agent(params={"temperature": 0.5}),
        agent(max_output_tokens=9),
        agent(strategy="full"),
        agent(recovery="resume"),
    ],
    "prompt": [agent(system="You buy."), agent(directive="Be kind."), agent(instructions=False)],
    "tools": [
        agent(tools=[]),
        agent(tools=[look_closer]),
        agent(tools=[changed_tool(approval="ask")]),
        agent(tools=[changed_tool(effect="once")]),
        agent(tools=[changed_tool(timeout_ms=5)]),
        agent(tools=[changed_tool(stops=True)]),
        agent(tools=[changed_tool(phases=("building",))]),
        agent(permissions=[("look", "deny")]),
        agent(mcp=[McpServer(name="files", command=("x",))]),
    ],
    "limits": [agent(limits=Limits(steps=7)), agent(limits=Limits(ping_timeout_ms=7))],
}


@pytest.mark.parametrize("part", PARTS)
def test_A6_a_difference_is_named_by_its_part(part):
    for other in CHANGED[part]:
        found = differences(digests_of([agent()]), digests_of([other]))
        assert found == [f"agent shop has another {part}"], other


def test_S2_12_the_phases_of_a_rule_are_in_the_digest_and_no_phases_are_as_before():
    rules = [("look", "deny")], [("look", "deny", ["building"])], [("look", "deny", ["done"])]
    assert len({digest_of(agent(permissions=rule)) for rule in rules}) == 3
    parts = json.dumps(parts_of(agent(permissions=rules[0])))
    assert "phases" not in parts and '["look", "deny"]' in parts


def test_A6_functions_directories_and_secrets_are_not_in_the_digest():
    def server(**more) -> Agent:
        return agent(mcp=[McpServer(name="files", **more)])

    assert digest_of(agent(workdir=Path("/a"))) == digest_of(agent(workdir=Path("/b")))
    assert digest_of(agent(tools=[changed_tool(function=print)])) == digest_of(agent())
    secret = server(command=("x",), env={"TOKEN": "hidden-token"})
    assert digest_of(secret) == digest_of(server(url="https://user:pw@host/key"))
    assert "hidden-token" not in json.dumps(parts_of(secret))


def test_A6_differences_name_agents_that_only_one_side_has_and_the_first_of_many():
    one, two = digests_of([agent(), agent(name="desk")]), digests_of([agent(name="bank")])
    assert differences(one, two) == [
        "agent bank is only there",
        "agent desk is only here",
        "agent shop is only here",
    ]
    assert differences(one, tuple(reversed(one))) == []
    assert digest_of_all(one) == digest_of_all(tuple(reversed(one))) != digest_of_all(two)
    many = digests_of([agent(name=f"a{n}") for n in range(9)])
    assert differences(many, ())[-1] == "and 4 more"
