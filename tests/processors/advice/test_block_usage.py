"""How much sessions use tools and prompt blocks (S3.8), and the advice that follows from this."""

import json
from dataclasses import replace

import pytest

from foldlog.client.show import Everything
from foldlog.processors.advice import block_usage
from foldlog.processors.advice.block_usage import (
    TURNS_MIN,
    AdviceCode,
    Place,
    Use,
    advice,
    measure_usage,
)
from foldlog.processors.advice.mistakes import whole_prefix
from foldlog.processors.advice.prefix_drift import parts
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tiers import search_tokens
from foldlog.processors.tools.tool import tool
from foldlog.tests.kit.answers import Use as Call
from foldlog.tests.kit.history import History, opened
from foldlog.upkeep.doctor.usage import usage


def make_tool(name: str, size: int = 0, **more):
    @tool(effect="pure", name=name, **more)
    def it(ctx, where: str = "here") -> str:
        """Does something."""
        return where

    return replace(it, description=f"Does something. {'word ' * size}")


def agent_of(*tools) -> Agent:
    return Agent(name="helper", model="claude-test", system="Be brief.", tools=tools)


def calls(name: str, behind: bool = False) -> Call:
    if not behind:
        return Call(name, "{}", "a")
    return Call("use_tool", json.dumps({"name": name, "arguments": {}}), "a")


def turn(s: History, *uses: Call) -> None:
    s.say("go")
    if uses:
        s.answer(*uses)
        number = s.turn.number
        for index in range(len(uses)):
            assert s.result(f"{number}.1.{index}").accepted
    s.answer("done")


def uses_of(s: History) -> dict[tuple[str, str], Use]:
    return {(use.place, use.name): use for use in measured(s).uses}


def measured(*sessions: History) -> block_usage.AgentUsage:
    def parts_of(row):
        return parts(whole_prefix(row, sessions[0].blobs.read))

    return measure_usage([s.views for s in sessions], parts_of)["helper"]


def test_S3_8_turns_and_calls_of_each_tool_are_counted_from_the_log():
    tools = make_tool("read"), make_tool("fetch"), make_tool("rates", tier="rare")
    s = opened(agent=agent_of(*tools))
    turn(s, calls("read"), calls("read"))
    turn(s, calls("read"), calls("rates", behind=True))
    turn(s)
    s.say("an open turn is not counted")
    s.answer(calls("fetch"))
    uses = uses_of(s)
    assert measured(s).turns == 3
    read = uses[Place.FRONT, "read"]
    assert (read.turns, read.used, read.calls) == (3, 2, 3) and read.tokens > 20
    assert uses[Place.FRONT, "fetch"][2:5] == (3, 0, 0)
    assert uses[Place.BEHIND, "rates"][2:5] == (3, 1, 1), "under its own name"
    assert "used in 2 of 3 turns (67%), 1.5 calls in each" in str(read)
    assert uses[Place.FRONT, "use_tool"][2:5] == (3, 1, 1)
    prompt = uses[Place.PROMPT, "system prompt"]
    assert (prompt.turns, prompt.used) == (3, None), "no log shows whether a model used it"


def test_S3_8_a_turn_counts_for_a_tool_only_if_the_agent_had_the_tool():
    s = opened(agent=agent_of(make_tool("read")))
    turn(s, calls("read"))
    s.agent = agent_of(make_tool("read"), make_tool("late"))
    assert s.agent.tool("late") is not None
    turn(s, calls("late"))
    uses = uses_of(s)
    assert uses[Place.FRONT, "late"][2:4] == (1, 1)
    assert uses[Place.FRONT, "read"][2:4] == (2, 1)
    s.agent = agent_of(make_tool("late"))
    turn(s)
    assert (Place.FRONT, "read") not in uses_of(s), "a removed tool is not rated"


def front(name: str, turns: int, used: int, tokens: int = 1_000, **more) -> Use:
    return Use(Place.FRONT, name, turns, used, used, tokens, more.get("hideable", True))


def advised(*uses: Use) -> list[str]:
    each = advice(block_usage.AgentUsage(100, uses))
    return [one.use.name for one in each]


def test_S3_8_a_tool_used_in_under_5_percent_of_enough_turns_is_advised_as_rare():
    assert advised(front("a", 100, 4)) == ["a"]
    assert advised(front("a", 100, 5)) == []
    assert advised(front("a", TURNS_MIN - 1, 0)) == [], "the sample is too small"
    assert advised(front("a", TURNS_MIN, 0)) == ["a"]
    assert advised(front("a", 100, 0, hideable=False)) == []
    assert advised(front("read_result", 100, 0), front("find_tools", 100, 0)) == []


def test_S3_8_a_search_that_costs_more_than_it_saves_is_not_recommended():
    light = search_tokens() // 2
    assert advised(front("a", 100, 0, light)) == []
    assert advised(front("a", 100, 0, light), front("b", 100, 1, light + 2)) == ["a", "b"]
    assert advised(front("a", 100, 0, light), front("find_tools", 100, 50)) == ["a"]


def test_S3_8_a_rare_tool_used_in_90_percent_of_turns_is_advised_for_the_fixed_prompt():
    def behind(used: int, turns: int = 100) -> Use:
        return Use(Place.BEHIND, "rates", turns, used, used)

    assert advised(behind(90)) == ["rates"] and advised(behind(89)) == []
    assert advised(behind(59, 59)) == []


@pytest.mark.parametrize(("used", "tokens", "expected"), [
    (0, 900, ["memory index"]), (4, 900, ["memory index"]), (5, 900, []), (0, 100, []),
])
def test_S3_8_an_unused_memory_index_is_reported(used, tokens, expected):
    assert advised(Use(Place.PROMPT, "memory index", 100, used, 0, tokens)) == expected


def test_S3_8_doctor_recommends_tiers_in_text_and_names_the_change(monkeypatch):
    monkeypatch.setattr(block_usage, "TURNS_MIN", 4)
    tools = make_tool("read"), make_tool("huge", 500), make_tool("rates", tier="rare")
    s = opened(agent=agent_of(*tools))
    for _ in range(4):
        turn(s, calls("read"), calls("rates", behind=True))
    everything = Everything({"s1": s.views}, {"s1": 0}, {}, {"s1": 1}, 1)
    (counted, *notes) = usage(everything, s.blobs.read, whole=False)
    assert counted.level == "ok" and counted.text.startswith("agent helper: 4 turns")
    assert counted.text.endswith("rates 100%, read 100%; 1 never")
    by_tool = {note.text.split(":")[1]: note for note in notes}
    assert set(by_tool) == {" tool huge", " tool rates"}
    assert "tokens in every request, used in 0 of 4 turns (0%)" in by_tool[" tool huge"].text
    assert 'tier="rare"' in by_tool[" tool huge"].do
    assert by_tool[" tool huge"].values["advice"].code is AdviceCode.PUT_BEHIND_SEARCH
    assert "behind the tool search, used in 4 of 4 turns (100%)" in by_tool[" tool rates"].text
    assert "fixed prompt" in by_tool[" tool rates"].do
    whole = [row.text for row in usage(everything, s.blobs.read, whole=True)]
    assert any("system prompt: " in text for text in whole) and len(whole) > len(notes) + 4
    assert "about 0 tokens" not in "".join(whole)


def test_an_unreadable_prefix_does_not_hide_other_sessions():
    s = opened(agent=agent_of(make_tool("read")))
    turn(s, calls("read"))
    lost = measure_usage([s.views, s.views], lambda row: None)["helper"]
    assert lost.turns == 2 and lost.uses == ()
