"""How often tools and prompt blocks are used (S3.8), measured from sessions, and what follows."""

import json
from dataclasses import replace

import pytest

from foldlog.consumers.doctor.usage import usage
from foldlog.consumers.show import Everything
from foldlog.processors.advice import block_usage
from foldlog.processors.advice.block_usage import TURNS_MIN, Place, Use, advice, measure_usage
from foldlog.processors.advice.mistakes import whole_prefix
from foldlog.processors.advice.prefix_drift import parts
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tiers import search_tokens
from foldlog.processors.tools.tool import tool
from foldlog.tests.laws.answers import Use as Call
from foldlog.tests.laws.history import History, opened


def made(name: str, size: int = 0, **more):
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


def used(s: History) -> dict[tuple[str, str], Use]:
    return {(use.place, use.name): use for use in found(s).uses}


def found(*sessions: History) -> block_usage.AgentUsage:
    def parts_of(row):
        return parts(whole_prefix(row, sessions[0].blobs.read))

    return measure_usage([s.views for s in sessions], parts_of)["helper"]


def test_S3_8_turns_and_calls_of_each_tool_are_counted_from_the_log():
    s = opened(agent=agent_of(made("read"), made("fetch"), made("rates", tier="rare")))
    turn(s, calls("read"), calls("read"))
    turn(s, calls("read"), calls("rates", behind=True))
    turn(s)
    s.say("a turn that is not over counts for nothing")
    s.answer(calls("fetch"))
    seen = used(s)
    assert found(s).turns == 3
    read = seen[Place.FRONT, "read"]
    assert (read.turns, read.used, read.calls) == (3, 2, 3) and read.tokens > 20
    assert seen[Place.FRONT, "fetch"][2:5] == (3, 0, 0)
    assert seen[Place.BEHIND, "rates"][2:5] == (3, 1, 1), "under its own name"
    assert "used in 2 of 3 turns (67%), 1.5 calls in each" in str(read)
    assert seen[Place.FRONT, "use_tool"][2:5] == (3, 1, 1)
    prompt = seen[Place.PROMPT, "system prompt"]
    assert (prompt.turns, prompt.used) == (3, None), "no log says what a model made of it"


def test_S3_8_a_turn_counts_for_a_tool_only_while_it_was_in_reach():
    s = opened(agent=agent_of(made("read")))
    turn(s, calls("read"))
    s.agent = agent_of(made("read"), made("late"))
    assert s.agent.tool("late") is not None
    turn(s, calls("late"))
    seen = used(s)
    assert seen[Place.FRONT, "late"][2:4] == (1, 1)
    assert seen[Place.FRONT, "read"][2:4] == (2, 1)
    s.agent = agent_of(made("late"))
    turn(s)
    assert (Place.FRONT, "read") not in used(s), "what is gone is not judged"


def front(name: str, turns: int, used: int, tokens: int = 1_000, **more) -> Use:
    return Use(Place.FRONT, name, turns, used, used, tokens, more.get("hideable", True))


def advised(*uses: Use) -> list[str]:
    each = advice(block_usage.AgentUsage(100, uses))
    return [one.use.name for one in each]


def test_S3_8_what_under_5_percent_use_belongs_behind_the_search_by_a_minimum_sample():
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


def test_S3_8_what_90_percent_use_belongs_into_the_fixed_prompt():
    def behind(used: int, turns: int = 100) -> Use:
        return Use(Place.BEHIND, "rates", turns, used, used)

    assert advised(behind(90)) == ["rates"] and advised(behind(89)) == []
    assert advised(behind(59, 59)) == []


@pytest.mark.parametrize(("used", "tokens", "said"), [
    (0, 900, ["memory index"]), (4, 900, ["memory index"]), (5, 900, []), (0, 100, []),
])
def test_S3_8_a_memory_index_that_nobody_loads_from_is_named(used, tokens, said):
    assert advised(Use(Place.PROMPT, "memory index", 100, used, 0, tokens)) == said


def test_S3_8_doctor_recommends_tiers_in_plain_words_for_people_and_machines(monkeypatch):
    monkeypatch.setattr(block_usage, "TURNS_MIN", 4)
    s = opened(agent=agent_of(made("read"), made("huge", 500), made("rates", tier="rare")))
    for _ in range(4):
        turn(s, calls("read"), calls("rates", behind=True))
    everything = Everything({"s1": s.views}, {"s1": 0}, {}, {"s1": 1}, 1)
    (counted, *notes) = usage(everything, s.blobs.read, whole=False)
    assert counted.level == "ok" and counted.text.startswith("agent helper: 4 turns")
    assert counted.text.endswith("rates 100%, read 100%; 1 never")
    told = {note.text.split(":")[1]: note for note in notes}
    assert set(told) == {" tool huge", " tool rates"}
    assert "tokens in every request, used in 0 of 4 turns (0%)" in told[" tool huge"].text
    assert 'tier="rare"' in told[" tool huge"].do
    assert "behind the tool search, used in 4 of 4 turns (100%)" in told[" tool rates"].text
    assert "fixed prompt" in told[" tool rates"].do
    whole = [row.text for row in usage(everything, s.blobs.read, whole=True)]
    assert any("system prompt: " in text for text in whole) and len(whole) > len(notes) + 4
    assert "about 0 tokens" not in "".join(whole)


def test_a_prefix_that_can_not_be_read_hides_no_other_session():
    s = opened(agent=agent_of(made("read")))
    turn(s, calls("read"))
    lost = measure_usage([s.views, s.views], lambda row: None)["helper"]
    assert lost.turns == 2 and lost.uses == ()
