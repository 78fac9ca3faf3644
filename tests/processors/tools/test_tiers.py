"""Tool tiers (S3.8): what is in front, what a search finds, that a call through it is a call."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from foldlog import Agent, tool
from foldlog.processors.tools.arguments import why_wrong
from foldlog.processors.tools.tiers import FIND, USE, arranged, resolve, schema_tokens
from foldlog.tests.processors.tools.tool_bench import make_host, run_once


def made(name, words="Does it.", size=0, **options):
    def function(x: int) -> str:
        return f"{name} {x}"

    function.__doc__ = words + " word" * size
    return tool(name=name, **{"effect": "pure", **options})(function)


def agent_of(*tools, budget=10_000, **more):
    return Agent(name="a", model="m", tools=tools, tool_schema_tokens=budget, **more)


def names(agent):
    return [each["name"] for each in json.loads(agent.tools_json())]


def use(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments}).encode()


def test_S3_8_nothing_changes_while_there_is_room():
    agent = agent_of(made("a"), made("b"))
    assert names(agent) == ["a", "b"] == [t.name for t in agent.tools]


def test_S3_8_rare_tools_cost_no_schema():
    agent = agent_of(made("a"), made("b", tier="rare"), made("c"))
    assert names(agent) == ["a", "c", FIND, USE]
    assert agent.tool("b") is not None


def test_S3_8_tools_over_the_budget_lie_behind_the_search():
    tools = [made("a", size=500), made("huge", size=1_500), made("b", size=500)]
    agent = agent_of(*tools, budget=3_000)
    assert names(agent) == ["a", "b", FIND, USE], "a huge one costs its own place only"
    assert sum(schema_tokens(t) for t in agent.tools if t.name != "huge") <= 3_000


@pytest.mark.parametrize("budget", [1, 700, 1_500, 3_000, 10_000])
def test_the_schemas_fit_the_budget_and_are_the_same_bytes_again(budget):
    tools = [made(f"t{n}", size=100 * (n % 5)) for n in range(20)]
    agent = agent_of(*tools, budget=budget)
    front = json.loads(agent.tools_json())
    search = sum(schema_tokens(t) for t in agent.tools if t.name in (FIND, USE))
    assert sum(schema_tokens(t) for t in agent.tools[: len(front)]) <= max(budget, search)
    assert replace(agent).tools_json() == agent.tools_json()
    assert {t.name for t in agent.tools} - {FIND, USE} == {t.name for t in tools}
    wide = replace(agent, tool_schema_tokens=100_000)
    assert sorted(names(wide)) == sorted(t.name for t in tools), "and all in front again"
    assert all(why_wrong(t.arguments.parse, b'{"x":1}') is None for t in wide.tools)


def test_a_search_gives_schemas_as_data():
    agent = agent_of(
        made("send_mail", "Send a letter to a customer.", tier="rare"),
        made("weather", "Tell whether it rains.", tier="rare"),
    )
    find = agent.tool(FIND)
    found = find("letter")
    assert [t["name"] for t in found["tools"]] == ["send_mail"]
    assert found["tools"][0]["input_schema"]["properties"] == {"x": {"type": "integer"}}
    assert find("mail")["tools"] == found["tools"]
    assert find("")["others"] == ["send_mail", "weather"]
    assert find("zebra") == {"tools": [], "others": ["send_mail", "weather"]}
    assert "send_mail, weather" in find.description


def test_a_search_over_many_tools_is_bounded():
    many = [made(f"tool_{n:03}", "Same words.", size=300, tier="rare") for n in range(250)]
    agent = agent_of(*many)
    found = agent.tool(FIND)("same")
    assert 1 <= len(found["tools"]) <= 5 and len(found["others"]) == 100
    assert found["more"].endswith(" more")
    assert schema_tokens(agent.tool(FIND)) < 1_500


def test_a_call_through_the_search_is_a_call_of_the_tool():
    agent = agent_of(made("a"), made("b", tier="rare", effect="once", approval="ask"))
    found, why = resolve(agent, USE, use("b", x=1))
    assert (found.name, found.effect, found.approval, why) == ("b", "once", "ask", "")
    assert why_wrong(found.arguments.parse, use("b", x=1)) is None
    assert "valid integer" in why_wrong(found.arguments.parse, use("b", x="1"))
    twice = b'{"name":"b","name":"b","arguments":{}}'
    assert "comes twice" in why_wrong(found.arguments.parse, twice)
    assert "they are for 'a'" in why_wrong(found.arguments.parse, use("a", x=1))


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("nope", b"{}", "There is no tool 'nope'"),
        ("b", b'{"x":1}', "call it through use_tool"),
        (USE, use("a", x=1), "a is called directly"),
        (USE, use("nope", x=1), "there is no tool 'nope'"),
        (USE, use(USE, x=1), "use_tool is called directly"),
        (USE, b"{}", "`name` must be"),
        (USE, b'{"name":"b","arguments":"{}"}', "`arguments` must be an object"),
        (USE, b'{"name":"b","arguments":{},"x":1}', "nothing beside"),
        (USE, b'{"name":"b"', "are no JSON"),
    ],
)
def test_a_call_that_means_no_tool_is_told_why(name, raw, why):
    agent = agent_of(made("a"), made("b", tier="rare"))
    found, told = resolve(agent, name, raw)
    assert found is None and why in told


def test_the_tool_runs_with_its_own_arguments_and_the_approved_bytes(tmp_path):
    agent = agent_of(made("b", tier="rare"))
    raw = use("b", x=7)
    told = run_once(agent.tool("b"), make_host(tmp_path), raw)
    assert (told.only.outcome, told.text) == ("ok", "b 7")
    other = run_once(
        agent.tool("b"), make_host(tmp_path), raw, args_sha256=sha256(b"else").hexdigest()
    )
    assert other.only.outcome == "not_run"


def test_a_call_that_outlives_its_envelope_runs_nothing(tmp_path):
    decided = use("b", x=7)
    now = agent_of(made("b"))  # the operator took it out from behind the search meanwhile
    assert run_once(now.tool("b"), make_host(tmp_path), decided).only.outcome == "not_run"


def test_a_tool_that_could_take_the_envelope_for_its_own_stays_in_front():
    @tool(effect="pure", tier="rare")
    def proxy(name: str, arguments: dict) -> str:
        """Call something."""
        return name

    assert [t.name for t in arranged([proxy], 1)] == ["proxy"]


def test_rules_name_the_tool_and_not_the_search():
    with pytest.raises(ValueError, match="a rule must name the tool"):
        agent_of(made("b", tier="rare"), permissions=[(USE, "deny")])
    agent = agent_of(made("b", tier="rare"), permissions=[("b", "deny")])
    assert agent.approval("b") == "deny"


def test_an_unknown_tier_is_refused():
    with pytest.raises(ValueError, match="neither always nor rare"):
        made("a", tier="search")
