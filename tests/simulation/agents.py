"""The agent that simulated sessions run under: real tools of every effect and approval.

This file owns what may be called and the limits that a seed chooses. The functions are never
called: effects.py plays them. It must not know a world.
"""

from dataclasses import replace
from random import Random

from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.processors.tool import tool


@tool(effect="pure")
def look(n: int) -> str:
    """Reads something."""
    raise AssertionError("played by effects.py")


@tool(effect="idempotent")
def put(n: int) -> str:
    """Writes something; twice is as once."""
    raise AssertionError("played by effects.py")


@tool(effect="once")
def charge(n: int) -> str:
    """Must not happen twice."""
    raise AssertionError("played by effects.py")


def _asked(ctx, n: int) -> None:
    raise AssertionError("played by effects.py")


@tool(effect="once", reconciler=_asked)
def order(n: int) -> str:
    """Must not happen twice; one can find out whether it did."""
    raise AssertionError("played by effects.py")


@tool(effect="once", approval="ask")
def wire(n: int) -> str:
    """Must not happen twice, and asks."""
    raise AssertionError("played by effects.py")


@tool(effect="pure", approval="ask")
def peek(n: int) -> str:
    """Reads something, and asks."""
    raise AssertionError("played by effects.py")


@tool(effect="once", approval="deny")
def erase(n: int) -> str:
    """Is denied by a rule."""
    raise AssertionError("played by effects.py")


@tool(effect="once")
def build(n: int) -> str:
    """Asks for a phase transition and a project."""
    raise AssertionError("played by effects.py")


@tool(effect="pure", stops=True)
def complete(n: int) -> str:
    """Ends the turn."""
    raise AssertionError("played by effects.py")


TOOLS = (look, put, charge, order, wire, peek, erase, build, complete)
AGENT = Agent(name="sim", model="sim-1", system="You are simulated.", tools=TOOLS)


def newer(agent: Agent) -> Agent:
    """The agent after an upgrade: another prompt, and two tools less."""
    kept = tuple(tool for tool in agent.tools if tool not in (charge, look))
    return replace(agent, system="You are newer.", tools=kept)


def an_agent(rng: Random) -> Agent:
    """The agent with limits near and far: near ones end within one schedule."""
    limits = Limits(
        model_attempts=rng.choice((1, 2, 3, 5)),
        tool_attempts=rng.choice((1, 2, 3)),
        steps=rng.choice((2, 6, 50)),
        stall_timeout_ms=rng.choice((3_000, 20_000, 60_000)),
        tool_timeout_ms=rng.choice((2_000, 20_000, 120_000)),
        approval_expiry_ms=rng.choice((20_000, 24 * 3600 * 1000)),
        soft_tokens=200,
        hard_tokens=rng.choice((900, 180_000, 180_000, 180_000)),
    )
    return replace(AGENT, limits=limits, system=rng.choice(("", "You are simulated.")))
