"""Schemas that the Messages API rejects are adapted; the server still receives the names that it
declared."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog import Agent
from foldlog.local.messages_api.errors import ApiError
from foldlog.local.messages_api.shape import check_shape
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside.definitions import ListedTool, definitions_of
from foldlog.processors.outside.fitting import adapt_schema
from foldlog.processors.outside.tools import with_outside_tools
from foldlog.processors.tools.tool import tool
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
ODATA = {
    "type": "object",
    "properties": {"$top": NUMBER, "filter[id]": TEXT, "name": TEXT},
    "required": ["$top", "name"],
}
EITHER = {
    "type": "object",
    "properties": {"title": TEXT},
    "anyOf": [
        {"properties": {"content": TEXT}, "required": ["content"]},
        {"properties": {"url": TEXT}, "required": ["url"]},
    ],
}
SERVER = McpServer(name="s", command=("x",), approvals={"*": "none"}, effects={"*": "pure"})


def agent_with(schema, call=None):
    found = definitions_of(SERVER, [ListedTool("t", "Does.", schema)])
    agent, notes = with_outside_tools(
        Agent(name="a", model="m", mcp=(SERVER,)), {"s": found}, {"s": call}
    )
    assert not notes
    return agent


def accepted_by_api(agent):
    """Reports whether the API accepts a request that has the agent's tools."""
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 1,
        "tools": json.loads(agent.tools_json()),
        "messages": [{"role": "user", "content": "hi"}],
    }
    check_shape(body, frozenset())
    return True


@pytest.mark.parametrize("schema", [ODATA, EITHER])
def test_the_fake_api_rejects_what_the_api_rejects(schema):
    rejected = {"name": "t", "input_schema": schema}
    body = {"model": "m", "max_tokens": 1, "messages": [], "tools": [rejected]}
    with pytest.raises(ApiError, match="at the top level|Property keys should match"):
        check_shape(body | {"messages": [{"role": "user", "content": "hi"}]}, frozenset())


def test_the_model_sees_renamed_parameters_and_the_server_its_own(tmp_path):
    received = []

    async def call(definition, arguments, meta):
        received.append(arguments)
        return {"content": [{"type": "text", "text": "found"}]}

    agent = agent_with(ODATA, call)
    assert accepted_by_api(agent)
    made = agent.tool("s__t")
    assert set(made.input_schema["properties"]) == {"_top", "filter_id_", "name"}
    assert made.input_schema["required"] == ["_top", "name"]
    args = b'{"_top": 3, "filter_id_": "x", "name": "n"}'
    assert run_once(made, make_host(tmp_path), args).only.outcome == "ok"
    assert received == [{"$top": 3, "filter[id]": "x", "name": "n"}]


def test_alternatives_are_merged_and_the_description_lists_them():
    made = agent_with(EITHER).tool("s__t")
    assert set(made.input_schema) == {"type", "properties"}
    assert set(made.input_schema["properties"]) == {"title", "content", "url"}
    assert made.description.startswith("Does.\nIts arguments must also match")
    assert '"anyOf"' in made.description and '"required":["url"]' in made.description
    both = {"type": "object", "allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {}, 3]}
    made = agent_with(both).tool("s__t")
    assert made.input_schema["required"] == ["a"] and accepted_by_api(agent_with(both))


def test_a_valid_schema_is_unchanged():
    schema = {"type": "object", "properties": {"a.b-c_9": {"anyOf": [TEXT, NUMBER]}}}
    assert adapt_schema(schema).schema is schema
    assert agent_with(schema).tool("s__t").description == "Does."
    for odd in (None, 3, [], {"properties": 3, "anyOf": 4}, {"type": "object", "anyOf": "x"}):
        adapt_schema(odd)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)


@given(st.dictionaries(names, st.just(TEXT), max_size=6), st.lists(names, max_size=3))
def test_any_parameter_name_is_adapted_and_mapped_back(properties, required):
    schema = {"type": "object", "properties": properties, "required": [*properties, *required]}
    found = adapt_schema(schema)
    original = dict(found.names)
    adapted = found.schema["properties"]
    assert {original.get(name, name) for name in adapted} == set(properties)
    assert accepted_by_api(agent_with(schema)) and len(adapted) == len(properties)


def test_a_python_tool_with_a_parameter_name_that_the_api_rejects_raises_type_error():
    def pay(größe: int) -> str:
        """Pay."""

    with pytest.raises(TypeError, match="'größe' of tool pay must have a name of"):
        tool(pay)
