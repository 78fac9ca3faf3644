"""Tool tiers (S3.8): visible tools, hidden tools that a search finds, and calls through
`use_tool`."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from foldlog import Agent, tool
from foldlog.processors.tools.arguments import why_wrong
from foldlog.processors.tools.tiers import FIND, USE, arranged, resolve, schema_tokens
from foldlog.tests.processors.tools.tool_bench import run_once


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


def test_S3_8_within_the_budget_all_tools_are_visible():
    agent = agent_of(made("a"), made("b"))
    assert names(agent) == ["a", "b"] == [t.name for t in agent.tools]


def test_S3_8_the_schemas_of_rare_tools_are_not_sent():
    agent = agent_of(made("a"), made("b", tier="rare"), made("c"))
    assert names(agent) == ["a", "c", FIND, USE]
    assert agent.tool("b") is not None


def test_S3_8_tools_over_the_budget_are_hidden():
    tools = [made("a", size=500), made("huge", size=1_500), made("b", size=500)]
    agent = agent_of(*tools, budget=3_000)
    assert names(agent) == ["a", "b", FIND, USE], "a huge schema loses only its own place"
    assert sum(schema_tokens(t) for t in agent.tools if t.name != "huge") <= 3_000


@pytest.mark.parametrize("budget", [1, 700, 1_500, 3_000, 10_000])
def test_the_schemas_fit_the_budget_and_their_bytes_are_stable(budget):
    tools = [made(f"t{n}", size=100 * (n % 5)) for n in range(20)]
    agent = agent_of(*tools, budget=budget)
    visible = json.loads(agent.tools_json())
    search = sum(schema_tokens(t) for t in agent.tools if t.name in (FIND, USE))
    assert sum(schema_tokens(t) for t in agent.tools[: len(visible)]) <= max(budget, search)
    assert replace(agent).tools_json() == agent.tools_json()
    assert {t.name for t in agent.tools} - {FIND, USE} == {t.name for t in tools}
    wide = replace(agent, tool_schema_tokens=100_000)
    assert sorted(names(wide)) == sorted(t.name for t in tools), "all are visible again"
    assert all(why_wrong(t.arguments.parse, b'{"x":1}') is None for t in wide.tools)


def test_a_search_returns_schemas_as_data():
    agent = agent_of(
        made("send_mail", "Send a letter to a customer.", tier="rare"),
        made("weather", "Report whether it rains.", tier="rare"),
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
    assert "occurs twice" in why_wrong(found.arguments.parse, twice)
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
        (USE, b'{"name":"b","arguments":{},"x":1}', "no other keys"),
        (USE, b'{"name":"b"', "are not JSON"),
    ],
)
def test_a_call_without_a_matching_tool_gets_a_reason(name, raw, why):
    agent = agent_of(made("a"), made("b", tier="rare"))
    found, reason = resolve(agent, name, raw)
    assert found is None and why in reason


def test_the_tool_runs_with_its_own_arguments_and_the_approved_bytes(host):
    found, raw = agent_of(made("b", tier="rare")).tool("b"), use("b", x=7)
    sink = run_once(found, host, raw)
    assert (sink.only.outcome, sink.text) == ("ok", "b 7")
    other = run_once(found, host, raw, args_sha256=sha256(b"else").hexdigest())
    assert other.only.outcome == "not_run"


def test_a_call_in_an_envelope_of_a_tool_now_visible_runs_nothing(host):
    decided = use("b", x=7)
    now = agent_of(made("b"))  # the operator has made it visible since
    assert run_once(now.tool("b"), host, decided).only.outcome == "not_run"


def test_a_tool_whose_arguments_could_be_the_envelope_stays_visible():
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


def test_an_unknown_tier_is_rejected():
    with pytest.raises(ValueError, match="neither always nor rare"):
        made("a", tier="search")
