"""Blocks in the wrong place (S3.8): what most turns ask for by a tool, and marks in the middle."""

import pytest

from foldlog.client.show import Everything
from foldlog.processors.advice import placement
from foldlog.processors.advice.placement import critical_in_the_middle
from foldlog.processors.agent import Agent
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.request.prefix import Prefix, assemble
from foldlog.processors.tools.tool import tool
from foldlog.tests.kit.answers import Use as Call
from foldlog.tests.kit.history import History, opened
from foldlog.upkeep.doctor.findings import Code
from foldlog.upkeep.doctor.usage import placement as report

RULES = "Refunds go to a person. Prices are in cents. Never show a card number to anybody. " * 3
FILLER = "The shop sells lamps, desks and chairs to people in many towns. " * 200
MARK = "IMPORTANT: never promise a refund"


@tool(effect="pure")
def load_memory(ctx, path: str = "shop") -> str:
    """Loads a file of memory."""
    return path


SHOP = Agent(name="helper", model="claude-test", system="Be brief.", tools=(load_memory,))


def turn(s: History, args: str | None, content: str = RULES) -> None:
    """A turn that calls the tool with these arguments, or calls nothing."""
    s.say("go")
    if args is not None:
        s.answer(Call("load_memory", args, "a"))
        assert s.result(f"{s.turn.number}.1.0", content).accepted
    s.answer("done")


def reported(*sessions: History):
    names = [f"s{number}" for number in range(len(sessions))]
    views = {name: s.views for name, s in zip(names, sessions, strict=True)}
    times = dict.fromkeys(names, 1)
    everything = Everything(views, dict.fromkeys(names, 0), {}, times, 1)
    return list(report(everything, sessions[0].blobs.read))


@pytest.mark.parametrize(("calls", "others", "is_reported"), [(6, 4, True), (5, 5, False)])
def test_S3_8_content_that_most_turns_ask_for_is_reported(monkeypatch, calls, others, is_reported):
    monkeypatch.setattr(placement, "TURNS_MIN", 10)
    s = opened(agent=SHOP)
    for _ in range(calls):
        turn(s, '{"path": "rules"}')
    for number in range(others):
        turn(s, f'{{"path": "day {number}"}}')
    found = reported(s)
    assert [finding.code for finding in found] == [Code.ASKED_IN_MOST_TURNS] * is_reported
    if is_reported:
        assert 'in 6 of 10 turns the model called load_memory {"path": "rules"}' in found[0].text
        assert "core memory" in found[0].do


def test_S3_8_turns_of_all_sessions_of_an_agent_count(monkeypatch):
    monkeypatch.setattr(placement, "TURNS_MIN", 4)
    one, other = opened(agent=SHOP), opened(agent=SHOP)
    for s in (one, one, other, other):
        turn(s, "{}")
    assert [finding.values["asked"] for finding in reported(one, other)] == [4]


@pytest.mark.parametrize(("content", "turns"), [("ok", 4), (None, 4), (RULES, 3)])
def test_S3_8_acknowledgements_changing_results_and_few_turns_are_not_reported(
    monkeypatch, content, turns
):
    monkeypatch.setattr(placement, "TURNS_MIN", 4)
    s = opened(agent=SHOP)
    for number in range(turns):
        turn(s, "{}", f"{RULES} {number}" if content is None else content)
    assert reported(s) == []


def prefix(before: str, after: str, *layers: Layer, mark: str = MARK) -> Prefix:
    agent = Agent(
        name="helper", model="claude-test", system=f"{before}\n{mark}\n{after}", tools=()
    )
    return assemble(agent, Layers(layers))


def test_S3_8_a_critical_line_in_the_middle_is_reported_with_its_place():
    (found,) = critical_in_the_middle(prefix(FILLER, FILLER))
    assert found.line == MARK and 0.45 < found.place < 0.55 and found.tokens > 2_000


@pytest.mark.parametrize("mark", [
    "**Important**: answer in Hebrew", "> CRITICAL never delete", "- [important] ask first",
])
def test_S3_8_other_marks_count_too(mark):
    assert [found.line for found in critical_in_the_middle(prefix(FILLER, FILLER, mark=mark))]


@pytest.mark.parametrize(("before", "after", "mark"), [
    ("", FILLER, MARK), (FILLER, "", MARK), ("a", "b", MARK),
    (FILLER, FILLER, "It is important to be kind."), (FILLER, FILLER, "Importantly, smile"),
])
def test_S3_8_edges_short_prompts_and_prose_are_not_reported(before, after, mark):
    assert critical_in_the_middle(prefix(before, after, mark=mark)) == ()


def test_S3_8_a_mark_in_an_instruction_file_counts_and_one_in_memory_does_not():
    text = f"{FILLER}\n{MARK}\n{FILLER}"
    assert critical_in_the_middle(prefix("", "", Layer("project", "FOLDLOG.md", text), mark=""))
    assert not critical_in_the_middle(prefix("", "", Layer("core", "memory", text), mark=""))


def test_S3_8_doctor_names_the_line_and_the_remedy():
    agent = Agent(
        name="helper", model="claude-test", system=f"{FILLER}\n{MARK}\n{FILLER}", tools=()
    )
    s = opened(agent=agent)
    turn(s, None)
    (finding,) = reported(s)
    assert finding.code == Code.CRITICAL_IN_THE_MIDDLE and MARK in finding.text
    assert "50%" in finding.text and "directive" in finding.do
