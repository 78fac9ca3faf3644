"""The agent of simulated sessions: real tools of every effect and approval.

This file also has the limits that a seed chooses. The tools' functions are never called: effects.py
simulates them.
"""

from dataclasses import replace
from random import Random
from typing import Any

from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import Tool, tool


def _simulated(name: str, doc: str, **options: Any) -> Tool:
    """A tool with one argument whose function is never called."""

    def function(n: int) -> str:
        raise AssertionError("simulated by effects.py")

    function.__name__, function.__doc__ = name, doc
    return tool(**options)(function)


def _reconcile(ctx, n: int) -> None:
    raise AssertionError("simulated by effects.py")


look = _simulated("look", "Reads something.", effect="pure")
page = _simulated("page", "Reads a lot.", effect="pure")
put = _simulated("put", "Writes something; twice is as once.", effect="idempotent")
charge = _simulated("charge", "Must not happen twice.", effect="once")
order = _simulated(
    "order", "Must not happen twice; one can find out whether it did.",
    effect="once", reconciler=_reconcile,
)
wire = _simulated("wire", "Must not happen twice, and asks.", effect="once", approval="ask")
peek = _simulated("peek", "Reads something, and asks.", effect="pure", approval="ask")
erase = _simulated("erase", "Is denied by a rule.", effect="once", approval="deny")


@tool(effect="once")
def build_and_deploy(n: int, confirm_new_project: bool = False) -> str:
    """Asks for a phase transition and a project."""
    raise AssertionError("simulated by effects.py")


complete = _simulated("complete", "Ends the turn.", effect="pure", stops=True)
TOOLS = (look, page, put, charge, order, wire, peek, erase, build_and_deploy, complete)
AGENT = Agent(name="sim", model="sim-1", system="You are simulated.", tools=TOOLS)


def newer(agent: Agent) -> Agent:
    """The agent after an upgrade: it has another prompt and two tools fewer."""
    tools = tuple(tool for tool in agent.tools if tool not in (charge, look))
    return replace(agent, system="You are newer.", tools=tools)


STRATEGIES = ("compacted",) * 6 + ("sliding_window_2", "sliding_window_20", "full")
SYSTEMS = ("", "You are simulated.")


def a_compacting_agent(rng: Random) -> Agent:
    """The agent with budgets that a long session exceeds. The first request of a session has 800
    tokens."""
    limits = Limits(
        model_attempts=rng.choice((2, 5)),
        tool_attempts=rng.choice((1, 3)),
        steps=50,
        stall_timeout_ms=20_000,
        tool_timeout_ms=20_000,
        background_attempts=rng.choice((1, 2, 3)),
        background_timeout_ms=rng.choice((5_000, 40_000, 120_000)),
        candidate_wait_ms=rng.choice((5_000, 60_000)),
        soft_tokens=4_500,
        resume_tokens=rng.choice((4_000, 20_000)),
        short_tokens=500,
        hard_tokens=rng.choice((8_000, 12_000, 180_000)),
    )
    strategy, memory = rng.choice(STRATEGIES), rng.random() < 0.3
    agent = replace(AGENT, limits=limits, system=rng.choice(SYSTEMS), strategy=strategy)
    return replace(agent, memory=True) if memory else agent


def an_agent(rng: Random) -> Agent:
    """The agent with low or high limits. A schedule is long enough to reach the low ones."""
    limits = Limits(
        model_attempts=rng.choice((1, 2, 3, 5)),
        tool_attempts=rng.choice((1, 2, 3)),
        delivery_attempts=3,
        steps=rng.choice((2, 6, 50)),
        stall_timeout_ms=rng.choice((3_000, 20_000, 60_000)),
        tool_timeout_ms=rng.choice((2_000, 20_000, 120_000)),
        approval_expiry_ms=rng.choice((20_000, 24 * 3600 * 1000)),
        soft_tokens=200,
        hard_tokens=rng.choice((900, 180_000, 180_000, 180_000)),
    )
    return replace(AGENT, limits=limits, system=rng.choice(SYSTEMS))
