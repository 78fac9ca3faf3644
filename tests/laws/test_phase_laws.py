"""The law of phases: a call is decided by the phase at its basis, for every phase and tool."""

from collections import Counter
from itertools import combinations, product

import pytest

from foldlog.processors.agent import Agent, Rule
from foldlog.processors.fold.transitions import TRANSITIONS, WRONG_PHASE
from foldlog.processors.tools.tool import Tool, tool
from foldlog.schemas import events as ev
from foldlog.tests.kit.agents import paint
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, opened
from foldlog.tests.kit.phases import in_phase
from foldlog.tests.laws.law import SEEDS, history_of, law
from foldlog.tests.laws.random_history import RandomHistory

SUBSETS = [some for size in range(len(TRANSITIONS) + 1) for some in combinations(TRANSITIONS, size)]
OPTIONS = (
    {},
    {"approval": "ask"},
    {"approval": "deny"},
    {"tier": "rare"},
    {"effect": "pure"},
    {"effect": "idempotent"},
)


def made(number: int, phases: tuple[str, ...], options: dict) -> Tool:
    @tool(name=f"tool_{number}", phases=phases, **options)
    def run() -> str:
        """Does something."""
        return ""

    return run


CASES = list(product(SUBSETS, OPTIONS))
TOOLS = [made(n, *case) for n, case in enumerate(CASES)]
RULES = [
    Rule("tool_*1", "ask", ("building",)),
    Rule("tool_*2", "deny", ("verifying", "chatting")),
    Rule("tool_*2", "allow"),
]
AGENT = Agent(name="helper", model="claude-test", tools=TOOLS, permissions=RULES)
DIRECT = {each.name for each in AGENT.tools if each.tier == "always"}


def use(each: Tool, n: int) -> Use:
    if each.tier == "rare":
        return Use("use_tool", f'{{"name":"{each.name}","arguments":{{}}}}', f"c{n}")
    return Use(each.name, "{}", f"c{n}")


def decided(phase: str) -> tuple[History, list[ev.ToolInvoked]]:
    """A session in a phase whose model calls every tool, and the decisions on these calls."""
    s = in_phase(opened(agent=AGENT), phase)
    s.say("go")
    s.answer(*(use(each, n) for n, each in enumerate(TOOLS)))
    found = [x.entry.event for x in s.steps if isinstance(x.entry.event, ev.ToolInvoked)]
    assert len(found) == len(TOOLS)
    return s, sorted(found, key=lambda event: event.index)


def by_the_rules(phase: str, each: Tool) -> str:
    """The approval of a call that its tool's phases allow, without the code under test."""
    name, own = each.name, str(each.approval)
    if name.endswith("1") and phase == "building":
        return "ask"
    if name.endswith("2"):
        return "deny" if phase in ("verifying", "chatting") else "none"
    return own


@pytest.mark.parametrize("phase", TRANSITIONS)
def test_S2_12_the_phase_decides_on_a_call_of_every_tool(phase):
    s, found = decided(phase)
    started = {x.entry.event.index for x in s.steps if isinstance(x.entry.event, ev.ToolStarted)}
    refused = [x.entry.event for x in s.steps if isinstance(x.entry.event, ev.Refused)]
    wrong = 0
    for n, (each, event) in enumerate(zip(TOOLS, found, strict=True)):
        may = not each.phases or phase in each.phases
        assert event.name == each.name and (event.code == WRONG_PHASE) is not may, each.name
        rules = each.name.endswith(("1", "2"))
        assert event.phase == (phase if each.phases or rules else None), each.name
        if not may:
            wrong += 1
            text = event.content.inline.decode()
            assert event.outcome == "error" and n not in started
            assert each.name in text and phase in text and all(p in text for p in each.phases)
            continue
        assert event.approval == by_the_rules(phase, each), each.name
        assert (event.outcome is None) is (event.approval != "deny")
    assert [one.code for one in refused] == [WRONG_PHASE] * wrong
    assert not s.turn.refusals, "each refusal is answered in the log, and answered once"
    assert s.views.frozen is None


def test_S2_12_the_prefix_is_the_same_in_every_phase():
    prefixes = {decided(phase)[0].views.context.prefix_sha for phase in TRANSITIONS}
    assert len(prefixes) == 1, "a phase never costs the cache"
    assert {each.name for each in TOOLS if each.tier == "always"} <= DIRECT


def of_paint(history: RandomHistory) -> list[tuple[str, ev.ToolInvoked]]:
    """The phase before each decision on a call of `paint`, and the decision."""
    return [
        (step.before.state.phase, step.entry.event)
        for step in history.steps
        if step.ruling.accepted
        and isinstance(step.entry.event, ev.ToolInvoked)
        and step.entry.event.name == paint.name
    ]


@law()
def test_S2_12_a_decision_counts_only_in_the_phase_by_which_it_was_made(history):
    for phase, event in of_paint(history):
        assert event.phase == phase
        assert (event.code == WRONG_PHASE) is (phase not in paint.phases)


def test_S2_12_random_histories_call_the_tool_in_right_and_in_wrong_phases():
    found = Counter(event.code for seed in range(SEEDS) for _, event in of_paint(history_of(seed)))
    assert found[WRONG_PHASE] > 20 and found[""] > 4, found
